"""The full eval, once in peace and once disturbed, by a pool of trainer's environments in threads.

Every thread holds one environment and with it one session, as a trainer's pool does.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any

from agent_env import AgentEnv
from agent_env.types import TaskData
from tests.agent_env.chaos.monkey import Monkey, Temper
from tests.agent_env.chaos.policy import Policy
from tests.agent_env.chaos.proxy import Proxy
from tests.agent_env.chaos.rollout import Line, play
from tests.agent_env.chaos.victim import Victim


@dataclass(frozen=True, kw_only=True)
class Share:
    """A bundle's part of the eval, and how many of the sessions play it."""

    bundle: str
    tasks: int
    attempts: int
    sessions: int


@dataclass(frozen=True, kw_only=True)
class Plan:
    """What is played: `think_s` is the longest that the policy takes for a step."""

    shares: Sequence[Share]
    think_s: float
    seed: int
    workers: int = 0
    """Processes that run the tasks; 0: the server's own."""

    @property
    def sessions(self) -> int:
        return sum(share.sessions for share in self.shares)


@dataclass
class Outcome:
    """The table of a run, and what happened to it."""

    lines: list[Line] = field(default_factory=list)
    lost: list[str] = field(default_factory=list)
    """Why rollouts have no reward, each with its task."""

    wall_s: float = 0.0
    down_s: float = 0.0
    strikes: dict[str, int] = field(default_factory=dict)
    cuts: int = 0
    continued: int = 0
    """Calls that went on over another connection than the one before."""

    @property
    def table(self) -> bytes:
        """The lines by task and attempt, whoever was ready first."""
        ordered = sorted(self.lines, key=lambda line: (line.task, line.attempt))
        return "".join(f"{line.text()}\n" for line in ordered).encode()


def run(plan: Plan, folder: Path, temper: Temper | None) -> Outcome:
    """Play the plan; in peace without a temper. Raises what a thread or a restart raised."""
    folder.mkdir(parents=True)
    bundles = [share.bundle for share in plan.shares]
    outcome = Outcome()
    with (
        Victim(bundles, folder, sessions=plan.sessions, workers=plan.workers) as victim,
        Proxy(victim.port) as proxy,
        AgentEnv(proxy.url) as env,
    ):
        pool = _Pool(plan, env, outcome)
        monkey = Monkey(victim, proxy, temper, plan.seed) if temper else None
        pool.opened()
        began = time.monotonic()
        if monkey:
            monkey.start()
        try:
            pool.play()
        finally:
            outcome.wall_s = time.monotonic() - began
            if monkey:
                monkey.end()
                outcome.strikes, outcome.down_s = dict(monkey.strikes), monkey.down_s
        outcome.cuts = proxy.cuts
    return outcome


Job = tuple[dict[str, Any], TaskData, int]


class _Pool:
    """One thread a session. All open before any plays, as a trainer's first batch does."""

    def __init__(self, plan: Plan, env: AgentEnv, outcome: Outcome) -> None:
        self._plan, self._outcome = plan, outcome
        self._ready = threading.Barrier(plan.sessions + 1)
        self._go, self._never = threading.Event(), threading.Event()
        self._lock = threading.Lock()
        self._failures: list[BaseException] = []
        self._threads = [thread for share in plan.shares for thread in self._share(share, env)]

    def opened(self) -> None:
        """Until every session is open."""
        for thread in self._threads:
            thread.start()
        try:
            self._ready.wait(60)
        except threading.BrokenBarrierError:
            self._raise()

    def play(self) -> None:
        """Until all is played."""
        self._go.set()
        for thread in self._threads:
            thread.join()
        self._raise()

    def _share(self, share: Share, env: AgentEnv) -> list[threading.Thread]:
        split = f"{share.bundle}/eval"
        rows, tasks = env.rows(split), env.tasks(split)
        jobs: SimpleQueue[Job] = SimpleQueue()
        for attempt in range(share.attempts):
            for index in range(share.tasks):
                jobs.put((rows[index], tasks[index], attempt))
        factory = env.factory[share.bundle]
        return [
            threading.Thread(target=self._guarded, args=(factory(), jobs))
            for _ in range(share.sessions)
        ]

    def _guarded(self, one: Any, jobs: SimpleQueue[Job]) -> None:
        try:
            self._work(one, jobs)
        except BaseException as error:
            self._failures.append(error)
            self._ready.abort()

    def _work(self, one: Any, jobs: SimpleQueue[Job]) -> None:
        one.reset()
        self._ready.wait(60)
        self._go.wait()
        while True:
            try:
                row, task, attempt = jobs.get_nowait()
            except Empty:
                break
            line, lost = play(one, row, task, attempt, self._plan.seed, self._think)
            with self._lock:
                self._outcome.lines.append(line)
                if lost is not None:
                    self._outcome.lost.append(f"{task.id} {attempt}: {lost}")
        with self._lock:
            self._outcome.continued += getattr(one._session, "continued", 0)

    def _think(self, policy: Policy, seen: str) -> None:
        self._never.wait(policy.thinks_s(seen, self._plan.think_s))

    def _raise(self) -> None:
        for failure in self._failures:
            if not isinstance(failure, threading.BrokenBarrierError):
                raise failure
