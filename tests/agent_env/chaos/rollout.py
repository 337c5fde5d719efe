"""One rollout through a trainer's own environment, and what is written down of it."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass
from typing import Any

from agent_env.client import Session
from agent_env.training.trl import Environment
from agent_env.types import Observation, TaskData
from tests.agent_env.chaos.policy import Policy

HIDDEN = ("session", "episode_id")
"""Of an observation's metadata: new for every episode."""


@dataclass(frozen=True)
class Line:
    """A row of the table; `chain` is a hash over every observation in order."""

    task: str
    attempt: int
    chain: str
    reward: float | None
    metrics: dict[str, float]
    calls: int
    steps: int | None
    """As the server counted them; None where it could not be asked any more."""

    def text(self) -> str:
        return json.dumps(asdict(self), sort_keys=True)


class Recorded:
    """A session that hashes what it is told."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self.chain = ""
        self.calls = 0

    def reset(self, **chosen: Any) -> Observation:
        self.chain, self.calls = "", 0
        return self._seen(self._session.reset(**chosen))

    def call_tool(self, name: str, arguments: dict[str, Any]) -> Observation:
        self.calls += 1
        return self._seen(self._session.call_tool(name, arguments))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._session, name)

    def _seen(self, observation: Observation) -> Observation:
        told = observation.model_dump(mode="json")
        told["metadata"] = {k: v for k, v in told["metadata"].items() if k not in HIDDEN}
        text = self.chain + json.dumps(told, sort_keys=True)
        self.chain = hashlib.sha256(text.encode()).hexdigest()
        return observation


def play(
    one: Environment,
    row: dict[str, Any],
    task: TaskData,
    attempt: int,
    seed: int,
    think: Callable[[Policy, str], object],
) -> tuple[Line, str | None]:
    """What a trainer does with an environment; also why there is no reward, if so."""
    session, policy = recorded(one), Policy(task, attempt, seed)
    one.reset(**row)
    while not one._rollout.done and one._rollout.lost is None:
        think(policy, session.chain)
        call = policy.next(session.chain)
        if call is None:
            break
        name, arguments = call
        with suppress(Exception):  # a trainer tells the model
            getattr(one, name)(**arguments)
    reward = one.get_reward()
    rollout = one._rollout
    steps = session.state().step_count if rollout.lost is None else None
    line = Line(task.id, attempt, session.chain, reward, rollout.scores, session.calls, steps)
    return line, rollout.lost


def recorded(one: Environment) -> Recorded:
    """Its session, recorded from now on."""
    if not isinstance(one._session, Recorded):
        one._session = Recorded(one._session)  # type: ignore[assignment]
    session = one._session
    assert isinstance(session, Recorded)
    return session
