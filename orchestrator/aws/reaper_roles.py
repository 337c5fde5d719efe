"""The reaper's two roles in IAM: one that may end things, one that may only start the function."""

from __future__ import annotations

import json
from functools import partial
from typing import TYPE_CHECKING, Any

from orchestrator.aws.policy import reaper_policy
from orchestrator.aws.refusals import code, is_missing
from orchestrator.aws.removal import remove
from orchestrator.aws.role import ensure_trust
from orchestrator.aws.schedules import GROUP
from orchestrator.aws.scope import Scope
from orchestrator.aws.tags import PREFIX, REAPER
from orchestrator.aws.waits import PROPAGATION_S

if TYPE_CHECKING:
    from orchestrator.aws.session import Session

Document = dict[str, Any]
PATH = f"/{PREFIX}-setup/"
LOG = f"/aws/lambda/{REAPER}"
TAG = f"{PREFIX}:setup"
_SCHEDULER = "scheduler.amazonaws.com"


def function_arn(session: Session) -> str:
    return _arn(session, "lambda", f"function:{REAPER}")


def ensure_reaper_role(session: Session) -> str:
    """The role that ends things; its ARN."""
    return _ensure_role(session, _does(session), "lambda.amazonaws.com", _may_end(session))


def ensure_caller_role(session: Session) -> str:
    """The role that only starts the function; its ARN."""
    return _ensure_role(session, _calls(session), _SCHEDULER, [_may_call(session)])


def role_names(session: Session) -> tuple[str, str]:
    """Both, whether they exist or not."""
    return _does(session), _calls(session)


def delete_role(session: Session, name: str) -> None:
    iam = session.client("iam")
    try:
        policies = iam.list_role_policies(RoleName=name)["PolicyNames"]
    except Exception as error:
        if not is_missing(error):
            raise
        return
    for policy in policies:
        remove(session, iam.delete_role_policy, RoleName=name, PolicyName=policy)
    remove(session, iam.delete_role, RoleName=name)


def _does(session: Session) -> str:
    """The role that ends things. IAM knows no regions, so its name has one."""
    return f"{REAPER}-{session.region}"


def _calls(session: Session) -> str:
    """The role that only starts the function."""
    return f"{REAPER}-{session.region}-call"


def _may_end(session: Session) -> list[Document]:
    """What a sweep of one region needs, and its log; never its own schedule and roles."""
    scope = Scope(session.account, (session.region,), (), partition=session.partition)
    own = [
        {
            "Effect": "Allow",
            "Action": ["logs:CreateLogStream", "logs:PutLogEvents"],
            "Resource": _arn(session, "logs", f"log-group:{LOG}:*"),
        },
        {
            "Effect": "Deny",
            "Action": ["iam:*", "scheduler:DeleteSchedule"],
            "Resource": [
                _arn(session, "scheduler", f"schedule/{GROUP}/{REAPER}"),
                f"arn:{session.partition}:iam::{session.account}:role{PATH}*",
            ],
        },
    ]
    return [*reaper_policy(scope), {"Version": "2012-10-17", "Statement": own}]


def _may_call(session: Session) -> Document:
    statement = {
        "Effect": "Allow",
        "Action": "lambda:InvokeFunction",
        "Resource": function_arn(session),
    }
    return {"Version": "2012-10-17", "Statement": [statement]}


def _ensure_role(session: Session, name: str, service: str, policies: list[Document]) -> str:
    iam, trust = session.client("iam"), _trust(session, service)
    try:
        iam.create_role(
            RoleName=name,
            Path=PATH,
            AssumeRolePolicyDocument=json.dumps(trust),
            Description="gpurun: ends runs that are past their expiry",
            Tags=[{"Key": TAG, "Value": REAPER}],
        )
    except Exception as error:
        if code(error) != "EntityAlreadyExists":
            raise
    ensure_trust(session, name, trust)
    for number, policy in enumerate(policies, 1):
        write = partial(
            iam.put_role_policy,
            RoleName=name,
            PolicyName=f"{PREFIX}-{number}",
            PolicyDocument=json.dumps(policy),
        )
        session.patience.retry(write, when=is_missing, timeout_s=PROPAGATION_S)
    return f"arn:{session.partition}:iam::{session.account}:role{PATH}{name}"


def _trust(session: Session, service: str) -> Document:
    """The scheduler says for which account it asks; that Lambda does is written nowhere."""
    statement: Document = {
        "Effect": "Allow",
        "Principal": {"Service": service},
        "Action": "sts:AssumeRole",
    }
    if service == _SCHEDULER:
        statement["Condition"] = {"StringEquals": {"aws:SourceAccount": session.account}}
    return {"Version": "2012-10-17", "Statement": [statement]}


def _arn(session: Session, service: str, rest: str) -> str:
    return f"arn:{session.partition}:{service}:{session.region}:{session.account}:{rest}"
