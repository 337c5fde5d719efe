"""A box without a machine: a root folder, a bucket on a moto server, the real agent process."""

from __future__ import annotations

import json
import logging
import os
import signal
import subprocess
import sys
import tarfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

import boto3
from moto.server import ThreadedMotoServer

from orchestrator.box import spec
from orchestrator.box.pieces import pieces_of

RUN, BOX, BUCKET, REGION = "test-261129-120000-abcd", "l4", "gpurun-test", "us-east-1"
PREFIX = f"runs/{RUN}/"
TRAINER = Path(__file__).with_name("trainer.py")
SHIELD = "GPURUN_TEST_RIG"
PACKAGES = str(Path(spec.__file__).parents[2])
T = TypeVar("T")
logging.getLogger("werkzeug").setLevel(logging.ERROR)


def until(look: Callable[[], T], within_s: float = 30) -> T:
    """Wait for a look to be truthy."""
    end = time.monotonic() + within_s
    while not (seen := look()):
        assert time.monotonic() < end, f"not within {within_s} s"
        time.sleep(0.05)
    return seen


@dataclass
class Cloud:
    """An S3 that can be unplugged; what it holds stays."""

    server: ThreadedMotoServer
    port: int

    @classmethod
    def start(cls) -> Cloud:
        server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
        server.start()
        return cls(server, server.get_host_and_port()[1])

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @cached_property
    def s3(self) -> Any:
        return boto3.client("s3", endpoint_url=self.url, region_name=REGION)

    def unplug(self) -> None:
        self.server.stop()

    def plug_in(self) -> None:
        self.server = ThreadedMotoServer(ip_address="127.0.0.1", port=self.port, verbose=False)
        self.server.start()


