"""The one archive that every box of a run gets: agent, job library, pins, workdirs, host key.

The same plan and the same installed packages give the same bytes, so its SHA-256 in the user data
says exactly what a box will run. Nothing in it comes from a package index on the box.
"""

from __future__ import annotations

import gzip
import hashlib
import importlib.metadata
import importlib.util
import io
import json
import re
import tarfile
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from orchestrator.pins import PINS_FOLDER
from orchestrator.quote import PUTS_OF_RESULTS, PUTS_PER_SECOND, TICK_S
from orchestrator.workdir import pack_workdir

if TYPE_CHECKING:
    from orchestrator.plan import Plan, PlannedBox, PlannedJob

# boto3 and what it needs; all of it pure Python, as the boxes' Python may be another version.
AGENT_PACKAGES = (
    *("boto3", "botocore", "s3transfer", "jmespath", "python-dateutil", "urllib3", "six"),
)
# What a box that reads secrets needs of botocore on top of that.
_FOR_SECRETS = re.compile(
    r"botocore/data/(ssm|secretsmanager)/[^/]+/(endpoint-rule-set|service-2).*"
)
_LEFT_OUT = re.compile(
    r"(.*/)?__pycache__/.*|[^/]*\.dist-info/.*|boto3/(data/(?!s3/)|examples/).*"
    r"|dateutil/zoneinfo/.*\.tar\.gz|\.\..*|.*\.pyi"
    r"|botocore/data/(?!s3/|sts/|endpoints\.json|partitions\.json|_retry\.json|sdk-default).*"
    r"|.*/examples-1\.json"
)


@dataclass(frozen=True)
class Payload:
    """A tar.gz on this machine's disk."""

    path: Path
    sha256: str


def build_payload(
    plan: Plan, run_id: str, bucket: str, *, host_private: str, folder: Path | None = None
) -> Payload:
    """Pack what the run's boxes need into `folder` (default: a fresh temporary one).

    `host_private`: the boxes' SSH host key in OpenSSH format. Raises WorkdirError for a job's
    folder that can't be packed, FileNotFoundError for pins or requirements that are gone.
    """
    files = dict(_agent(plan)) | dict(_library()) | dict(_pins(plan)) | dict(_workdirs(plan))
    for box in plan.boxes:
        spec = box_spec(plan, box.name, run_id=run_id, bucket=bucket)
        files[f"boxes/{box.name}.json"] = json.dumps(spec, indent=1, sort_keys=True).encode()
    files["ssh/host_ed25519"] = host_private.encode()
    data = _tar_gz(files)
    path = (folder or Path(tempfile.mkdtemp(prefix="gpurun-"))) / "payload.tar.gz"
    path.write_bytes(data)
    return Payload(path, hashlib.sha256(data).hexdigest())


def box_spec(plan: Plan, box_name: str, *, run_id: str, bucket: str) -> dict[str, Any]:
    """What orchestrator.box reads as `boxes/<box>.json`. Raises KeyError."""
    box, jobs = plan.box(box_name), plan.jobs_of(box_name)
    return {
        "format": 1,
        "run": run_id,
        "box": box.name,
        "bucket": bucket,
        "region": plan.region,
        "prefix": f"runs/{run_id}/",
        "planned_at": plan.planned_at.timestamp(),
        "drain_at": box.drain_at.timestamp(),
        "poweroff_at": box.poweroff_at.timestamp(),
        "cloud_at": box.cloud_at.timestamp(),
        "loss_bound_s": plan.loss_bound_s,
        "tick_s": TICK_S[plan.cloud],
        "price_usd_per_hour": str(box.price_usd_per_hour),
        **upload_share(plan, box),
        "spot": box.spot,
        "secrets": secret_sources(plan, run_id),
        "pins": {name: pins for job in jobs for name, pins in _pins_of(plan, job)},
        "jobs": [_job(plan, job) for job in jobs],
    }


def upload_share(plan: Plan, box: PlannedBox) -> dict[str, int]:
    """What a box may put into S3 of what the plan's price answers for; boxes share equally.

    Beside the run's results each box has a request a second, half of them for who watches.
    """
    life_s = int((box.cloud_at - plan.planned_at).total_seconds())
    requests = PUTS_OF_RESULTS // len(plan.boxes) + PUTS_PER_SECOND * life_s // 2
    size = int(plan.results_gb * 1_000_000_000) // len(plan.boxes)
    return {"upload_bytes": size, "upload_objects": requests}


