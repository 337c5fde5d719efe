"""An env server of one's own that is started again when it dies by itself, until it is stopped.

A thread waits for its end: rollouts may be played by other processes, which can start nothing, and
a server that is back before anyone asks for it costs no wait. The kernel ties what the thread
starts to the thread, which therefore ends after its server and never before.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
import weakref
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from agent_env.client._scratch import Scratch
from agent_env.client.local import STOP_TIMEOUT_S, BundleRef, LocalServer
from agent_env.errors import ServerDown

MOST_DEATHS = 15
"""In a row, each within LIFE_S of a start: a server that can't live. More than the ten after which
a server gives up a step that takes it down, so that one such rollout is lost alone."""
LIFE_S = 60.0
STARTS = 3
"""How often a server that doesn't listen is started before it is given up."""
_PAUSE_S = 1.0
_TAIL_LINES = 5
_TAIL_BYTES = 2000


class KeptServer:
    """A LocalServer, and whoever starts it again. Without a `journal` it has one of its own."""

    def __init__(
        self,
        bundle: BundleRef | Sequence[BundleRef],
        *,
        port: int = 0,
        max_sessions: int = 64,
        reward: str | None = None,
        journal: Path | None = None,
        log: Path | None = None,
        most_deaths: float = MOST_DEATHS,
    ) -> None:
        """Options and errors are LocalServer's; also raises JournalError."""
        scratch = Scratch() if journal is None else None
        try:
            server = LocalServer(
                bundle,
                port=port,
                max_sessions=max_sessions,
                reward=reward,
                journal=scratch.path / "journal" if scratch else journal,
                log=log,
            )
        except BaseException:
            if scratch:
                scratch.remove()
            raise
        self.url = server.url
        self._keeper = _Keeper(server, most_deaths)
        # The thread keeps the server alive, so the server can't notice that it is forgotten.
        self._end = weakref.finalize(self, _end, self._keeper, scratch, os.getpid())

    @property
    def pid(self) -> int:
        """The present child's process id."""
        return self._keeper.server.pid

    @property
    def restarts(self) -> int:
        """How often it died and was started again."""
        return self._keeper.restarts

    @property
    def gave_up(self) -> str | None:
        """Why it is dead for good; None while it isn't."""
        return self._keeper.gave_up

    def stop(self) -> None:
        """End it gracefully, for good; what it wrote into a journal of its own goes with it."""
        self._end()


class _Keeper:
    """What the thread knows: nothing of who owns it, so that an owner can be forgotten."""

    def __init__(self, server: LocalServer, most_deaths: float) -> None:
        self.server = server
        self.restarts = 0
        self.gave_up: str | None = None
        self._most_deaths = most_deaths
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._keep, name="env server", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """The server ends, then the thread."""
        self._stopped.set()
        self.server.stop()
        if threading.current_thread() is not self._thread:  # where it was forgotten is no matter
            self._thread.join(2 * STOP_TIMEOUT_S)

    def _keep(self) -> None:
        deaths = 0
        while True:
            began = time.monotonic()
            how = _how(self.server.wait())
            if self.server.over:
                return
            deaths = deaths + 1 if time.monotonic() - began < LIFE_S else 1
            if deaths >= self._most_deaths:
                often = f"{deaths} times in a row it ended within {LIFE_S:.0f} s of its start"
                self._give_up(f"{often}, at last it {how}")
                return
            if not self._revived(how):
                return

    def _revived(self, how: str) -> bool:
        for _ in range(STARTS):
            try:
                self.server.revive()
            except (ServerDown, OSError) as error:
                why = f"it {how}, and then: {error}"
            else:
                if self.server.over:
                    return False
                self.restarts += 1
                times = f"{self.restarts} times so far" if self.restarts > 1 else "the first time"
                _say(f"the env server at {self.server.url} {how}; it was started again, {times}")
                return True
            self._stopped.wait(_PAUSE_S)
            if self.server.over:
                return False
        self._give_up(why)
        return False

    def _give_up(self, why: str) -> None:
        where = f"the env server at {self.server.url} isn't started again"
        self.gave_up = f"{where}: {why}{_last_words(self.server.log)}"
        _say(self.gave_up)


def _end(keeper: _Keeper, scratch: Scratch | None, owner: int) -> None:
    if os.getpid() != owner:  # a forked copy of this process ends; the server isn't its own
        return
    keeper.stop()
    if scratch:
        scratch.remove()


def _how(status: int) -> str:
    """What ended it, from its exit status."""
    if status >= 0:
        return f"ended with exit status {status}"
    try:
        name = signal.Signals(-status).name
    except ValueError:  # most real-time signals have no name
        name = f"signal {-status}"
    return f"was killed by {name}" + (", as if out of memory" if name == "SIGKILL" else "")


def _last_words(log: Path | None) -> str:
    """The end of its log; without a log of its own they stand where this process's do."""
    if log is None:
        return "; what it said is on stderr"
    try:
        with log.open("rb") as file:
            file.seek(max(0, log.stat().st_size - _TAIL_BYTES))
            lines = file.read().decode(errors="replace").splitlines()
    except OSError as error:
        return f"; its log can't be read: {error}"
    said = [line.strip() for line in lines if line.strip()][-_TAIL_LINES:]
    return f"; the end of {log}: {' | '.join(said)}" if said else f"; it said nothing in {log}"


def _say(text: str) -> None:
    # A program without a stderr, or with one that is closed, has its server all the same.
    with suppress(AttributeError, OSError, ValueError):
        sys.stderr.write(f"{text}\n")
        sys.stderr.flush()
