"""A run's two roles, action by action: what a box really calls, and what the cloud's switch does.

moto enforces policies too, but looks at no Condition: what a listing is limited to, and which tag
an instance must have, is judged by the local cloud's reading of IAM alone.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import boto3
import pytest
from boto3.session import Session as Boto
from botocore.exceptions import ClientError
from moto.core import set_initial_no_auth_action_count

from orchestrator.aws import role, role_policies
from orchestrator.aws.bucket import ensure_bucket
from orchestrator.aws.session import Session
from orchestrator.aws.tags import RunTags
from orchestrator.box import secrets, store, work
from orchestrator.box.connection import StoreDown
from orchestrator.box.parts import Changed
from orchestrator.box.rounds import Round
from orchestrator.box.store import PART_BYTES, Store
from orchestrator.box.sync import Syncer
from orchestrator.localcloud import policy
from orchestrator.localcloud.strict import strict_aws

from .calls import ACCOUNT
from .lives import REGION, Clock
from .policy_test import operations
from .recorder import Recorder, actions_of
from .table import TABLE

pytestmark = pytest.mark.timeout(180)

RUN, OTHER = "demo-261129-190000-ab2c", "demo-261129-190000-zz77"
BUCKET = f"gpurun-{ACCOUNT}-{REGION}"
SOURCES = {"HF_TOKEN": f"ssm:/gpurun/{RUN}/HF_TOKEN", "NPM": "secretsmanager:team/npm"}


@dataclass
class Account:
    session: Session
    tags: RunTags

    @property
    def box(self) -> list[dict[str, Any]]:
        return [role_policies.box_policy(self.session, RUN, BUCKET, SOURCES.values())]

    @property
    def kill(self) -> list[dict[str, Any]]:
        return [role_policies.kill_policy(self.session, RUN)]


@pytest.fixture
def account() -> Iterator[Account]:
    clock = Clock()
    with strict_aws():
        session = Session("aws", REGION, ACCOUNT)
        ensure_bucket(session)
        ssm, manager = session.client("ssm"), session.client("secretsmanager")
        ssm.put_parameter(Name=f"/gpurun/{RUN}/HF_TOKEN", Value="x" * 9, Type="SecureString")
        ssm.put_parameter(Name="/team/other", Value="x" * 9, Type="SecureString")
        manager.create_secret(Name="team/npm", SecretString="x" * 9)
        yield Account(session, RunTags(RUN, "ann", clock.now(), BUCKET))


@pytest.fixture
def recorder(account: Account, monkeypatch: pytest.MonkeyPatch) -> Recorder:
    """Hears what the box's own modules ask."""
    found = Recorder()

    class Heard(Boto):
        def __init__(self, *args: Any, **kwargs: Any) -> None:
            super().__init__(*args, **kwargs)
            found.listen(self)

    monkeypatch.setattr("boto3.session.Session", Heard)
    return found


def lead_a_box(folder: Path) -> None:
    """All that an agent asks of S3, SSM and Secrets Manager, by its own modules."""
    kept = Store(BUCKET, REGION, f"runs/{RUN}/")
    secrets.read_secrets(SOURCES, REGION)
    (folder / "work" / "out").mkdir(parents=True)
    (folder / "log.txt").write_text("said\n")
    (folder / "work" / "out" / "table").write_text("1\n")
    with (folder / "work" / "out" / "weights").open("wb") as weights:
        weights.truncate(PART_BYTES + 1)
    final = Round(
        attempt=1,
        step=1,
        final=True,
        outcome="done",
        status={},
        results=("out",),
        now=1.0,
        quiet_s=0.0,
        time_is_up=lambda: False,
    )
    for _ in range(2):
        assert Syncer(kept, RUN, "train", folder).sync(final).whole
    work.told_to_stop(kept, "l4")
    work.look_back(kept, ["train"])
    work.poll(kept, ["train"])
    work.report(kept, "l4", {"at": 1}, {"train": {"job": "train"}}, b"booted")
    kept.put_over("jobs/train/COMPLETE", b"{}", '"none"')
    with (folder / "changes").open("wb") as changes:
        changes.truncate(PART_BYTES + 1)
    with pytest.raises((Changed, StoreDown)):
        kept.upload("jobs/train/blobs/0", folder / "changes", "0" * 64, PART_BYTES + 1)
    list(kept.chunks("boxes/l4/heartbeat.json"))


def test_every_call_of_a_box_is_allowed_by_its_role_and_no_action_is_left_over(
    account: Account, recorder: Recorder, tmp_path: Path
) -> None:
    lead_a_box(tmp_path)
    assert recorder.unknown == set()
    assert recorder.refused(account.box) == []
    assert actions_of(account.box) - recorder.actions == set()


def test_what_a_box_calls_is_in_the_table() -> None:
    known, folder = operations(), Path(store.__file__).parent
    for name in ("store.py", "secrets.py"):
        attributes = {
            node.attr
            for node in ast.walk(ast.parse((folder / name).read_text()))
            if isinstance(node, ast.Attribute)
        }
        calls = attributes & known.keys()
        assert calls
        assert [call for call in calls if not known[call] & TABLE.keys()] == []