def secret_sources(plan: Plan, run_id: str) -> dict[str, str]:
    """Where the box finds each secret; this machine's own lie in the run's part of SSM."""
    own = f"ssm:/gpurun/{run_id}/"
    return {name: own + name if at == "env" else at for name, at in plan.secrets.items()}


def _job(plan: Plan, job: PlannedJob) -> dict[str, Any]:
    return {
        "name": job.name,
        "program": job.program,
        "command": job.command,
        "config": dict(job.config),
        "needs": list(job.needs),
        "inputs": {name: {"job": i.job, "path": str(i.path)} for name, i in job.inputs.items()},
        "pins": next((name for name, _ in _pins_of(plan, job)), None),
        "workdir": f"workdirs/{job.name}.tar.gz" if job.workdir else None,
        "results": [str(path) for path in job.results],
        "retries": job.retries,
        "stall_s": job.stall_s,
        "expected_hours": str(job.expected_hours),
        "expect": {name: wanted.model_dump(mode="json") for name, wanted in job.expect.items()},
    }


def _pins_of(plan: Plan, job: PlannedJob) -> Iterator[tuple[str, dict[str, Any]]]:
    """A job's environment by its name on the box; own requirements are pins of their own."""
    if job.requirements:
        file = f"pins/own-{job.name}.txt"
        own = {"file": file, "sha256": job.requirements_sha256, "gpu": False, "python": None}
        yield f"own-{job.name}", own
    elif job.pins:
        pins = plan.pins[job.pins]
        yield (
            job.pins,
            {
                "file": f"pins/{job.pins}.txt",
                "sha256": pins.sha256,
                "gpu": pins.gpu,
                "python": pins.python,
            },
        )


def _pins(plan: Plan) -> Iterator[tuple[str, bytes]]:
    for name, pins in plan.pins.items():
        yield f"pins/{name}.txt", (PINS_FOLDER / pins.file).read_bytes()
    for job in plan.jobs:
        if job.requirements:
            yield f"pins/own-{job.name}.txt", Path(job.requirements).read_bytes()


def _workdirs(plan: Plan) -> Iterator[tuple[str, bytes]]:
    for job in plan.jobs:
        if job.workdir:
            yield f"workdirs/{job.name}.tar.gz", pack_workdir(Path(job.workdir))


def _agent(plan: Plan) -> Iterator[tuple[str, bytes]]:
    """orchestrator.box under an empty orchestrator, and boto3 with what it needs."""
    yield "agent/orchestrator/__init__.py", b""
    box = Path(__file__).parent / "box"
    for path in sorted(box.glob("*.py")):
        yield f"agent/orchestrator/box/{path.name}", path.read_bytes()
    for package in AGENT_PACKAGES:
        for file in importlib.metadata.distribution(package).files or ():
            name = file.as_posix()
            wanted = plan.secrets and _FOR_SECRETS.fullmatch(name)
            if wanted or not _LEFT_OUT.fullmatch(name):
                yield f"agent/{file.as_posix()}", Path(str(file.locate())).read_bytes()


def _library() -> Iterator[tuple[str, bytes]]:
    """agent_env as source; found, never imported, as the two packages don't know each other."""
    spec = importlib.util.find_spec("agent_env")
    for root in (spec.submodule_search_locations or []) if spec else []:
        for path in sorted(Path(root).rglob("*")):
            if path.is_file() and "__pycache__" not in path.parts:
                yield f"lib/agent_env/{path.relative_to(root).as_posix()}", path.read_bytes()


def _tar_gz(files: dict[str, bytes]) -> bytes:
    packed = io.BytesIO()
    with (
        gzip.GzipFile("", "wb", compresslevel=6, fileobj=packed, mtime=0) as zipped,
        tarfile.open(fileobj=zipped, mode="w", format=tarfile.PAX_FORMAT) as archive,
    ):
        for name in sorted(files):
            entry = tarfile.TarInfo(name)
            entry.size = len(files[name])
            entry.mode = 0o600 if name.startswith("ssh/") else 0o644
            archive.addfile(entry, io.BytesIO(files[name]))
    return packed.getvalue()
