"""What all sessions of a process share."""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections.abc import Callable
from typing import Any

from agent_env.server.pace import Pace
from agent_env.server.pool import Pool
from agent_env.server.served import Served
from agent_env.server.watchdog import At, Watchdog, named

_log = logging.getLogger(__name__)

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
        self.watchdog = Watchdog()
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

    def overdue(self, running: asyncio.Future[Any], at: At) -> None:
        """A step is over its deadline."""
        _log.warning("%s takes longer than its deadline; its episode is unscored", named(at))
        if self.stuck is not None:
            loop, stuck = asyncio.get_running_loop(), self.stuck
            timer = loop.call_later(STUCK_S, _give_up, running, at, stuck)
            running.add_done_callback(lambda _: timer.cancel())


def _give_up(running: asyncio.Future[Any], at: At, stuck: Callable[[], None]) -> None:
    if not running.done():
        _log.error("%s doesn't end: this worker does, others go on", named(at))
        stuck()
