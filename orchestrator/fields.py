"""The kinds of value a runbook's field can hold, each with the words for a wrong one.

Everything that later reaches a shell, a tag, an object key or a path passes through here.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from datetime import timedelta
from decimal import Decimal
from typing import Annotated, NoReturn

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict
from pydantic_core import PydanticCustomError

from orchestrator.duration import format_duration, from_hours, parse_duration

RULE = "gpurun"
"""The pydantic error type whose context holds `problem` and `fix`."""

_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
_SECRET = re.compile(r"[A-Z][A-Z0-9_]{0,63}", re.ASCII)
_SOURCE = re.compile(
    r"ssm:/[A-Za-z0-9_.-]+(/[A-Za-z0-9_.-]+){0,14}|secretsmanager:[A-Za-z0-9/_+=.@-]{1,256}",
    re.ASCII,
)
_METRIC = re.compile(r"[A-Za-z0-9_./-]{1,64}", re.ASCII)
_GPU = re.compile(r"[A-Za-z0-9-]{1,16}", re.ASCII)
_PATH = re.compile(r"[A-Za-z0-9._@+=, -]+(/[A-Za-z0-9._@+=, -]+)*", re.ASCII)


class Frozen(BaseModel):
    """A value: never changed after it is made, and never with a key it doesn't know."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


def refuse(problem: str, fix: str) -> NoReturn:
    """Reports a wrong value from inside a validator."""
    raise PydanticCustomError(RULE, "{problem}", {"problem": problem, "fix": fix})


def _name(kind: str, longest: int) -> Callable[[str], str]:
    allowed = re.compile(rf"[a-z][a-z0-9-]{{0,{longest - 1}}}", re.ASCII)
    fix = f"Use a-z, 0-9 and '-', starting with a letter, at most {longest} characters."

    def check(value: str) -> str:
        return value if allowed.fullmatch(value) else refuse(f"{value!r} can't name a {kind}", fix)

    return check


RunbookName = Annotated[str, AfterValidator(_name("runbook", 16))]
BoxName = Annotated[str, AfterValidator(_name("box", 16))]
JobName = Annotated[str, AfterValidator(_name("job", 32))]
InputName = Annotated[str, AfterValidator(_name("input", 32))]


def _metric(value: str) -> str:
    if not _METRIC.fullmatch(value):
        refuse(f"{value!r} can't name a metric", "Use letters, digits, '_', '.', '/' and '-'.")
    return value


MetricName = Annotated[str, AfterValidator(_metric)]


def _gpu(value: str) -> str:
    if not _GPU.fullmatch(value):
        refuse(f"{value!r} can't name a GPU", "Write it as the plan does: L4 or L40S.")
    return value


GpuName = Annotated[str, AfterValidator(_gpu)]


def _relative_path(value: str) -> str:
    parts = value.split("/")
    if value.startswith(("/", "~")) or ".." in parts:
        refuse(f"{value!r} leaves its folder", "Give a path below it, without '..'.")
    if not _PATH.fullmatch(value) or "." in parts or value.startswith("-"):
        refuse(f"{value!r} isn't a plain relative path", "Write it like out/model.")
    return value


def _local_path(value: str) -> str:
    if not value or _CONTROL.search(value):
        refuse(f"{value!r} isn't a path", "Write it like examples/own-script.")
    return value


def _command(value: str) -> str:
    if not value.strip() or "\0" in value or len(value) > 4096:
        refuse("a command is 1 to 4096 characters of shell", "Put longer ones into a script.")
    return value


def _one_line(value: str) -> str:
    if _CONTROL.search(value) or len(value) > 200:
        refuse("isn't one line of at most 200 characters", "Shorten it.")
    return value


def _source(value: str) -> str:
    if not value.strip():
        refuse("says nothing", "Name who measured it, where and when.")
    return _one_line(value)


