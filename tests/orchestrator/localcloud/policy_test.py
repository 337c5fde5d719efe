"""Policy documents allow what they say, to whom they say it, and nothing by accident."""

from __future__ import annotations

from typing import Any

import pytest

from orchestrator.localcloud import objects, policy

INSTANCE = "arn:aws:ec2:us-east-1:1:instance/i-1"
TAG = "aws:ResourceTag/gpurun:run"
KILL = {
    "Effect": "Allow",
    "Action": "ec2:TerminateInstances",
    "Resource": "arn:aws:ec2:*:1:instance/*",
    "Condition": {"StringEquals": {TAG: "r1"}},
}


def may_kill(*statements: dict[str, Any], **tags: str) -> bool:
    context = {f"aws:ResourceTag/gpurun:{name}": value for name, value in tags.items()}
    document = {"Statement": list(statements)}
    return policy.allows([document], "ec2:TerminateInstances", INSTANCE, context)


def test_a_tag_condition_holds_for_that_tag_only() -> None:
    assert may_kill(KILL, run="r1")
    assert not may_kill(KILL, run="r2")
    assert not may_kill(KILL)


def test_a_denial_wins_over_any_permission() -> None:
    assert not may_kill(KILL, {**KILL, "Effect": "Deny"}, run="r1")


@pytest.mark.parametrize(
    "changed",
    [
        {"Action": "ec2:StopInstances"},
        {"Resource": "arn:aws:ec2:*:2:instance/*"},
        {"Condition": {"StringEqualsSomehow": {TAG: "r1"}}},
        {"Condition": {"StringEquals": {TAG: "r1", "aws:Other": "x"}}},
        {"Action": []},
    ],
)
def test_whatever_doesnt_match_doesnt_allow(changed: dict[str, Any]) -> None:
    assert not may_kill({**KILL, **changed}, run="r1")


@pytest.mark.parametrize("action", ["ec2:*", "*", ["s3:GetObject", "EC2:terminateinstances"]])
def test_actions_may_be_many_have_stars_and_ignore_case(action: Any) -> None:
    assert may_kill({**KILL, "Action": action}, run="r1")


def test_brackets_in_a_pattern_mean_themselves() -> None:
    document = {"Statement": {"Effect": "Allow", "Action": "s3:GetObject", "Resource": "a[bc]*"}}
    assert policy.allows([document], "s3:GetObject", "a[bc]d", {})
    assert not policy.allows([document], "s3:GetObject", "abd", {})


@pytest.mark.parametrize(
    "method,path,query,action,run",
    [
        ("PUT", "/b/runs/r1/x", "", "s3:PutObject", "r1"),
        ("POST", "/b/runs/r1/x", "uploads", "s3:PutObject", "r1"),
        ("HEAD", "/b/runs/r1/x", "", "s3:GetObject", "r1"),
        ("DELETE", "/b/runs/r1/x", "", "s3:DeleteObject", "r1"),
        ("DELETE", "/b/runs/r1/x", "uploadId=1", "s3:AbortMultipartUpload", "r1"),
        ("GET", "/b/runs/r1/x", "uploadId=1", "s3:ListMultipartUploadParts", "r1"),
        ("GET", "/b", "list-type=2&prefix=runs%2Fr1%2F", "s3:ListBucket", "r1"),
        ("GET", "/b/control/r1/ssh.json", "", "s3:GetObject", ""),
        ("PUT", "/b", "", "s3:PutBucketConfiguration", ""),
        ("POST", "/b", "delete", "s3:PutBucketConfiguration", ""),
        ("GET", "/", "", "s3:ListAllMyBuckets", ""),
    ],
)
def test_a_request_names_its_action_and_its_run(
    method: str, path: str, query: str, action: str, run: str
) -> None:
    found = objects.parse(method, path, query)
    assert (found.action, found.run) == (action, run)


def test_a_listing_is_limited_by_its_prefix() -> None:
    asked = objects.parse("GET", "/b", "prefix=runs%2Fr1%2F")
    limit = {"StringLike": {"s3:prefix": "runs/r1/*"}}
    document = {
        "Statement": {
            "Effect": "Allow",
            "Action": "s3:ListBucket",
            "Resource": "arn:aws:s3:::b",
            "Condition": limit,
        }
    }
    assert policy.allows([document], asked.action, asked.resource, asked.context)
    other = objects.parse("GET", "/b", "prefix=runs%2Fr2%2F")
    assert not policy.allows([document], other.action, other.resource, other.context)