@dataclass
class Rig:
    """`spec` is the box's JSON; change it before `start`."""

    root: Path
    cloud: Cloud
    spec: dict[str, Any]
    agents: list[subprocess.Popen[bytes]] = field(default_factory=list)
    extra_env: dict[str, str] = field(default_factory=dict)
    before: tuple[str, ...] = ()
    """Words before the agent's own command."""

    @property
    def off(self) -> Path:
        """What the box's harmless power-off command writes."""
        return self.root / "powered-off"

    def job(self, name: str, command: str, **changes: Any) -> None:
        spec: dict[str, Any] = {
            "name": name,
            "program": None,
            "command": command,
            "config": {},
            "needs": [],
            "inputs": {},
            "pins": None,
            "workdir": None,
            "results": ["out"],
            "retries": 1,
        }
        self.spec["jobs"].append(spec | changes)

    def trainer(self, name: str, *, steps: int, pause_s: float = 0.05) -> None:
        """A job that runs the test trainer."""
        command = f"STEPS={steps} PAUSE={pause_s} exec python3 trainer.py"
        self.job(name, command, workdir="workdirs/trainer.tar.gz")

    def start(self, *options: str) -> subprocess.Popen[bytes]:
        for folder in ("boxes", "workdirs"):
            (self.root / folder).mkdir(exist_ok=True)
        (self.root / "boxes" / f"{BOX}.json").write_text(json.dumps(self.spec))
        with tarfile.open(self.root / "workdirs" / "trainer.tar.gz", "w:gz") as packed:
            packed.add(TRAINER, "trainer.py")
        with (self.root / "console.log").open("ab") as log:
            agent = subprocess.Popen(
                [
                    *self.before,
                    *(sys.executable, "-m", "orchestrator.box", "--box", BOX),
                    *("--root", str(self.root), "--end-with", str(self.poweroff_script())),
                    *options,
                ],
                env=self.environment() | {"PYTHONPATH": PACKAGES},
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        self.agents.append(agent)
        return agent

    def shrink_disk(self, kib: int) -> None:
        """Let the agent see its root on a disk of that size, in a mount namespace of its own."""
        copy = self.root.with_name("copy")
        steps = (
            f"cp -a {self.root} {copy} && mount -t tmpfs -o size={kib}k tmpfs {self.root} "
            f'&& cp -a {copy}/. {self.root} && cd {self.root} && exec "$@"'
        )
        self.before = ("unshare", "--map-root-user", "--mount", "sh", "-c", steps, "sh")

    def poweroff_script(self) -> Path:
        script = self.root / "end-box"
        script.write_text(f'#!/bin/sh\nprintf "%s\\n" "$(date +%s)" >>"{self.off}"\n')
        script.chmod(0o755)
        return script

    def environment(self) -> dict[str, str]:
        keep = {key: os.environ[key] for key in ("PATH", "HOME") if key in os.environ}
        return keep | {
            "GPURUN_BOOTED_AT": str(time.time()),
            "AWS_ENDPOINT_URL": self.cloud.url,
            "AWS_ACCESS_KEY_ID": "testing",
            "AWS_SECRET_ACCESS_KEY": "testing",
            "AWS_EC2_METADATA_SERVICE_ENDPOINT": "http://127.0.0.1:9",
            SHIELD: str(self.root),
            **self.extra_env,
        }

    def run(self, within_s: float = 30) -> None:
        """Start the agent and wait until it has powered the box off."""
        agent = self.start()
        try:
            assert agent.wait(within_s) == 0
        except subprocess.TimeoutExpired:
            raise AssertionError((self.root / "console.log").read_text()) from None
        assert self.off.exists()

    def read(self, key: str) -> bytes | None:
        listed = self.cloud.s3.list_objects_v2(Bucket=BUCKET, Prefix=PREFIX + key)
        if PREFIX + key not in [item["Key"] for item in listed.get("Contents", [])]:
            return None
        return bytes(self.cloud.s3.get_object(Bucket=BUCKET, Key=PREFIX + key)["Body"].read())

    def json(self, key: str) -> dict[str, Any]:
        said = json.loads(self.read(key) or b"{}")
        assert isinstance(said, dict)
        return said

    def status(self, job: str) -> dict[str, Any]:
        return self.json(f"jobs/{job}/status.json")

    def manifests(self, job: str) -> list[dict[str, Any]]:
        pages = self.cloud.s3.list_objects_v2(
            Bucket=BUCKET, Prefix=f"{PREFIX}jobs/{job}/manifests/"
        )
        return [self.json(item["Key"][len(PREFIX) :]) for item in pages.get("Contents", [])]

    def blob(self, job: str, entry: dict[str, Any]) -> bytes:
        blobs = (self.read(f"jobs/{job}/blobs/{it.sha256}") for it in pieces_of(entry))
        return b"".join(blob or b"" for blob in blobs)

    def file(self, job: str, name: str) -> bytes:
        return self.blob(job, self.manifests(job)[-1]["files"][name])

    def clean_up(self) -> None:
        """Kill what this rig started, known by its mark in the environment."""
        mark = f"{SHIELD}={self.root}\0".encode()
        for agent in self.agents:
            agent.kill()
            agent.wait()
        for entry in Path("/proc").glob("[0-9]*"):
            try:
                if mark in (entry / "environ").read_bytes() + b"\0":
                    os.kill(int(entry.name), signal.SIGKILL)
            except OSError:
                continue


def box_spec(**changes: Any) -> dict[str, Any]:
    """A box that has a minute to live and reports often."""
    now = time.time()
    spec = {
        "format": 1,
        "run": RUN,
        "box": BOX,
        "bucket": BUCKET,
        "region": REGION,
        "prefix": PREFIX,
        "planned_at": now,
        "drain_at": now + 60,
        "poweroff_at": now + 90,
        "cloud_at": now + 120,
        "loss_bound_s": 1,
        "tick_s": 0.2,
        "price_usd_per_hour": "3.00424",
        "pins": {},
        "jobs": [],
    }
    return spec | changes
