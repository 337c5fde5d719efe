"""Says from a thread which step holds up the event loop, and ends a process that can't stop.

A task that says it is quick runs on the event loop. If its step never ends, nothing on that loop
can say so: no other session is answered, no stop is heard. A thread can, as long as the step lets
threads run, which all Python code does; one call in C that does not is up to the front of workers.
"""

from __future__ import annotations

import asyncio
import faulthandler
import logging
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable

from agent_env.server.episode import Episode

_log = logging.getLogger(__name__)

LOOK_EVERY_S = 0.5
BLOCKED_S = 2.0
"""How long a step may hold up the event loop before the log says so, in seconds."""
ENDED_S = 6.0
"""How long before a worker gives itself up for that, so that its other sessions go on."""


At = tuple[Episode, str | None]
"""A reset or step: of which episode, and its tool's name. Another object for every step."""


def named(at: At) -> str:
    """How the log calls it."""
    episode, tool = at
    return f"{tool or 'list_tools'} of the task {episode.state(None).task_id}"


class Watchdog:
    """Looks at `at`, which the event loop's thread sets and clears around each step."""

    def __init__(self) -> None:
        self.at: At | None = None
        self.stuck: Callable[[], None] | None = None
        """Ends the process, where another can go on with its sessions."""
        self._over = threading.Event()

    def begin(self) -> None:
        """Watch the calling thread."""
        watched = threading.get_ident()
        self._over.clear()
        threading.Thread(target=self._watch, args=(watched,), name="watchdog", daemon=True).start()

    def close(self) -> None:
        """Watch no more."""
        self._over.set()

    def _watch(self, watched: int) -> None:
        seen, since, told = None, 0.0, False
        while not self._over.wait(LOOK_EVERY_S):
            now = time.monotonic()
            if self.at is not seen:
                seen, since, told = self.at, now, False
            if seen is None:
                continue
            if now - since >= BLOCKED_S and not told:
                told = True
                _log.error("%s", _complaint(seen, now - since, _line(watched)))
            if now - since >= ENDED_S and self.stuck is not None:
                _log.error("%s doesn't end: this worker does, others go on", named(seen))
                self.stuck()


def _complaint(at: At, seconds: float, where: str) -> str:
    return (
        f"{named(at)} says quick, but holds up every session for {seconds:.0f} s"
        f" ({where}): take `quick` from that task, its steps then run in threads"
    )


def _line(thread: int) -> str:
    frame = sys._current_frames().get(thread)
    return "?" if frame is None else f"{frame.f_code.co_filename}:{frame.f_lineno}"


def insist_on_stops(loop: asyncio.AbstractEventLoop, grace_s: float) -> None:
    """From the first SIGTERM or SIGINT on, end the process by force where it doesn't end itself.

    After the grace time if the event loop hasn't turned once, else after twice that and a second
    more, as running steps and open sockets have one grace time each. Call in the main thread.
    """
    heard, wakes = socket.socketpair()
    wakes.setblocking(False)
    # Python's own handlers wait for the main thread; what the kernel's handler writes doesn't.
    signal.set_wakeup_fd(wakes.fileno(), warn_on_full_buffer=False)
    threading.Thread(
        target=_insist, args=(loop, grace_s, heard, wakes), name="stopper", daemon=True
    ).start()


def _insist(
    loop: asyncio.AbstractEventLoop, grace_s: float, heard: socket.socket, _wakes: socket.socket
) -> None:
    while (number := heard.recv(1)[0]) not in (signal.SIGTERM, signal.SIGINT):
        pass
    end_by_force(loop, grace_s, signal.Signals(number).name)


def end_by_force(loop: asyncio.AbstractEventLoop, grace_s: float, why: str) -> None:
    """Wait as `insist_on_stops` says, then end the process; never returns."""
    turned = threading.Event()
    try:
        loop.call_soon_threadsafe(turned.set)
    except RuntimeError:  # the loop is closed: what is left is the interpreter's own end
        turned.set()
    if turned.wait(grace_s):
        threading.Event().wait(2 * grace_s + 1.0)
    _log.error(
        "%s: the server doesn't end by itself, so it is ended by force; this is where it is", why
    )
    faulthandler.dump_traceback()
    os._exit(1)
