"""Plays an episode of a task by a script and writes down what it said, as a server would."""

from __future__ import annotations

import math
import random
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from agent_env.bundle import Bundle
from agent_env.checking.arguments import made_up
from agent_env.errors import RewardUndefined, ToolError
from agent_env.task import Task
from agent_env.types import END_TURN, TaskData

SCRIPTS = ("idle", "random", "expert")
RANDOM_CALLS = 12
MAX_TURNS = 64

Call = tuple[str, dict[str, Any]]


@dataclass
class Played:
    """One episode; `steps` are (what was done, what it answered)."""

    steps: list[tuple[str, str]] = field(default_factory=list)
    calls: list[Call] = field(default_factory=list)
    """What was called, in order."""
    refused: list[str] = field(default_factory=list)
    """Calls of the model that were answered with a fault."""
    faults: list[tuple[str, str]] = field(default_factory=list)
    """Rules broken, and how."""
    reward: float | None = None
    slowest_s: float = 0.0
    slowest: str = ""


class Player:
    """Plays tasks of one bundle."""

    def __init__(self, bundle: Bundle) -> None:
        self._bundle = bundle

    def scripts(self) -> tuple[str, ...]:
        has_expert = type(self._bundle).expert is not Bundle.expert
        return SCRIPTS if has_expert else SCRIPTS[:-1]

    def play(self, task: Task, data: TaskData, script: str, seed: int) -> Played:
        """Reset the task and play it to its end; nothing is raised."""
        played = Played()
        over = self._begin(task, played, seed)
        rng = random.Random(f"{script}/{data.id}")  # noqa: S311 - dice that fall alike everywhere
        if not over and script == "expert":
            over = self._follow(task, played, self._expert(data, played))
        if not over and script == "random":
            over = self._explore(task, data, played, rng)
        for _ in range(MAX_TURNS):
            if over or played.faults:
                break
            over = self._step(task, played, END_TURN, {"response": ""})
        else:
            played.faults.append(("never-ends", f"{MAX_TURNS} turns were ended, another follows"))
        if not played.faults:
            self._score(task, played)
        return played

    def _begin(self, task: Task, played: Played, seed: int) -> bool:
        def reset() -> str | None:
            return task.reset(seed)

        self._timed(played, "reset", reset)
        return bool(played.faults)

    def _expert(self, data: TaskData, played: Played) -> list[Call]:
        try:
            rng = random.Random(f"expert/{data.id}")  # noqa: S311 - as above
            return self._bundle.expert(data, noise=0.0, rng=rng)
        except Exception as error:
            played.faults.append(("breaks", f"expert(): {type(error).__name__}: {error}"))
            return []

    def _follow(self, task: Task, played: Played, calls: list[Call]) -> bool:
        """True once the episode has ended. A call after its end is a fault of the script."""
        for place, (name, args) in enumerate(calls):
            if self._step(task, played, name, args):
                if place + 1 < len(calls) and not played.faults:
                    after = f"the episode ended at call {place + 1} of {len(calls)}, {name}"
                    played.refused.append(after)
                return True
        return False

    def _explore(self, task: Task, data: TaskData, played: Played, rng: random.Random) -> bool:
        specs = type(task).tools()
        for _ in range(RANDOM_CALLS if specs else 0):
            spec = rng.choice(specs)
            seen = " ".join([data.prompt, *(text for _, text in played.steps)])
            if self._step(task, played, spec.name, made_up(spec.input_schema, seen, rng)):
                return True
        return False

    def _step(self, task: Task, played: Played, name: str, args: dict[str, Any]) -> bool:
        """True once the episode has ended, or the task has broken."""

        def act() -> str | None:
            try:
                return task.end_turn(**args) if name == END_TURN else task.call_tool(name, args)
            except ToolError as error:
                played.refused.append(f"{name}: {error}")
                return f"{type(error).__name__}: {error}"

        played.calls.append((name, args))
        answer = self._timed(played, name, act, args)
        return bool(played.faults) or task.done or (name == END_TURN and answer is None)

    @staticmethod
    def _timed(
        played: Played,
        name: str,
        act: Callable[[], str | None],
        args: dict[str, Any] | None = None,
    ) -> str | None:
        began, answer = time.perf_counter(), None
        try:
            answer = act()
        except Exception as error:
            played.faults.append(
                ("breaks", f"{name} with {args}: {type(error).__name__}: {error}")
            )
        took_s = time.perf_counter() - began
        if took_s > played.slowest_s:
            played.slowest_s, played.slowest = took_s, name
        played.steps.append((name if args is None else f"{name} {args}", repr(answer)))
        return answer

    def _score(self, task: Task, played: Played) -> None:
        try:
            scores = task.score()
        except Exception as error:
            played.faults.append(("breaks", f"score(): {type(error).__name__}: {error}"))
            return
        played.steps.append(("score", repr(sorted(scores.items()))))
        for name, value in scores.items():
            if not 0 <= value <= 1:
                played.faults.append(("score-range", f"the score {name!r} is {value}"))
        self._reward(scores, played)

    def _reward(self, scores: dict[str, float], played: Played) -> None:
        try:
            reward = self._bundle.reward(scores)
        except RewardUndefined as error:
            played.faults.append(("reward-undefined", str(error)))
            return
        except Exception as error:
            played.faults.append(("breaks", f"reward(): {type(error).__name__}: {error}"))
            return
        if reward is None or math.isnan(reward) or not 0 <= reward <= 1:
            played.faults.append(("reward-range", f"the reward is {reward}"))
        played.steps.append(("reward", repr(reward)))
        played.reward = reward
