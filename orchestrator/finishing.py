"""The end of a run: what carries its tag goes, its lines are settled, its budget is told."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from orchestrator import alarms, run
from orchestrator.aws import stack
from orchestrator.errors import ApiError, BudgetError, TeardownError
from orchestrator.run import EventKind, RunLog, RunRecord
from orchestrator.unseen import unseen_for

if TYPE_CHECKING:
    from collections.abc import Callable

    from orchestrator.aws.boxes import BoxRecord
    from orchestrator.aws.session import Session
    from orchestrator.books import Books
    from orchestrator.clock import Clock
    from orchestrator.purse import Purse


@dataclass
class Finisher:
    """Ends one run, as often as need be, from wherever it stands."""

    session: Session
    record: RunRecord
    clock: Clock
    log: RunLog
    purse: Purse
    books: Books
    instances: Callable[[], list[BoxRecord]]
    """The run's, as EC2 lists them now."""
    on_step: Callable[[str], None]

    def finish(self) -> None:
        """Terminate, tear down, settle; a second time it is a no-op.

        Raises:
            TeardownError: something with the run's tag is left.
        """
        run_id, clean = self.record.run_id, run.has(self.log.read(), EventKind.CLEAN)
        if clean and not stack.leftovers(self.session, run_id):
            self._tell_budget()
            return
        if not run.has(self.log.read(), EventKind.TEARING_DOWN):
            self.log.append(EventKind.TEARING_DOWN, self.clock.now())
        self.note_failed_switches()
        self.on_step("tearing down")
        left = stack.teardown(self.session, run_id, self.clock.now())
        if not left and self._wait_until_all_shows():
            left = stack.teardown(self.session, run_id, self.clock.now())
        self.books.note_ended(self.instances(), self.clock.now(), over=True)
        if left:
            items = "\n".join(f"    {item.kind} {item.id}  {item.detail}" for item in left)
            raise TeardownError(
                f"Left behind by {run_id}:\n{items}", hint=f"Try again: gpurun down {run_id}"
            )
        self.purse.close(self.clock.now())
        if not clean:
            self.log.append(EventKind.CLEAN, self.clock.now())
        self._tell_budget()

    def note_failed_switches(self) -> None:
        """The teardown deletes the dead letters; what they say stays in the log."""
        now = self.clock.now()
        letters = alarms.letters_of(self.session, self.record, now)
        for letter in alarms.unnoted(letters, self.log.read()):
            self.on_step(f"the cloud's own switch for {letter.box} failed: {letter.reason}")
            self.log.append(EventKind.SWITCH_FAILED, now, box=letter.box, reason=letter.reason)

    def _tell_budget(self) -> None:
        """A budget that can't be told keeps too little free; the run is over all the same."""
        try:
            self.purse.tell_budget(self.clock.now())
        except (ApiError, BudgetError) as error:
            again = f"gpurun budget {self.record.budget}"
            self.on_step(f"the budget can't be told what this cost: {error}\n  tell it: {again}")

    def _wait_until_all_shows(self) -> bool:
        """Whether it waited: something may have been there that the look before didn't show."""
        left = unseen_for(self.session, self.record, self.log.read(), self.clock.now())
        if not left:
            return False
        self.books.note_ended(self.instances(), self.clock.now())  # of some EC2 tells no time
        seconds = left.total_seconds()
        self.on_step(f"looking again in {seconds:.0f} s, when AWS shows what was made last")
        self.clock.sleep(seconds)
        return True
