"""Acts on what `recovery` decides about each box, look after look, until nothing more can come.

What EC2 shows is taken into the books first, so that what a lost box didn't use is free again
before its successor is reserved. A successor that finds no room is tried again, less and less
often, until its time is over.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from orchestrator import recovery, results, run
from orchestrator.aws import boxes as ec2
from orchestrator.errors import (
    BudgetError,
    CapacityError,
    GpurunError,
    LaunchError,
    OverCap,
    QuotaError,
)
from orchestrator.hearing import Hearing
from orchestrator.launching import Launcher
from orchestrator.lives import GONE, Life, known_by, lives_by_box
from orchestrator.recovery import Close, Facts, Launch, Next, Wait, next_for
from orchestrator.run import EventKind

if TYPE_CHECKING:
    from orchestrator.aws.boxes import BoxRecord
    from orchestrator.aws.session import Session
    from orchestrator.plan import PlannedBox

_FIRST_PAUSE, _LONGEST_PAUSE = timedelta(minutes=1), timedelta(minutes=30)


@dataclass
class Pause:
    """Between two rounds of tries that found no room."""

    until: datetime
    length: timedelta


@dataclass
class Tender:
    """Looks after the boxes of one run once they have been launched."""

    session: Session
    launcher: Launcher
    on_step: Callable[[str], None]
    pauses: dict[str, Pause] = field(default_factory=dict)
    hearing: Hearing = field(default_factory=Hearing)

    def __post_init__(self) -> None:
        self.books, self.log = self.launcher.books, self.launcher.log
        self.record, self.clock = self.launcher.record, self.launcher.clock

    def steps(self, records: Sequence[BoxRecord]) -> dict[str, Next]:
        """What next for each box, given what EC2 lists; changes nothing."""
        lives = lives_by_box(self.books.lives(records))
        run_id, bucket, plan = self.record.run_id, self.launcher.bucket, self.record.plan
        statuses = results.read_statuses(bucket, run_id, [job.name for job in plan.jobs])
        beats = results.read_heartbeats(bucket, run_id, [box.name for box in plan.boxes])
        now, ending = self.clock.now(), self.is_ending()
        return {
            box.name: next_for(
                Facts(
                    box=box,
                    jobs=plan.jobs_of(box.name),
                    lives=lives.get(box.name, ()),
                    statuses=statuses,
                    heard_at=self.hearing.heard_at(box.name, beats.get(box.name), now),
                ),
                now,
                ending=ending,
            )
            for box in plan.boxes
        }

    def tend(self, records: Sequence[BoxRecord]) -> bool:
        """One look after all boxes; whether nothing more can come of any of them."""
        self._take_in(records)
        steps = self.steps(records)
        for name, step in steps.items():
            if isinstance(step, Close):
                self.books.close_jobs(name, step.reason)
            elif isinstance(step, Launch):
                self._launch_again(self.record.plan.box(name), step, records)
        return not any(isinstance(step, Wait | Launch) for step in steps.values())

    def is_ending(self) -> bool:
        """Somebody takes the run down."""
        return run.has(self.log.read(), EventKind.TEARING_DOWN)

    def _take_in(self, records: Sequence[BoxRecord]) -> None:
        """Whatever lives is written down, armed, and the only one of its box."""
        records = known_by(self.log.read(), records)
        lives = self.books.lives(records)
        twins = recovery.twins(lives)
        ec2.terminate(self.session, twins)
        new = {life.instance_id for life in lives if life.noted_at is None}
        unarmed = {record.instance_id for record in records if record.alive} - self._armed()
        for record in records:
            if record.instance_id in (new | unarmed) - set(twins):
                self.launcher.armer.note(record)
        # Whoever armed a box last may not have seen that another of it is the one that lives.
        doubted = {name for name, of in lives_by_box(lives).items() if len(of) > 1}
        kept = [record for record in records if record.instance_id not in twins]
        self.launcher.armer.arm_again(kept, doubted)
        self.books.note_ended(records, self.clock.now())

    def _armed(self) -> set[str | None]:
        return {e.instance_id for e in self.log.read() if e.kind is EventKind.ARMED}

    def _launch_again(self, box: PlannedBox, step: Launch, records: Sequence[BoxRecord]) -> None:
        now, pause = self.clock.now(), self.pauses.get(box.name)
        if pause and now < pause.until:
            return
        for life in self._gone(box, records):
            self.books.end_gone(life, now)
        if step.why:
            self.on_step(f"{box.name} was lost ({step.why}); its jobs go to a new box")
        try:
            if step.attempt > 1:
                self.books.reserve_again(box, step.attempt, now)
            self.launcher.launch(box, step.attempt, self.launcher.build([box]))
        except (BudgetError, CapacityError, QuotaError) as error:
            self._later(box, now, error)
        except (LaunchError, OverCap) as error:
            why = f"{recovery.ENDED}{step.why}, and there is no new one: {error.message}"
            self.books.close_jobs(box.name, why)
        else:
            self.pauses.pop(box.name, None)
        if self.is_ending():  # `down` came meanwhile and may have listed too early
            ec2.terminate(self.session, self._alive(box))

    def _gone(self, box: PlannedBox, records: Sequence[BoxRecord]) -> list[Life]:
        lives = self.books.lives(records)
        return [life for life in lives if life.box == box.name and life.state == GONE]

    def _alive(self, box: PlannedBox) -> list[str]:
        found = ec2.find_boxes(self.session, self.record.run_id, box.name)
        return [record.instance_id for record in found if record.alive]

    def _later(self, box: PlannedBox, now: datetime, error: GpurunError) -> None:
        before = self.pauses.get(box.name)
        length = min(before.length * 2, _LONGEST_PAUSE) if before else _FIRST_PAUSE
        self.pauses[box.name] = Pause(until=now + length, length=length)
        self.on_step(f"{error.message}\n  trying again in {length}")
