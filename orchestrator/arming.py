"""The cloud's own switches of the boxes that live: made at once, and again where one is gone.

What can't be armed is ended. A switch names one instance, so it is looked into where two were one.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from orchestrator.aws import boxes as ec2
from orchestrator.aws import role, schedules
from orchestrator.aws.tags import named
from orchestrator.errors import ApiError, CapacityError, GpurunError, LaunchError, QuotaError
from orchestrator.run import EventKind, RunLog, RunRecord

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

    from orchestrator.aws.boxes import BoxRecord
    from orchestrator.aws.session import Session
    from orchestrator.aws.tags import RunTags
    from orchestrator.books import Books
    from orchestrator.clock import Clock


@dataclass
class Armer:
    """Arms the boxes of one run."""

    session: Session
    record: RunRecord
    clock: Clock
    log: RunLog
    books: Books
    tags: RunTags
    on_step: Callable[[str], None]

    def arm(self, box: BoxRecord) -> None:
        """Make an instance's kill schedule, or end it: it is lost then, and may be launched again.

        Raises:
            ApiError: it could not be armed; never a refusal to launch, as it was launched.
        """
        try:
            self._ensure_kill(box)
        except BaseException as error:
            ec2.terminate(self.session, [box.instance_id])
            why = (str(error) or type(error).__name__).partition("\n")[0]
            with suppress(GpurunError):  # why it could not be armed matters more
                self._write(EventKind.UNARMED, box, reason=why)
            if isinstance(error, CapacityError | QuotaError | LaunchError):
                raise ApiError(error.message, hint=error.hint) from error
            raise

    def keep(self, older: BoxRecord) -> None:
        """Of one that was launched before, the schedule may name what was made just now."""
        if self._is_armed(older.instance_id):
            self._try_again(self._ensure_kill, older)
        else:
            self.arm(older)

    def note(self, box: BoxRecord, *, is_armed: bool = False) -> None:
        """Make an instance's kill schedule, and write it down; what can't be armed is ended.

        Raises:
            ApiError: it could not be armed; it is ended.
        """
        if box.box not in {each.name for each in self.record.plan.boxes}:
            return  # somebody else's, with the run's tag on it: the teardown ends it
        arms = box.alive and (is_armed or not self._is_armed(box.instance_id))
        if arms and not is_armed:
            self.arm(box)
        for life in self.books.lives([box]):
            if life.instance_id == box.instance_id and life.noted_at is None:
                self.books.note_launched(life, self.clock.now())
        if arms and not self._is_armed(box.instance_id):
            self._write(EventKind.ARMED, box)

    def arm_again(
        self, boxes: Sequence[BoxRecord], doubted: Collection[str] = frozenset()
    ) -> None:
        """Make the guard and the kill schedule of each living box that somebody deleted.

        The kill schedule of a `doubted` box may name another instance, and is looked into.

        A box whose schedules can't be made now goes on: it still ends itself, and the next look
        tries again. Raises CloudError, CredentialsError.
        """
        names = {box.name for box in self.record.plan.boxes}
        armed = [box for box in boxes if box.alive and self._is_armed(box.instance_id)]
        alive = [box for box in armed if box.box in names]  # a person may have changed a tag
        if not alive:
            return
        there = schedules.find_kills(self.session, self.record.run_id)
        for box in alive:
            if self.clock.now() >= self.record.plan.box(box.box).cloud_at:
                continue
            if schedules.guard_name(self.record.run_id, box.box) not in there:
                self.on_step(f"the guard of {box.box} is gone; it is made again")
                self._try_again(self._ensure_guard, box)
            missing = named(self.record.run_id, box.box) not in there
            if missing:
                self.on_step(f"the schedule that ends {box.box} is gone; it is made again")
            if missing or box.box in doubted:
                self._try_again(self._ensure_kill, box)

    def _write(self, kind: EventKind, box: BoxRecord, **fields: str) -> None:
        named = {"box": box.box, "attempt": box.attempt, "instance_id": box.instance_id}
        self.log.append(kind, self.clock.now(), **named, **fields)

    def _ensure_kill(self, box: BoxRecord) -> None:
        at = self.record.plan.box(box.box).cloud_at
        arn = role.ensure_kill_role(self.session, self.tags)
        schedules.ensure_kill(self.session, self.tags, box.box, box.instance_id, at, arn)

    def _ensure_guard(self, box: BoxRecord) -> None:
        at = self.record.plan.box(box.box).cloud_at
        arn = role.ensure_kill_role(self.session, self.tags)
        schedules.ensure_guard(self.session, self.tags, box.box, at, arn)

    def _try_again(self, make: Callable[[BoxRecord], None], box: BoxRecord) -> None:
        try:
            make(box)
        except (ApiError, QuotaError) as error:
            self.on_step(f"it can't be made now: {error.message}")

    def _is_armed(self, instance_id: str) -> bool:
        events = self.log.read()
        return any(e.kind is EventKind.ARMED and e.instance_id == instance_id for e in events)
