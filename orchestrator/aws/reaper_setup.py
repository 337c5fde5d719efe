"""Installing the reaper in a region, and taking it away: function, two roles, log, schedule.

Everything has a fixed name, is looked up before it is made, and may be set up again at any time.
None of it carries a run's tag, and its roles are kept under a path of their own: no sweep, and
not the reaper itself, may take it for something that is over.
"""

from __future__ import annotations

import base64
import hashlib
from functools import partial
from typing import TYPE_CHECKING, Any

from orchestrator.aws.package import zip_of
from orchestrator.aws.reaper import TIMEOUT_S
from orchestrator.aws.reaper_roles import (
    LOG,
    TAG,
    delete_role,
    ensure_caller_role,
    ensure_reaper_role,
    function_arn,
    role_names,
)
from orchestrator.aws.refusals import boundary, code, is_missing, is_not_known_yet, text
from orchestrator.aws.removal import all_of, remove
from orchestrator.aws.schedules import GROUP
from orchestrator.aws.tags import REAPER
from orchestrator.aws.waits import PROPAGATION_S

if TYPE_CHECKING:
    from orchestrator.aws.session import Session

EVERY = "rate(5 minutes)"
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
    role = ensure_reaper_role(session)
    _ensure_log(session)
    changed = _ensure_function(session, role)
    caller = ensure_caller_role(session)
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
            *(partial(delete_role, session, name) for name in role_names(session)),
        ]
    )


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
