"""Durations as people write them: `10s`, `15m`, `2h`, `1h30m`; whole seconds inside."""

from __future__ import annotations

import re
from datetime import timedelta
from decimal import ROUND_HALF_UP, Decimal

_PARTS = re.compile(r"(?:(\d+(?:\.\d+)?)h)?(?:(\d+(?:\.\d+)?)m)?(?:(\d+(?:\.\d+)?)s)?", re.ASCII)
_LIMIT_S = Decimal(10**9)


def parse_duration(text: str) -> timedelta:
    """`1h30m` as a timedelta of whole seconds.

    Raises ValueError when the text is no duration.
    """
    match = _PARTS.fullmatch(text.strip())
    if match is None or not any(match.groups()):
        raise ValueError(text)
    hours, minutes, seconds = (Decimal(part or 0) for part in match.groups())
    return _whole_seconds(hours * 3600 + minutes * 60 + seconds)


def from_hours(hours: Decimal) -> timedelta:
    """A number of hours as a timedelta of whole seconds.

    Raises ValueError for NaN, an infinity, or more seconds than a date can hold.
    """
    if not hours.is_finite():
        raise ValueError(str(hours))
    return _whole_seconds(hours * 3600)


def format_duration(duration: timedelta) -> str:
    """The shortest text that `parse_duration` reads back: `1h30m`, `45s`."""
    total = int(duration.total_seconds())
    hours, rest = divmod(total, 3600)
    minutes, seconds = divmod(rest, 60)
    parts = [(hours, "h"), (minutes, "m"), (seconds, "s")]
    return "".join(f"{value}{unit}" for value, unit in parts if value) or "0s"


def _whole_seconds(seconds: Decimal) -> timedelta:
    if abs(seconds) > _LIMIT_S:
        raise ValueError(str(seconds))
    return timedelta(seconds=int(seconds.to_integral_value(ROUND_HALF_UP)))
