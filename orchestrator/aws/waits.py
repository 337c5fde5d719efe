"""The only place of the AWS side that waits: bounded, with growing pauses, on an injectable clock.

EC2, IAM and the scheduler are eventually consistent, and deleting a network means waiting for
interfaces that nobody can hurry. Every such wait goes through a `Patience`, so that each one ends.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import TypeVar

T = TypeVar("T")

FIRST_PAUSE_S = 0.25
LONGEST_PAUSE_S = 10.0
GROWTH = 1.6

# AWS documents seconds for roles and ids to be seen everywhere; a minute has margin.
PROPAGATION_S = 60.0
# How long DescribeInstances may not show an instance that RunInstances has made.
VISIBLE_S = 300.0
# EC2's own waiter gives up after ten minutes; large instances take one to five.
TERMINATION_S = 600.0
# How long an instance's interfaces may outlive it (facts of public incident reports: minutes).
DEPENDENCY_S = 600.0
# A whole teardown: boxes, network and a second round for what showed up late.
TEARDOWN_S = 1500.0


@dataclass(frozen=True)
class Patience:
    """How to wait: a sleep and a monotonic clock, both in seconds."""

    sleep: Callable[[float], None] = time.sleep  # noqa: TID251 - this is the waiter
    clock: Callable[[], float] = time.monotonic
    deadline: float | None = None
    """On `clock`; no wait goes beyond it, so that a row of waits ends as a whole."""

    def within(self, timeout_s: float) -> Patience:
        """The same, but all waits together end in `timeout_s` from now."""
        deadline = self.clock() + timeout_s
        return replace(self, deadline=min(deadline, self.deadline or deadline))

    def retry(
        self, act: Callable[[], T], *, when: Callable[[Exception], bool], timeout_s: float
    ) -> T:
        """Call `act` until it succeeds, or fails for another reason than `when`, or time is up.

        Raises:
            Exception: whatever `act` raised last.
        """
        pauses = self._pauses(timeout_s)
        while True:
            try:
                return act()
            except Exception as error:
                if not when(error) or not self._pause(pauses):
                    raise

    def until(self, check: Callable[[], T | None], *, timeout_s: float) -> T | None:
        """The first answer of `check` that isn't None; None when `timeout_s` is over."""
        pauses = self._pauses(timeout_s)
        while (answer := check()) is None:
            if not self._pause(pauses):
                return None
        return answer

    def _pause(self, pauses: Iterator[float]) -> bool:
        pause = next(pauses, None)
        if pause is None:
            return False
        self.sleep(pause)
        return True

    def _pauses(self, timeout_s: float) -> Iterator[float]:
        """Pauses that grow to ten seconds; the last one ends exactly at the deadline."""
        deadline = self.within(timeout_s).deadline or 0.0
        pause = FIRST_PAUSE_S
        while (left := deadline - self.clock()) > 0:
            yield min(pause, left)
            pause = min(pause * GROWTH, LONGEST_PAUSE_S)
