"""Canaries in all three places where secrets are kept: a job tells them everywhere it can, and
everything that the run left is searched for them."""

from __future__ import annotations

import base64
import hashlib
import json
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import quote

import boto3
import pytest

from .conftest import SECONDS, Desk, run_id_in

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]

HF, WANDB, NPM = "hf_Canary0123456789abc", "wandb/canary+9876543210==", "npm canary 5544332211"
CANARIES = (HF, WANDB, NPM)
RUNBOOK = """
name: canary
cap_usd: 2
regions: [us-east-1]
loss_bound: 4s
pins: none
secrets:
  HF_TOKEN: env
  WANDB_API_KEY: ssm:/team/wandb
  NPM_TOKEN: secretsmanager:team/npm
boxes:
  l4: {instance: g6.4xlarge, hours: 0.05, drain: 20s, cloud_margin: 60s}
jobs:
  tells:
    box: l4
    command: bash tell.sh
    workdir: project
    results: [out]
    retries: 0
    hours: 0.02
"""
TELL = r"""
all="$HF_TOKEN$WANDB_API_KEY$NPM_TOKEN"
printf %s "$all" | sha256sum >out/hash
env; echo "$all"; echo "$all" >&2
printf 'x:%s' "$HF_TOKEN" | base64 -w0; echo
env >out/env.txt
printf '{"step": 1, "max_steps": 1, "kind": "final", "note": "%s", "%s": 1}\n' \
  "$WANDB_API_KEY" "$NPM_TOKEN" >>"$GPURUN_METRICS"
touch "out/$HF_TOKEN" ../told
until [ -e ../go ]; do sleep 0.1; done
echo "bad token $NPM_TOKEN and $HF_TOKEN" >&2
exit 3
"""


READ_ANOTHER = (
    "PYTHONPATH=/opt/gpurun/agent python3 -c 'import boto3;"
    ' boto3.client("ssm", "us-east-1").get_parameter(Name="/team/other")\''
)


def forms() -> Iterator[bytes]:
    for value in CANARIES:
        yield value.encode()
        yield quote(value, safe="").encode()
        for before in range(3):
            yield base64.b64encode(b"\0" * before + value.encode())[4:-4]


def leaks(name: str, data: bytes) -> list[str]:
    return [f"{name}: {form!r}" for form in forms() if form in data or form in name.encode()]


def said(desk: Desk, *args: str | Path, code: int = 0) -> str:
    """All that the command says, on either stream."""
    argv = [sys.executable, "-m", "orchestrator.cli", *map(str, args)]
    done = subprocess.run(
        argv, cwd=desk.folder, env=desk.env, capture_output=True, text=True, timeout=SECONDS
    )
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout + done.stderr


class Account:
    """The local cloud as its owner sees it."""

    def __init__(self, home: Path) -> None:
        state = json.loads((home / "cloud" / "state.json").read_text())
        self._at = {"endpoint_url": state["url"], "region_name": state["region"]}
        self._keys = {"aws_access_key_id": "x", "aws_secret_access_key": "x"}

    def client(self, service: str) -> Any:
        make: Any = boto3.client
        return make(service, **self._at, **self._keys)

    def keep(self) -> None:
        self.client("ssm").put_parameter(
            Name="/team/wandb", Value=WANDB, Type="SecureString", Overwrite=True
        )
        self.client("ssm").put_parameter(Name="/team/other", Value="x", Type="String")
        self.client("secretsmanager").create_secret(Name="team/npm", SecretString=NPM)

    def objects(self) -> Iterator[tuple[str, bytes]]:
        """Every version of every object of every bucket."""
        s3 = self.client("s3")
        for bucket in s3.list_buckets()["Buckets"]:
            pages = s3.get_paginator("list_object_versions").paginate(Bucket=bucket["Name"])
            for version in (item for page in pages for item in page.get("Versions", [])):
                where = {"Bucket": bucket["Name"], "Key": version["Key"]}
                body = s3.get_object(**where, VersionId=version["VersionId"])["Body"].read()
                yield version["Key"], body

    def described(self, instance_id: str) -> Iterator[tuple[str, bytes]]:
        """What the account says of what there is, user data and tags of everything included."""
        ec2 = self.client("ec2")
        userdata = ec2.describe_instance_attribute(InstanceId=instance_id, Attribute="userData")
        yield "user data", base64.b64decode(userdata["UserData"]["Value"])
        yield "console", ec2.get_console_output(InstanceId=instance_id)["Output"].encode()
        kinds = ("instances", "volumes", "network_interfaces", "vpcs", "subnets", "tags")
        for kind in (*kinds, "security_groups", "key_pairs", "route_tables"):
            yield kind, json.dumps(getattr(ec2, f"describe_{kind}")(), default=str).encode()
        iam, ssm, scheduler = self.client("iam"), self.client("ssm"), self.client("scheduler")
        for role in iam.list_roles()["Roles"]:
            for name in iam.list_role_policies(RoleName=role["RoleName"])["PolicyNames"]:
                found = iam.get_role_policy(RoleName=role["RoleName"], PolicyName=name)
                yield name, json.dumps([role, found], default=str).encode()
        for found in ssm.describe_parameters()["Parameters"]:
            tags = ssm.list_tags_for_resource(ResourceType="Parameter", ResourceId=found["Name"])
            yield found["Name"], json.dumps([found, tags], default=str).encode()
        for found in scheduler.list_schedules()["Schedules"]:
            schedule = scheduler.get_schedule(Name=found["Name"])
            yield found["Name"], json.dumps(schedule, default=str).encode()


