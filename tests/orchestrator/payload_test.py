"""The payload: the same bytes each time, small, and enough for a box with nothing but Python."""

from __future__ import annotations

import ast
import hashlib
import json
import subprocess
import sys
import tarfile
from datetime import UTC, datetime
from pathlib import Path

import pytest
from moto.server import ThreadedMotoServer

from orchestrator.box.spec import read_spec
from orchestrator.catalog import load_catalog
from orchestrator.payload import Payload, build_payload
from orchestrator.plan import Plan, make_plan
from orchestrator.quote import PUTS_OF_RESULTS, PUTS_PER_SECOND
from orchestrator.runbook import load_runbook

NOW = datetime(2026, 11, 29, 12, 0, tzinfo=UTC)
RUNBOOK = """
name: pack
cap_usd: 40
regions: [us-east-1]
loss_bound: 2m
boxes:
  big: {instance: g6e.4xlarge, hours: 2}
  small: {instance: g6.4xlarge, hours: 2}
jobs:
  train:
    box: big
    command: python3 train.py
    workdir: project
    requirements: locked.txt
    results: [out, plots/final.png]
    retries: 3
    expect: {loss: {max: 0.5}}
  sum-up:
    box: small
    command: cat "$GPURUN_INPUTS/model"
    inputs: {model: {job: train, path: out/model}}
"""


