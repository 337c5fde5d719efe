"""How much a box tells of itself, and how often; the plan's price answers for exactly that.

A report overwrites the one before, but the bucket keeps each overwritten version for months, and
no allowance counts them. So each kind has a size that it never exceeds, and a pace.
"""

from __future__ import annotations

import json
from typing import Any

CONSOLE_BYTES = 256 << 10
CONSOLE_TICKS = 6
"""The console goes at most once in so many ticks: a minute on AWS, where a tick is ten seconds."""
STATUS_BYTES = 8 << 10
HEARTBEAT_BYTES = 1 << 10
"""Beside the statuses in it."""
SPARE = 60
"""Reports beyond the pace: first ones of agents and boxes that were started again, last words."""
SPARE_PER_JOB = 40
"""Changes of a job's state beside its steps."""
POLL_S = 5.0
LISTS_PER_POLL = 2
"""Of another box's job; S3 bills them as writes, and only a listing tells what isn't there."""
_REASON, _FIELDS = 1 << 10, 1 << 10


def console_every_s(tick_s: float) -> float:
    return CONSOLE_TICKS * tick_s


def poll_every_s(tick_s: float) -> float:
    """How often a box asks after other boxes' jobs that its own wait for."""
    return max(1.0, min(POLL_S, tick_s))


def fit(status: dict[str, Any]) -> dict[str, Any]:
    """A status of at most STATUS_BYTES: the reason cut short, and the first metrics that fit."""
    left = STATUS_BYTES - _REASON - _FIELDS
    metrics = {}
    for name, value in status["metrics"].items():
        left -= _size(name) + _size(value) + 4
        if left < 0:
            break
        metrics[name] = value
    return {**status, "metrics": metrics, "reason": _short(str(status["reason"]))}


def most_bytes(life_s: int, tick_s: float, jobs: int) -> int:
    """What a box with so many jobs can put into the bucket as reports, in all versions."""
    beats, told = _beats(life_s, tick_s), _told(life_s, tick_s, jobs)
    in_beats = beats * (HEARTBEAT_BYTES + jobs * STATUS_BYTES)
    return in_beats + told * STATUS_BYTES + _consoles(life_s, tick_s) * CONSOLE_BYTES


def most_writes(life_s: int, tick_s: float, jobs: int, others: int) -> int:
    """Requests that S3 bills as writes. `others`: other boxes' jobs that its own wait for."""
    polls = int(life_s / poll_every_s(tick_s)) * others * LISTS_PER_POLL
    beats, told = _beats(life_s, tick_s), _told(life_s, tick_s, jobs)
    return beats + told + _consoles(life_s, tick_s) + polls


def _beats(life_s: int, tick_s: float) -> int:
    return int(life_s / tick_s) + SPARE


def _told(life_s: int, tick_s: float, jobs: int) -> int:
    """Statuses: in one tick one job makes a step, and another is saved."""
    return min(jobs, 2) * _beats(life_s, tick_s) + jobs * SPARE_PER_JOB


def _consoles(life_s: int, tick_s: float) -> int:
    return int(life_s / console_every_s(tick_s)) + SPARE


def _short(text: str) -> str:
    while _size(text) > _REASON:
        text = text[: len(text) * 3 // 4] + "…"
    return text


def _size(value: Any) -> int:
    """As JSON, where a character may take twelve bytes."""
    return len(json.dumps(value))