def processes(part: str) -> dict[int, bytes]:
    """`cmdline` or `environ` of everything that runs on this machine and lets itself be read."""
    found = {}
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            found[int(entry.name)] = (entry / part).read_bytes()
        except OSError:
            continue
    return found


def files(folder: Path) -> Iterator[tuple[str, bytes]]:
    for path in folder.rglob("*"):
        if path.is_file() and not path.is_symlink():
            yield str(path.relative_to(folder)), path.read_bytes()


def test_no_secret_is_found_in_anything_that_a_run_leaves(desk: Desk) -> None:
    home = Path(desk.env["GPURUN_HOME"])
    desk = replace(desk, env=desk.env | {"HF_TOKEN": HF})
    account = Account(home)
    account.keep()
    runbook = desk.write_runbook(RUNBOOK)
    (desk.folder / "project" / "tell.sh").write_text(TELL)
    spoken = [said(desk, "plan", runbook), said(desk, "up", runbook, "--detach")]
    run_id = run_id_in(spoken[-1])

    told = "/opt/gpurun/jobs/tells/told"
    wait = f"until [ -e {told} ]; do sleep 0.1; done"
    spoken.append(said(desk, "ssh", run_id, "l4", "--", wait))
    (box,) = desk.json("status", run_id)["boxes"]
    found = [
        leak for name, data in account.described(box["instance_id"]) for leak in leaks(name, data)
    ]
    found += [leak for pid, data in processes("cmdline").items() for leak in leaks(str(pid), data)]
    with_it = [env for env in processes("environ").values() if NPM.encode() in env]
    assert with_it
    assert all(b"GPURUN_JOB=tells" in env for env in with_it)
    lent = f"/gpurun/{run_id}/HF_TOKEN"
    names = [p["Name"] for p in account.client("ssm").describe_parameters()["Parameters"]]
    assert {lent, "/team/wandb"} <= set(names)

    denied = said(desk, "ssh", run_id, "l4", "--", READ_ANOTHER, code=1)
    assert "AccessDeniedException" in denied
    spoken.append(said(desk, "ssh", run_id, "l4", "--", "touch /opt/gpurun/jobs/tells/go"))
    spoken.append(said(desk, "resume", run_id, code=11))
    spoken += [said(desk, word, run_id) for word in ("status", "logs", "report", "bill")]
    spoken.append(said(desk, "logs", run_id, "tells"))
    spoken.append(said(desk, "sweep"))

    found += [leak for name, data in account.objects() for leak in leaks(name, data)]
    found += [leak for name, data in files(desk.folder) for leak in leaks(name, data)]
    found += [leak for name, data in files(home) for leak in leaks(name, data)]
    found += [leak for text in spoken for leak in leaks("said", text.encode())]
    assert found == []

    names = [p["Name"] for p in account.client("ssm").describe_parameters()["Parameters"]]
    assert lent not in names
    assert "/team/wandb" in names
    results = desk.folder / "results" / run_id / "tells"
    right = hashlib.sha256("".join(CANARIES).encode()).hexdigest()
    assert (results / "out" / "hash").read_text().split()[0] == right
    log = (results / "log.txt").read_text()
    assert "***HF_TOKEN******WANDB_API_KEY******NPM_TOKEN***" in log
    assert not (results / "out" / "env.txt").exists()
    (job,) = desk.json("status", run_id)["jobs"]
    assert "bad token ***NPM_TOKEN*** and ***HF_TOKEN***" in job["reason"]
    assert "out/env.txt (holds " in job["reason"]


def test_a_variable_that_isnt_set_ends_the_run_before_anything_is_made(desk: Desk) -> None:
    account = Account(Path(desk.env["GPURUN_HOME"]))
    before = dict(account.objects())
    text = said(desk, "up", desk.write_runbook(RUNBOOK), code=25)
    assert "secrets.HF_TOKEN: the variable isn't set here" in text
    assert dict(account.objects()) == before
