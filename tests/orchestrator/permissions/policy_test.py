"""The printed policy, action by action: all that the controller calls, and nothing it doesn't.

Judged by the local cloud's reading of IAM; docs/permissions.md says what only an account shows.
"""

from __future__ import annotations

import ast
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import boto3
import pytest
from botocore import xform_name
from botocore.session import get_session

from orchestrator import aws
from orchestrator.aws import policy as policies
from orchestrator.aws.policy import MOST_CHARACTERS, reaper_policy, runner_policy, size_of
from orchestrator.aws.scope import Scope
from orchestrator.aws.session import Session
from orchestrator.aws.waits import Patience
from orchestrator.localcloud import policy
from orchestrator.localcloud.strict import StrictRules, strict_aws
from orchestrator.permissions import scope_of

from .calls import ACCOUNT, Ask
from .lives import REGION, Clock, Lives
from .recorder import Recorder, actions_of
from .table import ADMINISTRATORS, TABLE

# The first test leads all lives.
pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

SCOPE = Scope(
    ACCOUNT, (REGION,), ("g6.*", "g6e.*"), ("ssm:/team/wandb", "secretsmanager:team/npm")
)
UNSEEN = {
    "ec2:DescribeNatGateways": "only where something of a person's holds a network",
    "s3:AbortMultipartUpload": "an upload in parts that failed takes its parts back",
    "iam:ListAttachedRolePolicies": "only where something of a person's holds a role",
    "iam:ListInstanceProfilesForRole": "only where something of a person's holds a role",
    "iam:ListRolePolicies": "only where something of a person's holds a role",
    "sqs:ReceiveMessage": "only where the cloud's own switch has failed",
}
"""What the policy allows that no recorded life needs, and when it is needed."""


@pytest.fixture(scope="module")
def lived(tmp_path_factory: pytest.TempPathFactory) -> Recorder:
    """All lives, led once."""
    clock, recorder, boto = Clock(), Recorder(), boto3.Session()
    recorder.listen(boto)
    with pytest.MonkeyPatch.context() as patch, strict_aws(StrictRules(now=clock.now)) as rules:
        patch.setenv("HF_TOKEN", "hf_Canary0123456789")
        patience = Patience(sleep=clock.sleep, clock=clock.monotonic)
        session = Session("aws", REGION, ACCOUNT, patience=patience, boto=boto)
        desk = tmp_path_factory.mktemp("desk")
        Lives(session, rules, clock, recorder, desk).lead_all()
    return recorder


def test_every_call_of_whole_lives_is_allowed_by_the_printed_policy(lived: Recorder) -> None:
    assert lived.unknown == set()
    assert len({name for name, _ in lived.asks}) > 60
    assert lived.refused(runner_policy(SCOPE)) == []


def test_no_action_is_allowed_that_no_life_needs(lived: Recorder) -> None:
    allowed = actions_of(runner_policy(SCOPE))
    assert allowed - lived.actions == UNSEEN.keys()


def test_a_statement_taken_out_is_missed(lived: Recorder) -> None:
    for document in (documents := runner_policy(SCOPE)):
        for statement in document["Statement"]:
            others = [
                {**one, "Statement": [s for s in one["Statement"] if s is not statement]}
                for one in documents
            ]
            assert lived.refused(others), statement["Sid"]


@pytest.mark.parametrize(
    "action, resource, context",
    [
        ("ec2:TerminateInstances", "ec2:us-east-1:{}:instance/i-1", {}),
        ("ec2:DeleteVpc", "ec2:us-east-1:{}:vpc/vpc-1", {"aws:ResourceTag/team": "x"}),
        ("ec2:CreateTags", "ec2:us-east-1:{}:instance/i-1", {"aws:RequestTag/gpurun:run": "r"}),
        (
            "ec2:RunInstances",
            "ec2:us-east-1:{}:instance/*",
            {"ec2:InstanceType": "g6.4xlarge", "aws:RequestedRegion": REGION},
        ),
        (
            "ec2:RunInstances",
            "ec2:us-east-1:{}:instance/*",
            {
                "ec2:InstanceType": "p5.48xlarge",
                "aws:RequestedRegion": REGION,
                "aws:RequestTag/gpurun:run": "r",
            },
        ),
        (
            "ec2:RunInstances",
            "ec2:eu-west-1:{}:instance/*",
            {
                "ec2:InstanceType": "g6.4xlarge",
                "aws:RequestedRegion": "eu-west-1",
                "aws:RequestTag/gpurun:run": "r",
            },
        ),
        ("iam:CreateRole", "iam::{}:role/admin", {}),
        ("iam:PutRolePolicy", "iam::{}:role/gpurun-setup/gpurun-reaper-us-east-1", {}),
        ("iam:DeleteRole", "iam::{}:role/gpurun-setup/gpurun-reaper-us-east-1-call", {}),
        ("iam:PassRole", "iam::{}:role/admin", {"iam:PassedToService": "ec2.amazonaws.com"}),
        (
            "iam:PassRole",
            "iam::{}:role/gpurun/gpurun-r-box",
            {"iam:PassedToService": "lambda.amazonaws.com"},
        ),
        ("scheduler:DeleteSchedule", "scheduler:us-east-1:{}:schedule/default/payroll", {}),
        ("sqs:DeleteQueue", "sqs:us-east-1:{}:orders", {}),
        ("ssm:GetParameter", "ssm:us-east-1:{}:parameter/gpurun/r/HF_TOKEN", {}),
        ("ssm:GetParameter", "ssm:us-east-1:{}:parameter/team/other", {}),
        ("ssm:DeleteParameter", "ssm:us-east-1:{}:parameter/team/wandb", {}),
        (
            "secretsmanager:GetSecretValue",
            "secretsmanager:us-east-1:{}:secret:team/npm-a1B2c3",
            {},
        ),
    ],
)
def test_what_isnt_gpuruns_stays_out_of_reach(
    action: str, resource: str, context: dict[str, str]
) -> None:
    arn = f"arn:aws:{resource.format(ACCOUNT)}"
    assert not policy.allows(runner_policy(SCOPE), action, arn, context)


