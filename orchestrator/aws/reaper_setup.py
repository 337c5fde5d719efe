"""Installing the reaper in a region, and taking it away: function, two roles, log, schedule.

Everything has a fixed name, is looked up before it is made, and may be set up again at any time.
None of it carries a run's tag, and its roles are kept under a path of their own: no sweep, and
not the reaper itself, may take it for something that is over.
"""

from __future__ import annotations

import base64
import hashlib
import json
from functools import partial
from typing import TYPE_CHECKING, Any

from orchestrator.aws.package import zip_of
from orchestrator.aws.policy import reaper_policy
from orchestrator.aws.reaper import TIMEOUT_S
from orchestrator.aws.refusals import boundary, code, is_missing, is_not_known_yet, text
from orchestrator.aws.removal import all_of, remove
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
EVERY = "rate(5 minutes)"
_SCHEDULER = "scheduler.amazonaws.com"
_HANDLER_MODULE = "orchestrator.aws.reaper"
_RUNTIME = "python3.12"
_MEMORY_MB = 256
_KEEP_LOGS_DAYS = 14


@boundary()
def install(session: Session) -> bool:
    """Set the reaper up in the session's region; whether anything of it had to be made anew.

    Raises:
        ApiError: these credentials may not do it; what was made is used by the next try.
    """
    role = _ensure_role(session, _does(session), "lambda.amazonaws.com", _may_end(session))
    _ensure_log(session)
    changed = _ensure_function(session, role)
    caller = _ensure_role(session, _calls(session), _SCHEDULER, [_may_call(session)])
    return _ensure_schedule(session, caller) or changed


@boundary()
def uninstall(session: Session) -> None:
    """Take it away again; absent is done."""
    all_of(
        [
            lambda: remove(
                session, session.client("scheduler").delete_schedule, Name=REAPER, GroupName=GROUP
            ),
            lambda: remove(session, session.client("lambda").delete_function, FunctionName=REAPER),
            lambda: remove(session, session.client("logs").delete_log_group, logGroupName=LOG),
            lambda: _delete_role(session, _does(session)),
            lambda: _delete_role(session, _calls(session)),
        ]
    )


def function_arn(session: Session) -> str:
    return _arn(session, "lambda", f"function:{REAPER}")


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


def _delete_role(session: Session, name: str) -> None:
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


def _ensure_log(session: Session) -> None:
    """Lambda would make it by itself, and keep it for ever."""
    logs = session.client("logs")
    try:
        logs.create_log_group(logGroupName=LOG, tags={TAG: REAPER})
    except Exception as error:
        if code(error) != "ResourceAlreadyExistsException":
            raise
    logs.put_retention_policy(logGroupName=LOG, retentionInDays=_KEEP_LOGS_DAYS)


def _ensure_function(session: Session, role: str) -> bool:
    """Whether it had to be made, or brought to what is here now."""
    package = zip_of(_HANDLER_MODULE)
    present = _function(session)
    if present is None:
        _create_function(session, role, package)
        return True
    new_code = present.get("CodeSha256") != _sha256(package)
    new_settings = any(present.get(key) != value for key, value in _settings(role).items())
    client = session.client("lambda")
    if new_settings:
        _settled(
            session,
            lambda: client.update_function_configuration(FunctionName=REAPER, **_settings(role)),
        )
    if new_code:
        _settled(
            session, lambda: client.update_function_code(FunctionName=REAPER, ZipFile=package)
        )
    return new_code or new_settings


def _create_function(session: Session, role: str, package: bytes) -> None:
    _settled(
        session,
        lambda: session.client("lambda").create_function(
            FunctionName=REAPER,
            Description="Ends gpurun's runs that are past their expiry",
            Code={"ZipFile": package},
            Tags={TAG: REAPER},
            **_settings(role),
        ),
    )


def _settings(role: str) -> dict[str, Any]:
    return {
        "Runtime": _RUNTIME,
        "Role": role,
        "Handler": f"{_HANDLER_MODULE}.handler",
        "Timeout": TIMEOUT_S,
        "MemorySize": _MEMORY_MB,
    }


def _settled(session: Session, act: Any) -> None:
    """A new role is unknown to Lambda for seconds, and one change at a time is taken."""
    session.patience.retry(act, when=_not_now, timeout_s=PROPAGATION_S)


def _not_now(error: Exception) -> bool:
    unknown = code(error) == "InvalidParameterValueException" and "assumed" in text(error)
    busy = code(error) == "ResourceConflictException" and "already exist" not in text(error)
    return unknown or busy


def _function(session: Session) -> Any:
    try:
        return session.client("lambda").get_function(FunctionName=REAPER)["Configuration"]
    except Exception as error:
        if not is_missing(error):
            raise
        return None


def _ensure_schedule(session: Session, caller: str) -> bool:
    client, wanted = session.client("scheduler"), _schedule(session, caller)
    try:
        present: Any = client.get_schedule(Name=REAPER, GroupName=GROUP)
    except Exception as error:
        if not is_missing(error):
            raise
        present = None
    if present and all(_same(present.get(key), wanted[key]) for key in wanted):
        return False
    write = client.update_schedule if present else client.create_schedule
    session.patience.retry(lambda: write(**wanted), when=is_not_known_yet, timeout_s=PROPAGATION_S)
    return True


def _same(present: Any, wanted: Any) -> bool:
    """AWS may add to what it was given."""
    if isinstance(wanted, dict):
        return isinstance(present, dict) and all(
            _same(present.get(key), wanted[key]) for key in wanted
        )
    return bool(present == wanted)


def _schedule(session: Session, caller: str) -> dict[str, Any]:
    """A call that fails isn't tried again: the next one comes in five minutes."""
    return {
        "Name": REAPER,
        "GroupName": GROUP,
        "Description": "Starts gpurun's reaper",
        "ScheduleExpression": EVERY,
        "FlexibleTimeWindow": {"Mode": "OFF"},
        "State": "ENABLED",
        "Target": {
            "Arn": function_arn(session),
            "RoleArn": caller,
            "Input": "{}",
            "RetryPolicy": {"MaximumRetryAttempts": 0, "MaximumEventAgeInSeconds": 300},
        },
    }


def _sha256(package: bytes) -> str:
    return base64.b64encode(hashlib.sha256(package).digest()).decode()


def _arn(session: Session, service: str, rest: str) -> str:
    return f"arn:{session.partition}:{service}:{session.region}:{session.account}:{rest}"