@pytest.fixture(scope="module")
def desk(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a runbook and what it names."""
    desk = tmp_path_factory.mktemp("desk")
    project = desk / "project"
    project.mkdir()
    (project / "train.py").write_text("print(1)\n")
    (project / ".gitignore").write_text("secret\n")
    (project / "secret").write_text("stays at home")
    (desk / "locked.txt").write_text("six==1.17.0 --hash=sha256:" + "0" * 64 + "\n")
    (desk / "pack.yaml").write_text(RUNBOOK)
    return desk


@pytest.fixture(scope="module")
def plan(desk: Path) -> Plan:
    runbook = load_runbook(desk / "pack.yaml")
    return make_plan(
        runbook, now=NOW, catalog=load_catalog(), cloud="aws", allow_stale_prices=True
    )


@pytest.fixture(scope="module")
def payload(plan: Plan, tmp_path_factory: pytest.TempPathFactory) -> Payload:
    return build(plan, tmp_path_factory.mktemp("payload"))


@pytest.fixture(scope="module")
def root(payload: Payload, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The payload as a box unpacks it."""
    root = tmp_path_factory.mktemp("box")
    with tarfile.open(payload.path) as packed:
        packed.extractall(root, filter="data")
    return root


def build(plan: Plan, folder: Path) -> Payload:
    return build_payload(plan, "pack-1", "bucket", host_private="KEY\n", folder=folder)


def test_the_same_plan_gives_the_same_bytes_and_their_hash_is_the_name(
    plan: Plan, payload: Payload, tmp_path: Path
) -> None:
    one, two = payload, build(plan, tmp_path)
    assert one.path.read_bytes() == two.path.read_bytes()
    assert one.sha256 == two.sha256 == hashlib.sha256(one.path.read_bytes()).hexdigest()
    assert one.path.stat().st_size < 3_000_000


def test_it_holds_what_a_box_needs_and_nothing_that_was_to_stay_at_home(
    payload: Payload, root: Path
) -> None:
    with tarfile.open(payload.path) as packed:
        modes = {entry.name: entry.mode for entry in packed.getmembers()}
    wanted = {"boxes/big.json", "boxes/small.json", "pins/own-train.txt", "ssh/host_ed25519"}
    assert wanted | {"workdirs/train.tar.gz", "lib/agent_env/py.typed"} <= modes.keys()
    assert modes["ssh/host_ed25519"] == 0o600
    strangers = ("orchestrator/aws", "orchestrator/runner", "dist-info", "pyc", "data/ec2")
    assert not [name for name in modes if any(word in name for word in strangers)]
    with tarfile.open(root / "workdirs" / "train.tar.gz") as workdir:
        assert workdir.getnames() == [".gitignore", "train.py"]


def test_a_box_reads_its_spec_as_the_plan_meant_it(desk: Path, root: Path) -> None:
    big = read_spec(root / "boxes" / "big.json")
    assert (big.run, big.bucket, big.prefix) == ("pack-1", "bucket", "runs/pack-1/")
    assert big.poweroff_at == NOW.timestamp() + 2 * 3600
    assert big.planned_at == NOW.timestamp() < big.drain_at < big.poweroff_at
    assert (big.loss_bound_s, str(big.price_usd_per_hour)) == (120, "3.00424")
    (train,) = big.jobs
    assert (train.results, train.retries) == (("out", "plots/final.png"), 3)
    own = big.pins[train.pins or ""]
    assert (root / own.file).read_bytes() == (desk / "locked.txt").read_bytes()
    assert hashlib.sha256((root / own.file).read_bytes()).hexdigest() == own.sha256
    (summing,) = read_spec(root / "boxes" / "small.json").jobs
    assert (summing.waits_for, summing.pins, summing.workdir) == (("train",), None, None)
    said = json.loads((root / "boxes" / "big.json").read_text())
    assert said["cloud_at"] > said["poweroff_at"]


def test_boxes_may_together_upload_no_more_than_what_the_price_answers_for(
    desk: Path, root: Path
) -> None:
    boxes = [read_spec(root / "boxes" / f"{name}.json") for name in ("big", "small")]
    assert sum(box.upload_bytes or 0 for box in boxes) == 5_000_000_000
    lives_s = sum(box.cloud_at - box.planned_at for box in boxes)
    requests = sum(box.upload_objects or 0 for box in boxes)
    assert PUTS_OF_RESULTS <= requests <= PUTS_OF_RESULTS + lives_s * PUTS_PER_SECOND / 2


def test_the_agents_boto3_works_on_a_python_that_has_none(root: Path) -> None:
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    script = f"""
import sys
sys.path.insert(0, {str(root / "agent")!r})
import boto3, orchestrator.box.agent
from orchestrator.box.store import Store
assert boto3.__file__.startswith({str(root)!r}), boto3.__file__
boto3.client("s3").create_bucket(Bucket="bucket")
store = Store("bucket", "us-east-1", "runs/r/")
assert store.put_new("x", b"1") and not store.put_new("x", b"2")
print(store.keys(""), store.get("x"), store.get("y"))
"""
    try:
        done = subprocess.run(
            [sys.executable, "-I", "-S", "-c", script],
            env={
                "AWS_ENDPOINT_URL": f"http://127.0.0.1:{server.get_host_and_port()[1]}",
                **{f"AWS_{name}": "x" for name in ("ACCESS_KEY_ID", "SECRET_ACCESS_KEY")},
                "AWS_DEFAULT_REGION": "us-east-1",
            },
            capture_output=True,
            text=True,
            check=False,
        )
    finally:
        server.stop()
    assert (done.stdout, done.stderr) == ("[('x', 1)] b'1' None\n", "")


def test_a_box_that_reads_secrets_has_what_it_reads_them_with(
    plan: Plan, payload: Payload, tmp_path: Path
) -> None:
    wanting = plan.model_copy(update={"secrets": {"HF_TOKEN": "env", "WANDB": "ssm:/team/wandb"}})
    packed = build(wanting, tmp_path)
    assert packed.path.stat().st_size < payload.path.stat().st_size + 250_000
    with tarfile.open(packed.path) as archive:
        archive.extractall(tmp_path / "root", filter="data")
    script = (
        f"import sys; sys.path.insert(0, {str(tmp_path / 'root' / 'agent')!r}); import boto3\n"
        "for name in ('ssm', 'secretsmanager'): print(boto3.client(name, 'us-east-1')._endpoint)"
    )
    done = subprocess.run([sys.executable, "-I", "-S", "-c", script], capture_output=True)
    assert b"ssm(https://ssm.us-east-1" in done.stdout, done.stderr.decode()
    assert b"secretsmanager(https://secretsmanager.us-east-1" in done.stdout
    big = read_spec(tmp_path / "root" / "boxes" / "big.json")
    assert big.secrets == {"HF_TOKEN": "ssm:/gpurun/pack-1/HF_TOKEN", "WANDB": "ssm:/team/wandb"}


def test_what_runs_on_a_box_needs_nothing_newer_than_python_3_10(root: Path) -> None:
    newer = {"tomllib", "StrEnum", "UTC", "assert_never", "Self", "TaskGroup", "ExceptionGroup"}
    for path in (root / "agent" / "orchestrator").rglob("*.py"):
        tree = ast.parse(path.read_text(), feature_version=(3, 10))
        words = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
        words |= {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
        assert not words & newer, path
