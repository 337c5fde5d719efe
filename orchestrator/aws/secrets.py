"""The jobs' secrets on the controller: checked before anything is made, lent to a run, taken back.

What this machine's environment holds goes into the run's own part of SSM, encrypted and tagged
like all of a run; the boxes read it there by their role. No value is ever printed or written
elsewhere.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

from orchestrator.aws import tags as tag
from orchestrator.aws.refusals import boundary, code, is_missing, text
from orchestrator.aws.removal import remove
from orchestrator.aws.tags import PREFIX, RunTags, as_map, checked, parse_time
from orchestrator.errors import SecretError

if TYPE_CHECKING:
    from orchestrator.aws.session import Session

ENV = "env"
ROOT = f"/{PREFIX}/"
# What SSM keeps for nothing: a standard parameter.
MOST_BYTES = 4096
# Of SSM and Secrets Manager, and what both say when the key may not be used.
_NOT_FOR_US = ("AccessDenied", "InvalidKeyId", "KMS")


@dataclass(frozen=True)
class Lent:
    """A parameter of a run in SSM; never its value."""

    name: str
    run: str
    expires_at: datetime | None


def parameter_name(run_id: str, variable: str = "") -> str:
    """`/gpurun/<run>/<variable>`, or what all of the run's begin with."""
    return f"{ROOT}{checked(run_id)}/{variable}"


def arn_of(session: Session, source: str) -> str:
    """What a policy calls the thing behind `ssm:/path` or `secretsmanager:name`.

    Secrets Manager adds six characters of its own to a name.
    """
    kind, _, key = source.partition(":")
    where = f"arn:{session.partition}:{kind}:{session.region}:{session.account}"
    return f"{where}:parameter{key}" if kind == "ssm" else f"{where}:secret:{key}-??????"


@boundary()
def check_secrets(
    session: Session, sources: Mapping[str, str], variable: Callable[[str], str | None]
) -> None:
    """Whether each secret can be read, as far as that can be known here; changes nothing.

    `variable`: this machine's environment.

    Raises:
        SecretError: one can't be; names the variable and what to do.
    """
    for name, at in sources.items():
        kind, _, key = at.partition(":")
        if kind == ENV:
            env_value(name, variable)
        elif kind == "ssm":
            _check_parameter(session, name, key)
        else:
            _check_secret(session, name, key)


@boundary()
def lend_secrets(
    session: Session,
    tags: RunTags,
    sources: Mapping[str, str],
    variable: Callable[[str], str | None],
) -> None:
    """Put those of this machine's environment where the run's boxes can read them.

    Raises:
        SecretError: the environment has one no longer.
    """
    for name, at in sources.items():
        if at == ENV:
            key = parameter_name(tags.run_id, name)
            _put(session, key, env_value(name, variable), tags.as_list("secret", key))


@boundary()
def find_lent(session: Session, run_id: str | None = None) -> list[Lent]:
    """The run's parameters, or those of all runs in this region, with their tags' expiry."""
    return [_lent(session, name) for name in _names(session, run_id)]


@boundary()
def delete_secrets(session: Session, run_id: str) -> None:
    """Take back what was lent to the run; a person's own secrets are not touched."""
    for name in _names(session, run_id):
        remove(session, session.client("ssm").delete_parameter, Name=name)


def env_value(name: str, variable: Callable[[str], str | None]) -> str:
    """Raises SecretError when this machine's environment has no such variable, or SSM couldn't
    hold it.
    """
    value = variable(name) or ""
    size = len(value.encode("utf-8", "surrogateescape"))
    if not value:
        raise SecretError(
            f"secrets.{name}: the variable isn't set here, or is empty; nothing was created",
            hint=f"Set it first (read -rs {name}; export {name}), or name another source.",
        )
    if size > MOST_BYTES or not _is_text(value):
        raise SecretError(
            f"secrets.{name}: {size} bytes that SSM can't hold; nothing was created",
            hint=f"Up to {MOST_BYTES} bytes of text fit; keep it in Secrets Manager instead.",
        )
    return value


def _is_text(value: str) -> bool:
    """The environment of a job, too, holds no other."""
    return not any(each == "\0" or "\ud800" <= each <= "\udfff" for each in value)


def _check_parameter(session: Session, name: str, key: str) -> None:
    """Only reading it shows that it can be decrypted; what comes is dropped."""
    try:
        found = session.client("ssm").get_parameter(Name=key, WithDecryption=True)
    except Exception as error:
        raise _unreadable(error, name, f"ssm:{key}", session, "ssm:GetParameter") from error
    if not found["Parameter"]["Value"]:
        raise _empty(name, f"ssm:{key}")


def _check_secret(session: Session, name: str, key: str) -> None:
    try:
        found = session.client("secretsmanager").describe_secret(SecretId=key)
    except Exception as error:
        action = "secretsmanager:DescribeSecret"
        raise _unreadable(error, name, f"secretsmanager:{key}", session, action) from error
    if found.get("DeletedDate"):
        raise SecretError(
            f"secrets.{name}: secretsmanager:{key} is being deleted; nothing was created",
            hint=f"Restore it: aws secretsmanager restore-secret --secret-id {key}",
        )


def _unreadable(error: Exception, name: str, at: str, session: Session, action: str) -> Exception:
    where = f"in {session.region} of {session.account}"
    if is_missing(error):
        return SecretError(
            f"secrets.{name}: there is no {at} {where}; nothing was created",
            hint="Make it there, or name another source in the runbook.",
        )
    if not code(error).startswith(_NOT_FOR_US):
        return error
    return SecretError(
        f"secrets.{name}: {at} {where} can't be read ({code(error)}: {text(error)}); "
        "nothing was created",
        hint=f"These credentials need {action} on it: gpurun aws policy RUNBOOK",
    )


def _empty(name: str, at: str) -> SecretError:
    return SecretError(
        f"secrets.{name}: {at} is empty; nothing was created", hint="Put the secret there first."
    )


def _put(session: Session, key: str, value: str, tags: list[Any]) -> None:
    """Tags can't go along when a parameter is overwritten, so the first call makes it."""
    ssm = session.client("ssm")
    try:
        ssm.put_parameter(Name=key, Value=value, Type="SecureString", Tier="Standard", Tags=tags)
    except Exception as error:
        if code(error) != "ParameterAlreadyExists":
            raise
        ssm.put_parameter(
            Name=key, Value=value, Type="SecureString", Tier="Standard", Overwrite=True
        )


def _names(session: Session, run_id: str | None) -> Iterator[str]:
    """By their path: a parameter is found also where its tags were taken off."""
    path = (parameter_name(run_id) if run_id else ROOT).rstrip("/")
    pages = (
        session.client("ssm")
        .get_paginator("describe_parameters")
        .paginate(ParameterFilters=[{"Key": "Path", "Option": "Recursive", "Values": [path]}])
    )
    for page in pages:
        yield from (found["Name"] for found in page["Parameters"] if "Name" in found)


def _lent(session: Session, name: str) -> Lent:
    run = name.removeprefix(ROOT).partition("/")[0]
    try:
        found = session.client("ssm").list_tags_for_resource(
            ResourceType="Parameter", ResourceId=name
        )
    except Exception as error:
        if not (is_missing(error) or code(error) == "InvalidResourceId"):
            raise
        return Lent(name, run, None)
    tags = as_map(found["TagList"])
    return Lent(name, tags.get(tag.RUN, run), parse_time(tags.get(tag.EXPIRES_AT)))
