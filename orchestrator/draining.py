"""Before a run is ended: its boxes are asked to save, sync and power off, and are waited for."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING

from orchestrator import results
from orchestrator.aws import boxes as ec2
from orchestrator.errors import ClockWrong, TeardownError
from orchestrator.hearing import Hearing
from orchestrator.overdue import end_overdue

if TYPE_CHECKING:
    from orchestrator.aws.boxes import BoxRecord
    from orchestrator.aws.bucket import Bucket
    from orchestrator.aws.session import Session
    from orchestrator.clock import Clock
    from orchestrator.run import RunRecord

# An agent looks for the request to stop every ten seconds, and then drains as at its deadline.
_HEARS_WITHIN = timedelta(seconds=20)
_POLL_S = 3.0


@dataclass
class Drain:
    """One wait for the boxes of a run; any number of controllers may wait at once."""

    session: Session
    bucket: Bucket
    record: RunRecord
    clock: Clock
    on_step: Callable[[str], None]
    hearing: Hearing = field(default_factory=Hearing)

    def wait(self, show: Callable[[], object], poll_s: float) -> None:
        """Ask every living box, and wait for those whose agent lives; `show` is called meanwhile.

        Ends with the longest drain of the plan at the latest.
        """
        run_id, boxes = self.record.run_id, self.record.plan.boxes
        for box in self._alive():
            self.bucket.put(f"runs/{run_id}/boxes/{box.box}/stop", b"")
        until = self.clock.now() + _HEARS_WITHIN + max(b.poweroff_at - b.drain_at for b in boxes)
        if self._is_anybody_there():
            self.on_step(
                "asking the boxes to save and power off "
                f"(gpurun down {run_id} --now 'why' doesn't wait)"
            )
        while self._is_anybody_there() and self.clock.now() < until:
            show()
            self.clock.sleep(min(poll_s, _POLL_S))

    def _alive(self) -> list[BoxRecord]:
        """Boxes of the plan: what else carries the run's tag has no agent of ours."""
        names = {box.name for box in self.record.plan.boxes}
        found = ec2.find_boxes(self.session, self.record.run_id)
        with suppress(ClockWrong, TeardownError):  # the teardown that follows ends it, or says so
            end_overdue(self.session, self.record, found, self.clock.now, self.on_step)
        return [box for box in found if box.alive and box.box in names]

    def _is_anybody_there(self) -> bool:
        """Whether some box still runs whose agent was heard of lately."""
        alive = {box.box: box for box in self._alive() if box.state == "running"}
        beats = results.read_heartbeats(self.bucket, self.record.run_id, alive)
        now = self.clock.now()
        heard = [
            self.hearing.hears(name, beat, now)
            for name, beat in beats.items()
            if beat.get("instance_id") in (None, alive[name].instance_id)
        ]
        return any(heard)
