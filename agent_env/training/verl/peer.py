"""What the rollouts of one worker process share: the client, the seats, the guard, the record."""

from __future__ import annotations

import asyncio
import json
import math
from dataclasses import asdict
from functools import cache
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary

from agent_env.client import AgentEnv
from agent_env.errors import TooManyUnscored
from agent_env.training._episode import Rollout
from agent_env.training.guard import UnscoredGuard
from agent_env.training.verl.loop_file import LoopSettings
from agent_env.types import END_TURN, ToolSpec

REFUSED = "no rollout is begun any more"
"""How the record's reason begins where a worker's guard has tripped."""


class Peer:
    """One env server as one worker sees it. Nothing is opened before the first rollout."""

    def __init__(self, settings: LoopSettings, workers: int) -> None:
        self.settings = settings
        self.env = AgentEnv(
            settings.url,
            patience=settings.patience,
            reset_timeout=settings.reset_timeout,
            step_timeout=settings.step_timeout,
        )
        self.guard = UnscoredGuard(settings.unscored_limit, settings.unscored_rollouts)
        self._workers = workers
        self._seats: WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Semaphore]
        self._seats = WeakKeyDictionary()

    def seats(self) -> asyncio.Semaphore:
        """As many as this worker may have rollouts at once; each is left within its deadline."""
        loop = asyncio.get_running_loop()
        if loop not in self._seats:
            self._seats[loop] = asyncio.Semaphore(self.settings.share(self._workers))
        return self._seats[loop]

    async def tools(self, split: str) -> list[ToolSpec]:
        """The split's tools; asked for once."""
        return await asyncio.to_thread(self.env.tools, split)

    def expect_luck(self, row: dict[str, Any]) -> None:
        """Raises TooManyUnscored once the guard has tripped, and ever after.

        The record says so: other workers' rollouts may go on, and verl trains on them in silence.
        """
        if why := self.guard.tripped:
            refused = Rollout(lost=f"{REFUSED}: {why}")
            self._write(refused, row)
            raise TooManyUnscored(str(refused.lost))

    def count(self, rollout: Rollout, row: dict[str, Any]) -> None:
        """One more rollout of a dataset row, scored or lost: for the guard and for the record."""
        self.guard.count(rollout.reward is not None, rollout.lost)
        self._write(rollout, row)

    def _write(self, rollout: Rollout, row: dict[str, Any]) -> None:
        if self.settings.record is not None:
            line = {"step": _whole(row.get("global_steps")), **_task(row), **asdict(rollout)}
            with Path(self.settings.record).open("a", encoding="utf-8") as file:
                file.write(json.dumps(line) + "\n")

    def facts(self, rollout: Rollout) -> dict[str, float]:
        """verl's `reward_extra_info`: the same keys with a number each, whatever happened.

        A score that this task doesn't record is not a number: 0 would be a lie.
        """
        told = {
            "env/unscored": self.guard.share,
            "env/tool_calls": rollout.tool_calls,
            "env/tool_failures": rollout.tool_failures,
            "env/turns": rollout.turns,
            "env/reopened": rollout.reopened,
            "env/continued": rollout.continued,
            "env/waited_s": rollout.waited_s,
        }
        scores = {
            f"score/{id_}": rollout.scores.get(id_, math.nan) for id_ in self.settings.scores
        }
        return {name: float(value) for name, value in (told | scores).items()}


@cache
def peer_of(settings: LoopSettings, workers: int) -> Peer:
    """The process's peer for these settings: verl builds a loop for every rollout."""
    return Peer(settings, workers)


def has_turns(tools: list[ToolSpec]) -> bool:
    """Whether a turn can be ended with plain text."""
    return any(tool.name == END_TURN for tool in tools)


def _task(row: dict[str, Any]) -> dict[str, Any]:
    told = row.get("extra_info") or {}
    return {name: told.get(name) for name in ("purpose", "bundle", "task_id", "split")}


def _whole(step: Any) -> int | None:
    return None if step is None else int(step)
