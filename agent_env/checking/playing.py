"""Plays an episode of a task by a script and writes down what it said, as a server would."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TypeVar

from agent_env.bundle import Bundle, told
from agent_env.checking.arguments import made_up
from agent_env.errors import InvalidArguments, RewardUndefined, ToolError
from agent_env.task import Task
from agent_env.types import END_TURN, TaskData

SCRIPTS = ("idle", "random", "expert")
RANDOM_CALLS = 12
MAX_TURNS = 64

Call = tuple[str, dict[str, Any]]

T = TypeVar("T")


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

    def __init__(self, bundle: Bundle, at: Callable[[str], None] = lambda _: None) -> None:
        """`at` is told the name of each step before it is made."""
        self._bundle, self._at = bundle, at

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

        self._at("reset")
        self._timed(played, "reset", reset)
        return bool(played.faults)

    def _expert(self, data: TaskData, played: Played) -> list[Call]:
        rng = random.Random(f"expert/{data.id}")  # noqa: S311 - as above
        calls = self._called(
            played, "expert", lambda: list(self._bundle.expert(data, noise=0.0, rng=rng))
        )
        for call in calls or ():
            match call:
                case (str(), dict()):
                    continue
            returned = f"expert() returned {call!r} among its calls, not (name, arguments)"
            played.faults.append(("raises", returned))
            return []
        return calls or []

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
                return called(task, name, args)
            except ToolError as error:
                played.refused.append(f"{name}: {error}")
                return f"{type(error).__name__}: {error}"

        played.calls.append((name, args))
        self._at(name)
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
        except (Exception, SystemExit) as error:
            rule = "raises" if name == "reset" else "breaks"
            given = "" if args is None else f" with {args}"
            played.faults.append((rule, f"{name}{given}: {told(error)}"))
        took_s = time.perf_counter() - began
        if took_s > played.slowest_s:
            played.slowest_s, played.slowest = took_s, name
        if not isinstance(answer, str | None):
            played.faults.append(("raises", f"{name}() returned {answer!r}, not text or None"))
        played.steps.append((name if args is None else f"{name} {args}", repr(answer)))
        return answer

    def _called(self, played: Played, name: str, call: Callable[[], T]) -> T | None:
        """None where it raised, which is then a fault."""
        self._at(f"{name}()")
        try:
            return call()
        except RewardUndefined as error:
            played.faults.append(("reward-undefined", str(error)))
        except (Exception, SystemExit) as error:
            played.faults.append(("raises", f"{name}(): {told(error)}"))
        return None

    def _score(self, task: Task, played: Played) -> None:
        said: Any = self._called(played, "score", task.score)
        if played.faults:
            return
        if not isinstance(said, dict):
            returned = f"score() returned a {type(said).__name__}, not a dict"
            played.faults.append(("raises", returned))
            return
        scores = {name: _number(value) for name, value in said.items()}
        played.steps.append(("score", repr(sorted(scores.items(), key=repr))))
        for name, value in scores.items():
            if value is None or not 0 <= value <= 1:
                fault = f"the score {name!r} is {said[name]}"
                played.faults.append(("score-range", fault))
        known = {name: value for name, value in scores.items() if value is not None}
        if len(known) == len(scores):
            self._reward(known, played)

    def _reward(self, scores: dict[str, float], played: Played) -> None:
        faults = len(played.faults)
        said = self._called(played, "reward", lambda: self._bundle.reward(scores))
        if len(played.faults) > faults:
            return
        reward = _number(said)
        if reward is None or not 0 <= reward <= 1:
            played.faults.append(("reward-range", f"the reward is {said}"))
        played.steps.append(("reward", repr(reward)))
        played.reward = reward


def called(task: Task, name: str, args: dict[str, Any]) -> str | None:
    """Make a call as the server does. Raises ToolError, and what the task raises."""
    if name != END_TURN:
        return task.call_tool(name, args)
    response = args.get("response", "")
    if not isinstance(response, str) or set(args) - {"response"}:
        raise InvalidArguments("end_turn takes one text argument: response")
    return task.end_turn(response)


def _number(said: Any) -> float | None:
    """As the server reads a score: NumPy's and torch's numbers too; None for what is none."""
    try:
        return float(said) if not isinstance(said, str | bytes) else None
    except (TypeError, ValueError, RuntimeError):
        return None
