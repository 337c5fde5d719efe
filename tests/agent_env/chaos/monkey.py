"""Who disturbs: one hand on the server's process, another on its sockets, both by a seed."""

from __future__ import annotations

import random
import threading
import time
from collections import Counter
from dataclasses import dataclass

from tests.agent_env.chaos.proxy import Proxy
from tests.agent_env.chaos.victim import Victim

KINDS = ("SIGKILL", "SIGTERM", "SIGSTOP")


@dataclass(frozen=True, kw_only=True)
class Temper:
    """How bad it gets, in seconds: between two strikes, between two cuts, frozen for."""

    pause_s: tuple[float, float] = (0.2, 1.5)
    cut_pause_s: tuple[float, float] = (0.05, 0.4)
    frozen_s: tuple[float, float] = (0.1, 1.5)
    cut_at_once: int = 4


class Monkey:
    """Works from `start` to `end`; `strikes` by kind, `down_s` is what they took in all."""

    def __init__(self, victim: Victim, proxy: Proxy, temper: Temper, seed: int) -> None:
        self._victim, self._proxy, self._temper = victim, proxy, temper
        self._rng = random.Random(f"strikes {seed}")
        self._cut_rng = random.Random(f"cuts {seed}")
        self._over = threading.Event()
        self._threads = [threading.Thread(target=run) for run in (self._strike, self._cut)]
        self._deck: list[str] = []
        self.strikes: Counter[str] = Counter()
        self.down_s = 0.0
        self.failure: Exception | None = None

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def end(self) -> None:
        """Leaves a healthy server. Raises what went wrong with its restarts."""
        self._over.set()
        for thread in self._threads:
            thread.join()
        if self.failure is not None:
            raise self.failure

    def _strike(self) -> None:
        try:
            while not self._over.wait(self._rng.uniform(*self._temper.pause_s)):
                kind = self._next()
                began = time.monotonic()
                self._done(kind)
                self.down_s += time.monotonic() - began
                self.strikes[kind] += 1
        except Exception as error:
            self.failure = error

    def _next(self) -> str:
        """All three before any comes again, in an order of its own."""
        self._deck = self._deck or self._rng.sample(KINDS, len(KINDS))
        return self._deck.pop()

    def _done(self, kind: str) -> None:
        if kind == "SIGSTOP":
            self._victim.freeze()
            self._over.wait(self._rng.uniform(*self._temper.frozen_s))
            self._victim.thaw()
            self._victim.wait()
            return
        if kind == "SIGKILL":
            self._victim.kill()
        else:
            self._victim.stop()
        self._victim.start()

    def _cut(self) -> None:
        while not self._over.wait(self._cut_rng.uniform(*self._temper.cut_pause_s)):
            self._proxy.cut(self._cut_rng.randint(1, self._temper.cut_at_once), self._cut_rng)
