"""Background work: a lane does one thing at a time, in a thread that never holds the box up."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass

from orchestrator.box.actions import Action


@dataclass(frozen=True)
class Outcome:
    """What became of an action: a value, or the error that it raised."""

    action: Action
    value: object
    error: Exception | None


class Lane:
    """`wake` is set whenever a piece of work is over."""

    def __init__(self, name: str, wake: threading.Event) -> None:
        self.name, self._wake = name, wake
        self._busy = False
        self._outcome: Outcome | None = None

    @property
    def busy(self) -> bool:
        """True until the outcome has been taken."""
        return self._busy

    def start(self, action: Action, work: Callable[[], object]) -> None:
        self._busy = True
        thread = threading.Thread(
            target=self._do, args=(action, work), name=self.name, daemon=True
        )
        thread.start()

    def take(self) -> Outcome | None:
        """The outcome of the work that has ended since, once."""
        outcome, self._outcome = self._outcome, None
        if outcome:
            self._busy = False
        return outcome

    def _do(self, action: Action, work: Callable[[], object]) -> None:
        try:
            self._outcome = Outcome(action, work(), None)
        except Exception as error:
            self._outcome = Outcome(action, None, error)
        self._wake.set()