@pytest.mark.parametrize(
    "action, resource, context",
    [
        ("s3:DeleteObject", f"{BUCKET}/runs/{RUN}/run.json", {}),
        ("s3:DeleteObjectVersion", f"{BUCKET}/runs/{RUN}/run.json", {}),
        ("s3:GetObject", f"{BUCKET}/runs/{OTHER}/run.json", {}),
        ("s3:PutObject", f"{BUCKET}/runs/{OTHER}/run.json", {}),
        ("s3:GetObject", f"{BUCKET}/control/{RUN}/ssh.json", {}),
        ("s3:ListBucket", BUCKET, {"s3:prefix": f"runs/{OTHER}/"}),
        ("s3:ListBucket", BUCKET, {"s3:prefix": "runs/"}),
        ("s3:ListBucket", BUCKET, {}),
        ("s3:PutBucketPolicy", BUCKET, {}),
    ],
)
def test_a_box_reaches_nothing_but_its_own_prefix_and_deletes_nothing(
    account: Account, action: str, resource: str, context: dict[str, str]
) -> None:
    assert not policy.allows(account.box, action, f"arn:aws:s3:::{resource}", context)


def test_the_clouds_switch_ends_this_runs_instances_and_no_others(account: Account) -> None:
    instance = f"arn:aws:ec2:{REGION}:{ACCOUNT}:instance/i-1"

    def may(action: str, **tags: str) -> bool:
        context = {f"aws:ResourceTag/gpurun:{key}": value for key, value in tags.items()}
        return policy.allows(account.kill, action, instance, context)

    assert may("ec2:TerminateInstances", run=RUN)
    assert not may("ec2:TerminateInstances", run=OTHER)
    assert not may("ec2:TerminateInstances", box="l4")
    assert not may("ec2:TerminateInstances")
    assert not may("ec2:StopInstances", run=RUN)
    queue = f"arn:aws:sqs:{REGION}:{ACCOUNT}:gpurun-{RUN}-dead"
    assert policy.allows(account.kill, "sqs:SendMessage", queue, {})
    assert not policy.allows(account.kill, "sqs:ReceiveMessage", queue, {})
    assert not policy.allows(account.kill, "sqs:SendMessage", f"{queue}2", {})


def test_the_switch_may_start_the_one_automation_and_lend_its_own_role_to_it(
    account: Account,
) -> None:
    def may(action: str, resource: str, **context: str) -> bool:
        return policy.allows(account.kill, action, resource, context)

    starts, place = "ssm:StartAutomationExecution", f"arn:aws:ssm:{REGION}"
    runbook = "AWS-TerminateEC2Instance"
    assert may(starts, f"{place}::automation-definition/{runbook}:$DEFAULT")
    assert may(starts, f"{place}::document/{runbook}")
    assert may(starts, f"{place}:{ACCOUNT}:automation-execution/1")
    for other in ("AWS-StopEC2Instance", f"{runbook}2", "AWS-TerminateEC2"):
        assert not may(starts, f"{place}::automation-definition/{other}:$DEFAULT")
        assert not may(starts, f"{place}::document/{other}")
    roles, to = f"arn:aws:iam::{ACCOUNT}:role/gpurun", "iam:PassedToService"
    own = f"{roles}/gpurun-{RUN}-kill"
    assert may("iam:PassRole", own, **{to: "ssm.amazonaws.com"})
    assert not may("iam:PassRole", own, **{to: "ec2.amazonaws.com"})
    assert not may("iam:PassRole", own)
    for role_of in (f"gpurun-{RUN}-box", f"gpurun-{OTHER}-kill"):
        assert not may("iam:PassRole", f"{roles}/{role_of}", **{to: "ssm.amazonaws.com"})


class AsBox:
    """Clients with the credentials of the run's box role, as moto gives them out."""

    def __init__(self, account: Account) -> None:
        role.ensure_box_role(account.session, account.tags, BUCKET, SOURCES.values())
        arn = f"arn:aws:iam::{ACCOUNT}:role/gpurun/gpurun-{RUN}-box"
        given = account.session.client("sts").assume_role(RoleArn=arn, RoleSessionName="box")
        self._keys = {
            "aws_access_key_id": given["Credentials"]["AccessKeyId"],
            "aws_secret_access_key": given["Credentials"]["SecretAccessKey"],
            "aws_session_token": given["Credentials"]["SessionToken"],
        }

    def __call__(self, service: str) -> Any:
        make: Any = boto3.client
        return make(service, REGION, **self._keys)


def refuse(call: Any, **what: Any) -> None:
    with pytest.raises(ClientError, match=r"AccessDenied|UnauthorizedOperation"):
        call(**what)


def test_moto_too_lets_a_box_have_its_own_prefix_only_and_delete_nothing(account: Account) -> None:
    client = AsBox(account)
    s3, own = client("s3"), f"runs/{RUN}/x"

    @set_initial_no_auth_action_count(0)
    def try_it() -> None:
        s3.put_object(Bucket=BUCKET, Key=own, Body=b"x")
        assert s3.get_object(Bucket=BUCKET, Key=own)["Body"].read() == b"x"
        for key in (f"runs/{OTHER}/x", f"control/{RUN}/ssh.json"):
            refuse(s3.put_object, Bucket=BUCKET, Key=key, Body=b"x")
            refuse(s3.get_object, Bucket=BUCKET, Key=key)
        refuse(s3.delete_object, Bucket=BUCKET, Key=own)
        refuse(client("ec2").describe_instances)

    try_it()
