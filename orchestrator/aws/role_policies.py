"""Who may take a run's two roles, and what they may do: work in one's own prefix; end a box."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from orchestrator.aws import dead_letters
from orchestrator.aws.secrets import arn_of
from orchestrator.aws.tags import PREFIX, RUN, named

if TYPE_CHECKING:
    from collections.abc import Iterable

    from orchestrator.aws.session import Session

Document = dict[str, Any]
BOX, KILL = "box", "kill"
RUNBOOK = "AWS-TerminateEC2Instance"
"""SSM's own automation that ends instances: the only one that the kill role may start."""
# IAM lists by path, not by the beginning of a name.
PATH = f"/{PREFIX}/"


def kill_role_arn(session: Session, run_id: str) -> str:
    """What the run's kill role is called, whether it exists or not."""
    return f"arn:{session.partition}:iam::{session.account}:role{PATH}{named(run_id, KILL)}"


def box_trust() -> Document:
    """EC2 may hand the role to an instance."""
    return _document(
        {
            "Effect": "Allow",
            "Principal": {"Service": "ec2.amazonaws.com"},
            "Action": "sts:AssumeRole",
        }
    )


def box_policy(
    session: Session, run_id: str, bucket: str, secrets: Iterable[str] = ()
) -> Document:
    """Read and write under `runs/<run>/`, list it, delete nothing; read exactly the secrets."""
    arn = f"arn:{session.partition}:s3:::{bucket}"
    objects = ("PutObject", "GetObject", "AbortMultipartUpload")
    return _document(
        {
            "Sid": "OwnPrefix",
            "Effect": "Allow",
            "Action": [f"s3:{action}" for action in objects],
            "Resource": f"{arn}/runs/{run_id}/*",
        },
        {
            "Sid": "ListOwnPrefix",
            "Effect": "Allow",
            "Action": "s3:ListBucket",
            "Resource": arn,
            "Condition": {"StringLike": {"s3:prefix": f"runs/{run_id}/*"}},
        },
        {
            # To throw away the parts of what a killed agent was uploading; no condition on the
            # prefix exists for it (service authorization reference, Amazon S3).
            "Sid": "FindCutUploads",
            "Effect": "Allow",
            "Action": "s3:ListBucketMultipartUploads",
            "Resource": arn,
        },
        {
            "Sid": "DeleteNothing",
            "Effect": "Deny",
            "Action": ["s3:Delete*", "s3:PutBucket*", "s3:PutLifecycleConfiguration"],
            "Resource": "*",
        },
        *_reading(session, sorted(set(secrets))),
    )


def _reading(session: Session, sources: list[str]) -> list[Document]:
    """A statement for each service that keeps some of them."""
    actions = {"ssm": "ssm:GetParameter", "secretsmanager": "secretsmanager:GetSecretValue"}
    arns = {
        service: [arn_of(session, at) for at in sources if at.startswith(f"{service}:")]
        for service in actions
    }
    return [
        {
            "Sid": f"SecretsIn{service.capitalize()}",
            "Effect": "Allow",
            "Action": actions[service],
            "Resource": arns[service],
        }
        for service in actions
        if arns[service]
    ]


def kill_trust(session: Session) -> Document:
    """Only this account's schedules of the default group, and the automations of its SSM."""
    here = f"{session.region}:{session.account}"
    group = f"arn:{session.partition}:scheduler:{here}:schedule-group/default"
    executions = f"arn:{session.partition}:ssm:{here}:automation-execution/*"
    own = {"aws:SourceAccount": session.account}
    return _document(
        _trust("scheduler", {"StringEquals": {**own, "aws:SourceArn": group}}),
        _trust("ssm", {"StringEquals": own, "StringLike": {"aws:SourceArn": executions}}),
    )


def _trust(service: str, condition: Document) -> Document:
    return {
        "Effect": "Allow",
        "Principal": {"Service": f"{service}.amazonaws.com"},
        "Action": "sts:AssumeRole",
        "Condition": condition,
    }


def kill_policy(session: Session, run_id: str) -> Document:
    """Terminate instances with this run's tag, by id or by SSM; say so if that fails; no more."""
    instances = f"arn:{session.partition}:ec2:{session.region}:{session.account}:instance/*"
    return _document(
        {
            "Effect": "Allow",
            "Action": "ec2:TerminateInstances",
            "Resource": instances,
            "Condition": {"StringEquals": {f"aws:ResourceTag/{RUN}": run_id}},
        },
        {
            "Effect": "Allow",
            "Action": "sqs:SendMessage",
            "Resource": dead_letters.queue_arn(session, run_id),
        },
        *_guarding(session, run_id),
    )


def _guarding(session: Session, run_id: str) -> list[Document]:
    """Start the one runbook, lend it this role, and find the instances by their tag.

    The runbook is AWS's own, so its ARNs have no account. IAM has asked about an
    `automation-definition`, and now asks about the document and the execution that is to be.
    """
    place = f"arn:{session.partition}:ssm:{session.region}"
    return [
        {
            "Effect": "Allow",
            "Action": "ssm:StartAutomationExecution",
            "Resource": [
                f"{place}::automation-definition/{RUNBOOK}:*",
                f"{place}::document/{RUNBOOK}",
                f"{place}:{session.account}:automation-execution/*",
            ],
        },
        {
            "Effect": "Allow",
            "Action": "iam:PassRole",
            "Resource": kill_role_arn(session, run_id),
            "Condition": {"StringEquals": {"iam:PassedToService": "ssm.amazonaws.com"}},
        },
        {
            "Effect": "Allow",
            "Action": ["ec2:DescribeInstances", "ec2:DescribeInstanceStatus", "tag:GetResources"],
            "Resource": "*",
        },
    ]


def _document(*statements: Document) -> Document:
    return {"Version": "2012-10-17", "Statement": list(statements)}
