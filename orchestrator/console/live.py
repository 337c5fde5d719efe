"""A run's progress: live on a terminal, plain lines elsewhere."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import TYPE_CHECKING, NamedTuple, Self

from rich.live import Live

from orchestrator.clock import SystemClock
from orchestrator.console.views import result_view, step_of

if TYPE_CHECKING:
    from rich.console import Console

    from orchestrator.snapshot import Snapshot

_STEP_LINES_EVERY = timedelta(seconds=10)


class Progress:
    """Shows a run's snapshots: one live table on a terminal, changed lines elsewhere."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._live = Live(console=console, refresh_per_second=4) if console.is_terminal else None
        self._said: dict[str, _Said] = {}
        self._step = ""

    def __enter__(self) -> Self:
        if self._live:
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._live:
            self._live.stop()

    def step(self, words: str) -> None:
        """A step of the controller's own work; said again only when it is another."""
        if words == self._step:
            return
        self._step = words
        self._console.print(f"{SystemClock().now():%H:%M:%S} {words}", soft_wrap=True)

    def show(self, snapshot: Snapshot) -> None:
        """The newest snapshot; a line is printed when a state changes, or a step now and then."""
        if self._live:
            self._live.update(result_view(snapshot, references=False))
            return
        for box in snapshot.boxes:
            reason = f" ({box.reason})" if box.reason else ""
            self._say(f"box {box.name}", f"{box.state}{reason}", "", snapshot.at)
        for job in snapshot.jobs:
            reason = f" ({job.reason})" if job.reason else ""
            step = f" step {step_of(job)}" if job.step is not None else ""
            self._say(f"job {job.name}", f"{job.state}{reason}", step, snapshot.at)

        for words in snapshot.alarms:
            self._say(f"ALARM {words}", "", "", snapshot.at)

    def _say(self, name: str, state: str, step: str, at: datetime) -> None:
        said = self._said.get(name)
        soon = said is not None and at - said.at < _STEP_LINES_EVERY
        if said is None or said.state != state or (said.step != step and not soon):
            self._said[name] = _Said(state, step, at)
            self._console.print(
                f"{at:%H:%M:%S} {name}{state and ': '}{state}{step}", soft_wrap=True
            )


class _Said(NamedTuple):
    state: str
    step: str
    at: datetime
