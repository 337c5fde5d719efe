"""Two roles of a run: what a box may do (its own prefix, no deleting), and who may end it.

The second serves the scheduler and the automation that a guard starts: a role of its own for the
latter could do no less, as it is that which ends instances.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING, Any

from orchestrator.aws import dead_letters
from orchestrator.aws.refusals import boundary, code, is_missing, missing_is_fine
from orchestrator.aws.removal import all_of, remove
from orchestrator.aws.secrets import arn_of
from orchestrator.aws.tags import PREFIX, RUN, RunTags, named
from orchestrator.aws.waits import PROPAGATION_S

if TYPE_CHECKING:
    from orchestrator.aws.session import Session

Document = dict[str, Any]

BOX, KILL = "box", "kill"
RUNBOOK = "AWS-TerminateEC2Instance"
"""SSM's own automation that ends instances: the only one that the kill role may start."""
# IAM lists by path, not by the beginning of a name.
PATH = f"/{PREFIX}/"
_POLICY = "gpurun"


@boundary()
def ensure_box_role(
    session: Session, tags: RunTags, bucket: str, secrets: Iterable[str] = ()
) -> str:
    """Role and instance profile of the run's boxes; the profile's name is returned.

    `secrets`: where those of the jobs are kept, as `ssm:/path` or `secretsmanager:name`.
    """
    iam, name = session.client("iam"), named(tags.run_id, BOX)
    policy = box_policy(session, tags.run_id, bucket, secrets)
    _ensure_role(session, name, tags, box_trust(), policy)
    _unless_exists(
        lambda: iam.create_instance_profile(
            InstanceProfileName=name, Path=PATH, Tags=tags.as_list("box-profile", name)
        )
    )
    profile = session.patience.retry(
        lambda: iam.get_instance_profile(InstanceProfileName=name),
        when=is_missing,
        timeout_s=PROPAGATION_S,
    )["InstanceProfile"]
    if not profile["Roles"]:
        _unless_exists(
            lambda: iam.add_role_to_instance_profile(InstanceProfileName=name, RoleName=name),
            or_="LimitExceeded",  # a profile holds one role, and ours is in it by now
        )
    return name


@boundary()
def ensure_kill_role(session: Session, tags: RunTags) -> str:
    """The role under which the scheduler, and SSM for it, end this run's boxes; its ARN."""
    name = named(tags.run_id, KILL)
    _ensure_role(session, name, tags, kill_trust(session), kill_policy(session, tags.run_id))
    return kill_role_arn(session, tags.run_id)


def kill_role_arn(session: Session, run_id: str) -> str:
    """What the run's kill role is called, whether it exists or not."""
    return f"arn:{session.partition}:iam::{session.account}:role{PATH}{named(run_id, KILL)}"


@boundary()
def delete_roles(session: Session, run_id: str) -> None:
    """Delete both roles and the profile, in the order that IAM asks for."""
    iam, box = session.client("iam"), named(run_id, BOX)
    for name in _roles_in_profile(session, box):
        remove(
            session, iam.remove_role_from_instance_profile, InstanceProfileName=box, RoleName=name
        )
    remove(session, iam.delete_instance_profile, InstanceProfileName=box)
    all_of(partial(_delete_role, session, name) for name in (box, named(run_id, KILL)))


def _delete_role(session: Session, name: str) -> None:
    iam = session.client("iam")
    remove(session, iam.delete_role_policy, RoleName=name, PolicyName=_POLICY)
    remove(session, iam.delete_role, RoleName=name)


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


def ensure_trust(session: Session, name: str, trust: Document) -> None:
    """Let those take a role who shall, whoever might take one that was made before."""
    iam = session.client("iam")
    found: Any = session.patience.retry(
        lambda: iam.get_role(RoleName=name), when=is_missing, timeout_s=PROPAGATION_S
    )["Role"]
    if found.get("AssumeRolePolicyDocument") != trust:
        iam.update_assume_role_policy(RoleName=name, PolicyDocument=json.dumps(trust))


def _ensure_role(
    session: Session, name: str, tags: RunTags, trust: Document, policy: Document
) -> None:
    iam, part = session.client("iam"), name.rpartition("-")[2]
    _unless_exists(
        lambda: iam.create_role(
            RoleName=name,
            Path=PATH,
            AssumeRolePolicyDocument=json.dumps(trust),
            Description=f"gpurun: {part} role of the run {tags.run_id}",
            Tags=tags.as_list(f"{part}-role", name),
        )
    )
    ensure_trust(session, name, trust)
    session.patience.retry(
        lambda: iam.put_role_policy(
            RoleName=name, PolicyName=_POLICY, PolicyDocument=json.dumps(policy)
        ),
        when=is_missing,
        timeout_s=PROPAGATION_S,
    )


def _roles_in_profile(session: Session, name: str) -> list[str]:
    with missing_is_fine():
        found = session.client("iam").get_instance_profile(InstanceProfileName=name)
        return [entry["RoleName"] for entry in found["InstanceProfile"]["Roles"]]
    return []


def _document(*statements: Document) -> Document:
    return {"Version": "2012-10-17", "Statement": list(statements)}


def _unless_exists(create: Callable[[], object], *, or_: str = "") -> None:
    try:
        create()
    except Exception as error:
        if code(error) not in ("EntityAlreadyExists", or_):
            raise
