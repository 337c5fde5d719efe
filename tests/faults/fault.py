"""Faults as text: `kind@where`, so that a failing schedule is printed and replayed by one command.

Where is the n-th call of an operation (`run_instances#1`), by the controller or by a box
(`one:put_object#7`), each counted over the whole life; or a moment (`t+600`, in seconds).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum

CONTROLLER = "controller"


class Kind(StrEnum):
    """What goes wrong: first what strikes at a call, then at a box, then at any moment."""

    KILLED_BEFORE = "killed-before"
    """The controller dies before the call has an effect; a person resumes a minute later."""
    KILLED_AFTER = "killed-after"
    GONE_BEFORE = "gone-before"
    """The same, and nobody comes back until the run has expired."""
    GONE_AFTER = "gone-after"
    LOST = "lost"
    """The call has its effect, and its answer doesn't arrive."""
    ERROR_AFTER = "error-after"
    """The call has its effect, and the answer says InternalError."""
    THROTTLED = "throttled"
    """Refused five times with the service's word for it."""
    EXPIRED = "expired"
    """From this call on the credentials are expired, until a person renews them."""
    CAPACITY = "capacity"
    """From this call on no zone has room for this type, for twenty minutes."""
    INVISIBLE = "invisible"
    """From this call on new things are listed half a minute late."""
    SECOND_UP = "second-controller"
    """At this call somebody resumes the same run elsewhere, up to the last launch."""
    SECOND_DOWN = "down-meanwhile"
    """At this call somebody ends the run elsewhere, without waiting for its jobs."""

    BOX_LOST = "box-lost"
    """The machine under the box dies: EC2 ends the instance."""
    BOX_WEDGED = "box-wedged"
    """Nothing on the box runs any more, and EC2 goes on calling it running."""
    TRAINER_KILLED = "trainer-killed"
    S3_MINUTE = "s3-refuses-a-minute"
    S3_EVER = "s3-refuses-for-ever"
    CLOCK_AHEAD = "clock-two-hours-ahead"
    CLOCK_BEHIND = "clock-two-hours-behind"
    DISK_FULL = "disk-full"
    SPOT_TAKEN = "spot-taken"
    """AWS gives its two minutes' notice, and takes the box."""

    SCHEDULES_OUT = "schedules-out"
    """The cloud's scheduler fires nothing from now on."""
    SCHEDULES_GONE = "schedules-gone"
    """Somebody deletes the run's schedules."""


AT_CALLS = tuple(Kind)[:12]
AT_BOXES = tuple(Kind)[12:21]
AT_TIMES = tuple(Kind)[21:]
_TEXT = re.compile(
    r"(?P<kind>[a-z0-9-]+)@(?:t\+(?P<t>\d+)|(?:(?P<box>[a-z0-9-]+):)?(?P<op>[a-z0-9_]+)#(?P<n>\d+))"
)


@dataclass(frozen=True, order=True)
class Fault:
    """One thing that goes wrong once. `at_s`: seconds after the start, for those at a time."""

    kind: Kind
    actor: str = CONTROLLER
    operation: str = ""
    nth: int = 0
    at_s: int = -1

    def __str__(self) -> str:
        if self.at_s >= 0:
            return f"{self.kind}@t+{self.at_s}"
        who = "" if self.actor == CONTROLLER else f"{self.actor}:"
        return f"{self.kind}@{who}{self.operation}#{self.nth}"


def parse(text: str) -> tuple[Fault, ...]:
    """A schedule such as `killed-after@run_instances#1 schedules-out@t+300`.

    Raises ValueError for anything else.
    """
    return tuple(_one(part) for part in text.replace(",", " ").split())


def _one(text: str) -> Fault:
    match = _TEXT.fullmatch(text)
    if not match:
        raise ValueError(f"{text!r} isn't a fault like killed-after@run_instances#1")
    kind = Kind(match["kind"])
    if match["t"]:
        return Fault(kind, at_s=int(match["t"]))
    return Fault(kind, match["box"] or CONTROLLER, match["op"], int(match["n"]))
