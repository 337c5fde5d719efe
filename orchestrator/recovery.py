"""What next for a box: launch it, wait, launch it again, or give its jobs up. Pure.

A box is lost when EC2 ended it for a reason of its own, or has forgotten it. What a person, the
kill schedule or the box itself ended isn't lost: launching that again would be against their will,
or fail once more. What the controller ended because it could not be armed is lost, too.
"Terminated" is what EC2 says, never what was asked of it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from orchestrator.aws.waits import VISIBLE_S
from orchestrator.box.state import SPOT_NOTICE
from orchestrator.lives import GONE, UNLISTED, Life
from orchestrator.plan import PlannedBox, PlannedJob
from orchestrator.results import OVER

ENDED = "its box ended: "
"""How the controller's own reason begins, for a job that no box will go on with."""
VISIBLE_AFTER = timedelta(seconds=VISIBLE_S)
"""How long DescribeInstances may not show an instance that RunInstances just returned."""
HEARD_WITHIN = timedelta(seconds=60)
"""An agent reports every ten seconds at the latest: one that did so lately is alive."""
_AWS_ITSELF = "Server."
_ITSELF = "Client.InstanceInitiatedShutdown"
_ASKED_FOR = "Client.UserInitiatedShutdown"
_UNARMED_TRIES = 3


@dataclass(frozen=True)
class Wait:
    """The box lives, or may live: nothing to do."""

    why: str


@dataclass(frozen=True)
class Launch:
    """Launch the box: a later attempt than the first takes over what is left of its jobs."""

    attempt: int
    why: str = ""


@dataclass(frozen=True)
class Close:
    """No box will go on with the jobs that are left: they are cut, for that reason."""

    reason: str


@dataclass(frozen=True)
class Over:
    """All its jobs have ended, and so has the box."""


Next = Wait | Launch | Close | Over


@dataclass(frozen=True)
class Facts:
    """What is known of one box and its jobs."""

    box: PlannedBox
    jobs: Sequence[PlannedJob]
    lives: Sequence[Life]
    """In order; the last is the newest."""
    statuses: Mapping[str, Mapping[str, Any]]
    """By job, as results.read_statuses reads them."""
    heard_at: datetime | None
    """When a look of ours found its newest heartbeat: by our own clock."""

    @property
    def left(self) -> list[PlannedJob]:
        """Jobs that haven't ended for good."""
        return [job for job in self.jobs if not is_over(self.statuses.get(job.name, {}))]

    @property
    def began(self) -> bool:
        """One of its jobs has said something: the box lived, whether or not it was ever seen."""
        return any(job.name in self.statuses for job in self.jobs)


def without_a_life(began: bool) -> str:
    """Why no box goes on with the jobs of one that no controller ever saw."""
    return ENDED + ("it ran while nobody watched" if began else "it was never launched")


def is_over(status: Mapping[str, Any]) -> bool:
    """Whether nothing more is to come of a job; one that a notice cut is only interrupted."""
    if status.get("complete"):
        return True
    return status.get("state") in OVER and not was_taken_away(status)


def was_taken_away(status: Mapping[str, Any]) -> bool:
    """Whether the job was cut because its spot instance was being taken away."""
    return status.get("state") == "cut" and str(status.get("reason")).startswith(SPOT_NOTICE)


def next_for(facts: Facts, now: datetime, *, ending: bool = False) -> Next:
    """What to do about one box; of a run that is being torn down nothing is launched."""
    lives, box = facts.lives, facts.box
    if not lives and ending:
        return Over()
    if not lives:
        return Launch(1) if now < box.drain_at else Close(without_a_life(facts.began))
    if living := [life for life in lives if life.state not in (GONE, "terminated")]:
        return Wait(f"EC2 calls {living[-1].instance_id} {living[-1].state}")
    newest = _telling(lives)
    if newest.state == GONE and now - (newest.noted_at or now) < VISIBLE_AFTER:
        return Wait("EC2 doesn't show it yet")
    if ending or not facts.left:
        return Over()
    return _after_the_end(facts, newest, now)


def _after_the_end(facts: Facts, newest: Life, now: datetime) -> Next:
    """The box has ended before its jobs."""
    why = UNLISTED if newest.state == GONE else newest.reason
    if not _is_lost(facts, newest):
        return Close(ENDED + why)
    if now >= facts.box.drain_at:
        return Close(f"{ENDED}{why}, and its time is over")
    if not any(job.retries >= _begun(facts.lives) for job in facts.left):
        return Close(f"{ENDED}{why}, and no retry is left")
    if facts.heard_at is not None and abs(now - facts.heard_at) < HEARD_WITHIN:
        return Wait("its agent was heard of a moment ago")
    return Launch(newest.attempt + 1, why)


def _telling(lives: Sequence[Life]) -> Life:
    """Of the newest attempt's instances the one whose end counts: its twins we ended ourselves."""
    newest = [life for life in lives if life.attempt == lives[-1].attempt]
    others = [life for life in newest if life.reason != _ASKED_FOR]
    return (others or newest)[-1]


def _begun(lives: Sequence[Life]) -> int:
    """Attempts that count: one that could not be armed did no work, but isn't made for ever."""
    unarmed = {life.attempt for life in lives if life.unarmed}
    return lives[-1].attempt - min(len(unarmed), _UNARMED_TRIES)


def _is_lost(facts: Facts, newest: Life) -> bool:
    if newest.state == GONE or newest.reason == UNLISTED or newest.unarmed:
        return True
    if newest.reason == _ITSELF:
        words = (facts.statuses.get(job.name, {}) for job in facts.left)
        return facts.box.spot and any(was_taken_away(status) for status in words)
    return newest.reason.startswith(_AWS_ITSELF)


def twins(lives: Iterable[Life]) -> list[str]:
    """Instances beside the oldest that lives of the same box: two controllers launched at once."""
    alive: dict[str, list[Life]] = {}
    for life in sorted(lives, key=lambda life: (life.launched_at, life.instance_id)):
        if life.state in ("pending", "running", "stopping", "stopped"):
            alive.setdefault(life.box, []).append(life)
    return [life.instance_id for of in alive.values() for life in of[1:]]
