"""What all sessions of a process share."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Callable
from typing import Any

from agent_env.server.pace import Pace
from agent_env.server.pool import Pool
from agent_env.server.served import Served

STUCK_S = 10.0
"""How long after its deadline a step may run on before its worker is ended, in seconds."""


class Work:
    """The tasks, the threads, and who is busy."""

    def __init__(self, served: Served, server: str | None = None) -> None:
        self.served = served
        self.server = server or uuid.uuid4().hex[:12]
        """Names this run of the server, whichever of its workers this is."""
        self.pool = Pool()
        self.pace = Pace()
        self.busy = 0
        self.idle = asyncio.Event()
        self.idle.set()
        self.told: Callable[[int], None] = lambda _: None
        """Hears how many steps threads are at."""
        self.stuck: Callable[[], None] | None = None
        """Called for a step that doesn't end long after its deadline."""

    def began(self) -> None:
        """A thread is given something to do."""
        self.busy += 1
        self.idle.clear()
        self.told(self.busy)

    def ended(self, _: object) -> None:
        """It has ended."""
        self.busy -= 1
        if not self.busy:
            self.idle.set()
        self.told(self.busy)

    def overdue(self, running: asyncio.Future[Any]) -> None:
        """A step is over its deadline."""
        if self.stuck is not None:
            loop, stuck = asyncio.get_running_loop(), self.stuck
            timer = loop.call_later(STUCK_S, lambda: None if running.done() else stuck())
            running.add_done_callback(lambda _: timer.cancel())