RelativePath = Annotated[str, AfterValidator(_relative_path)]
"""Below a folder of the box: no leading '/', no '..', nothing a shell or a key would read."""
LocalPath = Annotated[str, AfterValidator(_local_path)]
Command = Annotated[str, AfterValidator(_command)]
OneLine = Annotated[str, AfterValidator(_one_line)]
Source = Annotated[str, AfterValidator(_source)]
"""Where a number is from, for people."""


def _secret_name(value: str) -> str:
    if not _SECRET.fullmatch(value) or value.startswith(("GPURUN_", "AWS_")) or value == "PATH":
        refuse(f"{value!r} can't name a secret", "Use an own variable, like HF_TOKEN.")
    return value


def _secret_source(value: str) -> str:
    if value != "env" and not _SOURCE.fullmatch(value):
        fix = "Write ssm:/path/of/parameter, secretsmanager:name, or env; never the secret itself."
        refuse("says where no secret is kept", fix)
    return value


SecretName = Annotated[str, AfterValidator(_secret_name)]
SecretSource = Annotated[str, AfterValidator(_secret_source)]
"""Where a secret is kept. A wrong one isn't repeated: it may be the secret."""


def _number(value: object) -> Decimal:
    """A plain number, exact; text, truth values, NaN and infinities are refused."""
    match value:
        case Decimal():
            number = value
        case bool() | None:
            refuse(f"{value!r} isn't a number", "Write a number.")
        case int() | float() if not isinstance(value, float) or math.isfinite(value):
            number = Decimal(str(value))
        case _:
            refuse(f"{value!r} isn't a number", "Write a plain number, without quotes or units.")
    return number if number.is_finite() else refuse(f"{value} isn't finite", "Write a number.")


def _not_negative(value: object) -> Decimal:
    number = _number(value)
    return number if number >= 0 else refuse(f"{number} is negative", "Give 0 or more.")


def _usd(value: object) -> Decimal:
    amount = _number(value)
    if amount <= 0:
        refuse(f"{amount} USD pays for nothing", "Give the most that this run may cost, e.g. 40.")
    if amount > 100_000:
        refuse(f"{amount} USD is beyond 100000", "Give the most that this run may cost, e.g. 40.")
    return amount


def _duration(value: object) -> timedelta:
    match value:
        case timedelta():
            return value
        case str():
            try:
                return parse_duration(value)
            except ValueError:
                refuse(f"{value!r} isn't a duration", "Write it like 10s, 15m, 2h or 1h30m.")
        case _:
            refuse(f"{value!r} has no unit", "Write it like 10s, 15m, 2h or 1h30m.")


def _hours(value: object) -> timedelta:
    """A number is hours; text has its unit."""
    if isinstance(value, str | timedelta):
        return _duration(value)
    number = _number(value)
    try:
        return from_hours(number)
    except ValueError:
        refuse(f"{value} hours is beyond any calendar", "Give hours, e.g. 2.5, or 2h30m.")


def _between(least: timedelta, most: timedelta) -> Callable[[timedelta], timedelta]:
    fix = f"Give {format_duration(least)} to {format_duration(most)}."

    def check(value: timedelta) -> timedelta:
        if least <= value <= most:
            return value
        return refuse(f"{_spoken(value)} is out of range", fix)

    return check


def _spoken(value: timedelta) -> str:
    sign = "-" if value < timedelta(0) else ""
    return sign + format_duration(abs(value))


_SECOND = timedelta(seconds=1)
Usd = Annotated[Decimal, BeforeValidator(_usd)]
Number = Annotated[Decimal, BeforeValidator(_number)]
NotNegative = Annotated[Decimal, BeforeValidator(_not_negative)]
BoxHours = Annotated[
    timedelta,
    BeforeValidator(_hours),
    AfterValidator(_between(10 * _SECOND, timedelta(days=30))),
]
JobHours = Annotated[
    timedelta,
    BeforeValidator(_hours),
    AfterValidator(_between(_SECOND, timedelta(days=30))),
]
Margin = Annotated[
    timedelta,
    BeforeValidator(_duration),
    AfterValidator(_between(_SECOND, timedelta(hours=24))),
]
