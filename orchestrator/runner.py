"""The order of things: reserve, build, launch, arm, watch, tear down, settle.

The only state machine. `drive` may be called at any time, by any machine, after any crash: it
looks at the tags in EC2 and at the run's log, and does what is still missing. Each creating call
is preceded by its log entry, so a crash in between is found again by tag or by ClientToken. How a
box is launched is in `launching`, what becomes of one that is lost in `recovery` and `tending`,
how a run is ended in `draining` and `finishing`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from orchestrator import alarms, run
from orchestrator.aws import boxes as ec2
from orchestrator.aws.skew import check_clock
from orchestrator.aws.tags import RunTags
from orchestrator.books import Books
from orchestrator.catalog import Catalog, load_catalog
from orchestrator.draining import Drain
from orchestrator.errors import (
    ApiError,
    CapacityError,
    ClockWrong,
    LaunchError,
    OverCap,
    QuotaError,
    TeardownError,
)
from orchestrator.finishing import Finisher
from orchestrator.launching import Launcher
from orchestrator.overdue import AFTER, end_overdue
from orchestrator.progress import snapshot
from orchestrator.purse import Purse, budget_of
from orchestrator.recovery import Launch
from orchestrator.run import EventKind, RunLog, RunRecord
from orchestrator.silence import Silence
from orchestrator.snapshot import Snapshot
from orchestrator.tending import Tender

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from orchestrator.aws.boxes import BoxRecord
    from orchestrator.aws.bucket import Bucket
    from orchestrator.aws.session import Session
    from orchestrator.clock import Clock


@dataclass
class Runner:
    """One run, driven from wherever it stands to its end."""

    session: Session
    bucket: Bucket
    record: RunRecord
    clock: Clock
    on_progress: Callable[[Snapshot], None] = lambda _: None
    on_step: Callable[[str], None] = lambda _: None
    poll_s: float = 15.0
    catalog: Catalog = field(default_factory=load_catalog)

    def __post_init__(self) -> None:
        self.log = RunLog(self.bucket, self.record.run_id)
        shared = budget_of(self.session, self.record)
        self.purse = Purse(self.record, self.bucket, self.log, self.catalog, shared)
        self.books = Books(self.record, self.bucket, self.log, self.catalog, self.purse)
        self.tags = RunTags(
            run_id=self.record.run_id,
            owner=self.record.owner,
            expires_at=self.record.expires_at,
            bucket=self.record.bucket,
        )

        def on_step(words: str) -> None:
            self.on_step(words)  # as it is by then

        self.launcher = Launcher(
            session=self.session,
            bucket=self.bucket,
            record=self.record,
            clock=self.clock,
            log=self.log,
            books=self.books,
            tags=self.tags,
            on_step=on_step,
        )
        self.tender = Tender(self.session, self.launcher, on_step)
        self.finisher = Finisher(
            session=self.session,
            record=self.record,
            clock=self.clock,
            log=self.log,
            purse=self.purse,
            books=self.books,
            instances=self.instances,
            on_step=on_step,
        )
        self.silence = Silence(self.record.plan.loss_bound_s)

    def launch_all(self) -> None:
        """Reserve, build and launch what isn't yet; every box is armed when this returns.

        Raises:
            GpurunError: a box could not be launched; what had been created is gone again.
            ApiError: no answer; the run goes on from there when it is resumed.
        """
        if self._tearing_down():
            return
        try:
            self.books.reserve(self.clock.now())
            self._launch_missing()
        except (CapacityError, QuotaError, LaunchError, OverCap):
            taken_down = self._tearing_down()  # `down` came meanwhile, and so it failed
            self._drain_and_finish()  # one that was launched earlier may have something to save
            if not taken_down:
                raise
            return
        except ApiError:
            if not self._tearing_down():
                raise
            self._drain_and_finish()  # `down` came meanwhile, and took what the launch needs
            return
        for box in self.instances():
            self.launcher.armer.note(box)
        if self._tearing_down():  # `down` came meanwhile and may have listed too early
            self._drain_and_finish()

    def drive(self) -> Snapshot:
        """From wherever the run stands to the end.

        Raises:
            ClockWrong: by this machine's clock nothing can be told of the run's deadlines.
            TeardownError: something with the run's tag is left; the message lists it.
        """
        check_clock(self.session, self.clock.now)
        self.launch_all()
        if not self._tearing_down():
            self._watch()
            self.finish()
        else:
            self._drain_and_finish()
        return self.look()

    def look(self) -> Snapshot:
        """What is known of the run right now; changes nothing."""
        events, found, now = self.log.read(), self.instances(), self.clock.now()
        letters = alarms.letters_of(self.session, self.record, now)
        return snapshot(
            self.record,
            events,
            found,
            self.bucket,
            self.catalog,
            now,
            alarms.alarms(self.record, events, found, letters, now),
        )

    def instances(self) -> list[BoxRecord]:
        """The run's instances as EC2 lists them now."""
        ids = {kind: set[str]() for kind in (EventKind.LAUNCHED, EventKind.ENDED)}
        for event in self.log.read():
            if event.instance_id and event.kind in ids:
                ids[event.kind].add(event.instance_id)
        known = ids[EventKind.LAUNCHED] - ids[EventKind.ENDED]
        return ec2.find_boxes(self.session, self.record.run_id, known=known)

    def drain_boxes(self) -> None:
        """Ask the boxes to save, sync and power off, and wait for those whose agent lives."""
        if run.has(self.log.read(), EventKind.CLEAN):
            return
        if not self._tearing_down():
            self.log.append(EventKind.TEARING_DOWN, self.clock.now())
        drain = Drain(self.session, self.bucket, self.record, self.clock, self.on_step)
        drain.wait(lambda: self.on_progress(self.look()), self.poll_s)

    def _drain_and_finish(self) -> None:
        """The end of a run that somebody takes down; nobody waits where it was ended at once."""
        events = self.log.read()
        if not any(e.kind is EventKind.TEARING_DOWN and e.reason for e in events):
            self.drain_boxes()
        self.finish()

    def finish(self) -> None:
        """Terminate, tear down, settle; a second time it is a no-op.

        Raises:
            TeardownError: something with the run's tag is left.
        """
        self.finisher.finish()

    def _tearing_down(self) -> bool:
        return run.has(self.log.read(), EventKind.TEARING_DOWN)

    def _launch_missing(self) -> None:
        """Boxes that never existed and still have time to do something."""
        steps = self.tender.steps(self.instances())
        boxes = self.record.plan.boxes
        missing = [box for box in boxes if steps[box.name] == Launch(1)]
        if not missing:
            return
        ground = self.launcher.build(missing)
        for box in missing:
            if self._tearing_down():
                return
            self.launcher.launch(box, 1, ground)

    def _watch(self) -> None:
        """Look until every box has ended; while AWS can't be reached the boxes need nobody."""
        self.on_step("running")
        while True:
            try:
                if self._all_ended():
                    return
            except (ApiError, QuotaError) as error:  # not CloudError: that won't come back
                if self.clock.now() > self.record.expires_at + AFTER:
                    raise
                what = "no answer" if isinstance(error, ApiError) else "not now"
                self.on_step(f"{what}, trying again: {error.message}")
            self.clock.sleep(self.poll_s)

    def _all_ended(self) -> bool:
        records, past = self.instances(), self.clock.now() > self.record.expires_at + AFTER
        late = self._end_overdue(records, past=past)
        over = self.tender.tend(records)
        self.finisher.note_failed_switches()
        seen = self.look()
        self.on_progress(seen)
        for line in self.silence.lines(seen):
            self.on_step(line)
        if not past:
            return over
        check_clock(self.session, self.clock.now)  # before a run is over by it
        return not late

    def _end_overdue(self, records: Sequence[BoxRecord], *, past: bool) -> list[BoxRecord]:
        """What could not be ended is tried again at the next look, while other boxes may live."""
        try:
            return end_overdue(
                self.session, self.record, records, self.clock.now, on_step=self.on_step
            )
        except (ClockWrong, TeardownError) as error:
            if past:
                raise
            self.on_step(error.message)
            return []
