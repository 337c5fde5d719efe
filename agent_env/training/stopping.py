"""SIGTERM: a box that drains asks its trainer to stop while nothing is lost.

In a training step the request waits for the step's end, where the trainer checkpoints; anywhere
else (loading, an eval) it takes effect at once.
"""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


# Not an Exception: the trainer turns those into text for the model when a tool is running.
class Stopped(BaseException):
    """The process was asked to stop, at a moment when it holds nothing worth a checkpoint."""


class StopRequest:
    """Whether somebody asked; and whether the answer may be immediate."""

    def __init__(self) -> None:
        self.asked = False
        self._held = False

    def listen(self) -> None:
        """Take SIGTERM from now on; the main thread only."""
        signal.signal(signal.SIGTERM, self._on_signal)

    def over(self) -> None:
        """Ignore SIGTERM: how the program ends is decided, though torch takes seconds to end."""
        signal.signal(signal.SIGTERM, signal.SIG_IGN)

    @contextmanager
    def held(self, held: bool = True) -> Iterator[None]:
        """Inside, a request is remembered (or, with False, raised as Stopped again)."""
        before, self._held = self._held, held
        try:
            if not held:
                self._raise_if_asked()
            yield
        finally:
            self._held = before

    def _on_signal(self, _number: int, _frame: FrameType | None) -> None:
        already, self.asked = self.asked, True
        if not already:
            self._raise_if_asked()

    def _raise_if_asked(self) -> None:
        if self.asked and not self._held:
            raise Stopped
