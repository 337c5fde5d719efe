"""What a factory needs in the process where AsyncGRPOTrainer keeps its environments.

That process is spawned: what it is given is pickled. A box's SIGTERM reaches it together with the
trainer, which still needs it for the step in hand; and when the trainer is killed, nothing of
TRL's ends it, so it would go on with its sessions for ever.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import asdict
from functools import cache
from multiprocessing.util import Finalize
from pathlib import Path
from typing import Any

from agent_env.client._site import Site
from agent_env.training._episode import Rollout
from agent_env.training.trl import Environment, Factory

STALE_AFTER_S = 300.0
"""TRL's `heartbeat_stale_after_s`: a worker that is silent for longer is taken for hung."""

_FIRST = 10
"""Priority of what is done before queues are handed over; those have -5."""
_writing = threading.Lock()


class WorkerFactory:
    """The same environments, made in a rollout worker that outlives a SIGTERM but not its trainer.

    Picklable. `stale_after_s` is the trainer's `heartbeat_stale_after_s`: raises ValueError when a
    single call of an environment may take as long. `episodes` is a file that gets a line for each
    rollout: what its environment saw.
    """

    def __init__(
        self,
        factory: Factory,
        *,
        stale_after_s: float = STALE_AFTER_S,
        episodes: Path | None = None,
    ) -> None:
        check_waits(factory, stale_after_s)
        self._factory = factory
        self._episodes = episodes

    def __call__(self) -> Environment:
        """A new environment; the first one also settles the process, if it is a worker."""
        if multiprocessing.parent_process() is not None:
            _settle()
            _close_at_end(self._factory.site)
        environment = self._factory()
        if self._episodes is not None:
            noted = _noted(environment.get_reward, environment, self._episodes)
            environment.get_reward = noted  # type: ignore[method-assign]
        return environment


def check_waits(factory: Factory, stale_after_s: float) -> None:
    """Raises ValueError if one call may take as long as a heartbeat may be missing."""
    policy = factory.policy
    for name in ("reset_timeout", "step_timeout"):
        longest_s = policy.call_s(getattr(policy, name))
        if longest_s >= stale_after_s:
            raise ValueError(
                f"{name}: with its waits a call may take {longest_s:g} s, and the trainer takes a "
                f"worker for hung after {stale_after_s:g} s: AgentEnv(url, "
                f"budget={stale_after_s / 2:g}) bounds every call"
            )


@cache
def _settle() -> None:
    """Once per process."""
    if threading.current_thread() is threading.main_thread():
        # The trainer says when to stop; a signal to the whole group is for it.
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    threading.Thread(target=_end_with_trainer, daemon=True).start()
    Finalize(None, _leave, exitpriority=_FIRST)


@cache
def _close_at_end(site: Site) -> None:
    """The worker's sessions are free as soon as it ends."""
    Finalize(None, site.close, exitpriority=_FIRST + 1)


def _leave() -> None:
    """End without handing over rollouts that nobody reads any more: TRL would wait 15 s for it.

    A worker that failed still has to say why.
    """
    if sys.exc_info()[0] is None:
        os._exit(0)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)


def _end_with_trainer() -> None:
    trainer = multiprocessing.parent_process()
    assert trainer is not None  # noqa: S101 - only a worker is settled
    trainer.join()
    os._exit(1)


def _noted(get_reward: Callable[[], float | None], environment: Environment, path: Path) -> Any:
    """The same, and a line for the trainer."""

    def get_and_note() -> float | None:
        reward = get_reward()
        line = json.dumps(asdict(environment._rollout)) + "\n"
        with _writing, path.open("a") as file:
            file.write(line)
        return reward

    return get_and_note


class EpisodeLog:
    """Reads that file in the trainer, whose samples hold nothing of an episode but its reward."""

    def __init__(self, path: Path) -> None:
        """What an earlier run wrote isn't read."""
        self._path = path
        self._read = path.stat().st_size if path.exists() else 0
        self._waiting: list[Rollout] = []

    def of(self, reward: float | None) -> Rollout | None:
        """The next episode that came to that reward, None for a lost one."""
        self._waiting += self._fresh()
        for episode in self._waiting:
            if episode.reward == reward:
                self._waiting.remove(episode)
                return episode
        return None

    def _fresh(self) -> Iterator[Rollout]:
        if not self._path.exists():
            return
        with self._path.open("rb") as file:
            file.seek(self._read)
            whole, end, _ = file.read().rpartition(b"\n")
        self._read += len(whole) + len(end)
        for line in whole.splitlines():
            yield Rollout(**json.loads(line))
