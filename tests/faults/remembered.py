"""What a box did before, as long as everybody answers it as before.

A box is a function of what it is asked to be, of the times at which it looks, and of what S3 tells
it. So its steps are kept: in another life the same box makes the same calls, notes and power-offs
again without its agent, and every answer is compared. At the first that is another one the agent
is led through all of its earlier life, with the answers that it had then, and lives on by itself.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Any

from tests.faults.answers import Client, asked, is_outage
from tests.faults.machine import Machine
from tests.faults.trace import Event, Step, Traces
from tests.faults.trainer import Trainer, Written

_CLEAN = (0.0, None, False, False)


@dataclass
class Ghost:
    """Stands for a trainer whose work is only repeated."""

    job: str


class Remembered(Machine):
    """A box that repeats what it did in another life, until something is different."""

    def __init__(
        self,
        traces: Traces,
        *args: Any,
        true: Callable[[], float],
        switch: Callable[[str, str], None],
        note: Callable[[Written], None],
        **more: Any,
    ) -> None:
        self._traces, self._user_data = traces, args[1]
        self._real_time, self._real_switch, self._real_note = true, switch, note
        self._then: float | None = None
        super().__init__(*args, true=self._when, switch=self._off, note=self._wrote, **more)
        self._script: deque[Event] = deque()
        self._flags: tuple[Any, ...] | None = None
        """What becomes true of the box at the end of its script."""
        self._known: list[Step] | None = None
        """The steps to repeat; None for a box that lives by itself."""
        self._steps: list[Step] = []
        self._now = Step(0.0)
        self._key: Hashable = None
        self._killed = self._was_refused = False

    def boot(self) -> None:
        self.booted_at = self._true()
        self._key = self._user_data, self.instance_id, self.attempt, self.booted_at
        self._known = self._traces.find(self._key)
        if not self._known:
            self._known = None
            super().boot()

    def client(self, *, fast: bool) -> Any:
        return Client(self, fast)

    def real_client(self, *, fast: bool) -> Any:
        return super().client(fast=fast)

    def step(self) -> None:
        if self.booted_at is None or self.wedged or self.off:
            return
        if self._known is None:
            self._now = Step(self._true())
            self._live()
            return
        at = len(self._steps)
        if at < len(self._known) and self._known[at].at == self._true():
            self._repeat(self._known[at])
        else:
            self._catch_up([])

    def kill_trainers(self) -> None:
        self._killed = True
        if self._known is None:
            super().kill_trainers()

    def start_trainer(self, *args: Any) -> Trainer:
        trainer = super().start_trainer(*args)
        self.did("trainer", trainer.job, lambda: None)
        return trainer

    def did(self, what: str, about: Any, doing: Callable[[], Any]) -> Any:
        """Do it, and keep what came back; or find it as it was."""
        if self._script:
            return self._as_then(what, about)
        answer = doing(), self.off, self.wedged
        self._now.events.append(Event(what, about, answer))
        return answer[0]

    def _as_then(self, what: str, about: Any) -> Any:
        event = self._script.popleft()
        if (event.what, event.about) != (what, about):
            raise AssertionError(f"{self.name} did {what} {about}, and before {event}")
        if not self._script:
            self._change()
        return event.answer[0]

    def _when(self) -> float:
        return self._real_time() if self._then is None else self._then

    def _off(self, instance_id: str, command: str) -> None:
        self.did("off", command, lambda: self._real_switch(instance_id, command))

    def _wrote(self, written: Written) -> None:
        self.did("file", written, lambda: self._real_note(written))

    def _live(self) -> None:
        """By itself. Only what the next life can repeat is kept: no fault's work."""
        super().step()
        self._now.tick_s = self.tick_s
        self._was_refused = self._was_refused or any(
            is_outage(it.answer[0]) for it in self._now.events if it.what == "call"
        )
        if self._state() == _CLEAN and not self._was_refused:
            self._steps.append(self._now)
            self._traces.keep(self._key, self._steps)

    def _repeat(self, step: Step) -> None:
        done = []
        for event in step.events:
            answer = self._again(event), self.off, self.wedged
            done.append(Event(event.what, event.about, answer))
            if answer != event.answer or self._state() != _CLEAN:
                self._catch_up(done)
                return
        self.tick_s = step.tick_s
        self._steps.append(step)

    def _again(self, event: Event) -> Any:
        match event.what:
            case "call":
                fast, operation, parameters = event.about
                return asked(self.real_client(fast=fast), operation, parameters)
            case "off":
                return self._real_switch(self.instance_id, event.about)
            case "file":
                return self._real_note(event.about)
            case _:
                return self.trainers.append(Ghost(event.about))  # type: ignore[arg-type]

    def _state(self) -> tuple[Any, ...]:
        return self.skew_s, self.taken_at, self.disk_full, self._killed

    def _catch_up(self, done: list[Event]) -> None:
        """Live all of it again up to now, of this moment what was `done`; then by itself."""
        past, self._known = self._steps, None
        self._flags = (*self._state(), self.off, self.wedged)
        self.skew_s, self.taken_at, self.disk_full, self._killed = _CLEAN
        self.off = self.wedged = False
        self.trainers.clear()
        self._script.extend(event for step in past for event in step.events)
        self._script.extend(done)
        self._then = self.booted_at
        super().boot()
        for step in past:
            self._then = step.at
            super().step()
        self._then, self._now = None, Step(self._when(), done)
        self._live()

    def _change(self) -> None:
        if self._flags is None:
            return
        *state, self.off, self.wedged = self._flags
        self.skew_s, self.taken_at, self.disk_full, self._killed = state
        self._flags = None
        if self._killed:
            super().kill_trainers()