@pytest.mark.parametrize("action", ["s3:DeleteObject", "s3:DeleteBucket", "s3:GetObject"])
def test_results_cant_be_deleted_and_other_buckets_not_be_read(action: str) -> None:
    bucket = "gpurun-123456789012-us-east-1" if "Delete" in action else "payroll"
    arn = f"arn:aws:s3:::{bucket}" + ("/x" if "Object" in action else "")
    assert not policy.allows(runner_policy(SCOPE), action, arn, {})


def test_a_reaper_ends_what_is_over_and_makes_nothing(lived: Recorder) -> None:
    verbs = {action.partition(":")[2] for action in actions_of(reaper_policy(SCOPE))}
    makes = ("Create", "Run", "Put", "Import", "Authorize", "Attach", "Add", "Pass", "Tag")
    assert [verb for verb in verbs if verb.startswith(makes)] == []
    ends = [(name, ask) for name, ask in lived.asks if name.startswith(("Delete", "Terminate"))]
    assert Recorder(asks=ends).refused(reaper_policy(SCOPE)) == []


@pytest.mark.parametrize("scope", [SCOPE, scope_of(ACCOUNT)])
def test_each_document_is_one_that_iam_takes(scope: Scope) -> None:
    for documents in (runner_policy(scope), reaper_policy(scope)):
        assert all(size_of(document) <= MOST_CHARACTERS for document in documents)
        sids = [statement["Sid"] for document in documents for statement in document["Statement"]]
        assert len(set(sids)) == len(sids)
        assert all(sid.isalnum() and sid.isascii() for sid in sids)
    assert len(runner_policy(scope)) == 2


def test_a_runbook_narrows_it_to_its_own_types_regions_and_secrets(tmp_path: Path) -> None:
    runbook = tmp_path / "own.yaml"
    runbook.write_text(
        "name: own\ncap_usd: 9\nregions: [us-west-2]\nsecrets: {HF_TOKEN: 'ssm:/team/hf'}\n"
        "boxes: {a: {instance: g6.xlarge, hours: 1}}\njobs: {b: {box: a, command: 'true'}}\n"
    )
    said = json.dumps(runner_policy(scope_of(ACCOUNT, runbook)))
    assert '"ec2:InstanceType": ["g6.xlarge"]' in said
    assert '"aws:RequestedRegion": ["us-west-2"]' in said
    assert f"arn:aws:ssm:*:{ACCOUNT}:parameter/team/hf" in said
    assert "g6e" not in said


def test_every_operation_that_the_source_names_is_in_the_table() -> None:
    known, seen, missing = operations(), set[str](), set[str]()
    for path in Path(aws.__path__[0]).glob("*.py"):
        calls = set(_names(path)) & known.keys()
        rows = TABLE.keys() | (ADMINISTRATORS if path.name == "reaper_setup.py" else set())
        seen |= calls
        missing |= {f"{path.name}: {name}" for name in calls if not known[name] & rows}
    assert len(seen) > 60
    assert missing == set(), "a call needs a row in table.py, and maybe a word in the policy"


def operations() -> dict[str, set[tuple[str, str]]]:
    """Method names of boto3's clients, with the operations that they may be."""
    found: dict[str, set[tuple[str, str]]] = {}
    for service in sorted({service for service, _ in (*TABLE, *ADMINISTRATORS)}):
        for name in get_session().get_service_model(service).operation_names:
            found.setdefault(xform_name(name), set()).add((service, name))
    return found


def _names(path: Path) -> Iterator[str]:
    """Attributes and texts: a paginator and a table of kinds name operations by text."""
    if path.name == Path(policies.__file__).name:
        return
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Attribute):
            yield node.attr
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value


def test_a_call_that_the_table_lacks_is_told() -> None:
    recorder, boto = Recorder(), boto3.Session()
    recorder.listen(boto)
    with strict_aws():
        boto.client("s3", REGION).get_paginator("list_multipart_uploads")
        make: Any = boto.client("ec2", REGION)
        make.describe_addresses()
    assert recorder.unknown == {("ec2", "DescribeAddresses")}
    assert recorder.asks == []
    assert Ask("a", "b") == Ask("a", "b", {})
