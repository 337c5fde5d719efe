"""One attempt at one task: a policy and a session take turns until the episode is over.

What the infrastructure or the policy's own machinery did leaves the attempt unscored, with a
reason; what the policy did wrong is told to it and scored.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any, Protocol

from agent_env.errors import PolicyError
from agent_env.evaluation.history import Call, History, Message, Move, Policy, spoken
from agent_env.evaluation.results import Row
from agent_env.evaluation.sendable import sendable
from agent_env.types import END_TURN, Observation, TaskData, ToolSpec

MAX_TURNS = 64
"""Turns after which an episode is taken for endless, and left unscored."""


class Session(Protocol):
    """As much of the client's session as an attempt needs."""

    def reset(
        self, *, split: str | None = None, index: int | None = None, seed: int | None = None
    ) -> Observation: ...

    def call_tool(self, name: str, arguments: dict[str, Any]) -> Observation: ...

    def close(self) -> None: ...


@dataclass(frozen=True, kw_only=True)
class Attempt:
    """What is to be played."""

    task: TaskData
    attempt: int
    seed: int
    tries: int = 1
    """1, and one more for each time that it was played before and left unscored."""


def play(
    session: Session,
    attempt: Attempt,
    policy: Policy,
    *,
    tools: tuple[ToolSpec, ...],
    max_calls: int,
) -> Row:
    """Play it and say what came of it; raises nothing that an episode or a policy raised.

    After `max_calls` tool calls the policy isn't asked any more and its turns end with an empty
    answer.
    """
    episode = _Episode(session, _blank(attempt, tools), policy, max_calls)
    began = time.monotonic()
    try:
        episode.run()
        return _written(episode.row(attempt, seconds=_since(began)))
    # One bad task must not take the others along, whatever is wrong with it.
    except Exception as error:
        episode.lost = type(error).__name__, _words(error)
        session.close()
    try:
        return _written(episode.row(attempt, seconds=_since(began)))
    except Exception:  # a policy may have put anything into its history
        episode.history = _blank(attempt, tools)
        return episode.row(attempt, seconds=_since(began))


def _blank(attempt: Attempt, tools: tuple[ToolSpec, ...]) -> History:
    return History(task=attempt.task, attempt=attempt.attempt, seed=attempt.seed, tools=tools)


def _since(began: float) -> float:
    return round(time.monotonic() - began, 3)


def _words(error: Exception) -> str:
    """What it says, in whole characters."""
    return (str(error) or repr(error)).encode(errors="backslashreplace").decode()


def _written(row: Row) -> Row:
    """Raises what writing the row to a file would raise."""
    row.model_dump_json()
    return row


class _Episode:
    def __init__(self, session: Session, history: History, policy: Policy, max_calls: int) -> None:
        self._session, self.history, self._policy = session, history, policy
        self._max_calls = max_calls
        self._turns, self._failures, self._cut = 0, 0, False
        self.lost: tuple[str, str] | None = None

    def run(self) -> None:
        history, task = self.history, self.history.task
        seen = self._session.reset(split=task.split, index=task.index, seed=history.seed)
        history.messages += _prompt(task, seen.metadata.get("appended"))
        self._saw(seen)
        while not self._over:
            move = self._next()
            history.messages.append(spoken(move))
            for call in move.calls:
                self._call(call)
            if not move.calls:
                self._answer(move.text)

    @property
    def _over(self) -> bool:
        return self.history.observations[-1].done

    def _next(self) -> Move:
        if self._turns >= MAX_TURNS:
            raise PolicyError(f"the episode went on for more than {MAX_TURNS} turns")
        self._cut = self._cut or self.history.calls >= self._max_calls
        return Move() if self._cut else sendable(self._asked())

    def _asked(self) -> Move:
        try:
            return self._policy(self.history)
        except Exception:
            raise
        except BaseException as error:  # such as sys.exit(): it ends its own attempt, no eval
            raise PolicyError(f"the policy raised {error!r}") from error

    def _call(self, call: Call) -> None:
        if self._over:
            return
        self.history.calls += 1
        text = call.fault or self._read(self._session.call_tool(call.name, call.arguments))
        self._failures += call.fault is not None
        self._turns += call.name == END_TURN
        self.history.messages.append({"role": "tool", "name": call.name, "content": text})

    def _answer(self, text: str) -> None:
        """Plain text: the reply to it is the next turn's prompt, or the end."""
        if all(tool.name != END_TURN for tool in self.history.tools):
            raise PolicyError(f"no call ended the episode, and the server has no {END_TURN}")
        self._turns += 1
        prompt = self._read(self._session.call_tool(END_TURN, {"response": text}))
        if not self._over:
            self.history.messages.append({"role": "user", "content": prompt})

    def _read(self, seen: Observation) -> str:
        self._saw(seen)
        reply = seen.model_extra or {}
        if reply.get("error"):
            self._failures += 1
            return f"error: {reply['error']['message']}"
        result = reply.get("result") or {}
        return str(result.get("data", result.get("prompt", "The episode has ended.")))

    def _saw(self, seen: Observation) -> None:
        self.history.saw(seen)
        if seen.done and seen.reward is None:
            why = seen.metadata.get("error") or "the episode ended without a reward"
            self.lost = ("EnvError", str(why))

    def row(self, attempt: Attempt, *, seconds: float) -> Row:
        history = self.history
        last = history.observations[-1] if history.observations else Observation()
        scored = self.lost is None
        code, error = self.lost or (None, None)
        return Row(
            task=attempt.task.id,
            split=attempt.task.split,
            index=attempt.task.index,
            attempt=attempt.attempt,
            seed=attempt.seed,
            tries=attempt.tries,
            status="scored" if scored else "unscored",
            reward=last.reward if scored else None,
            scores=dict(sorted(last.metadata.get("scores", {}).items())) if scored else {},
            code=code,
            error=error,
            cut=self._cut,
            turns=self._turns,
            tool_calls=history.calls,
            tool_failures=self._failures,
            seconds=seconds,
            hashes=history.hashes,
            messages=history.messages,
        )


def _prompt(task: TaskData, appended: str | None) -> list[Message]:
    system = [{"role": "system", "content": task.system_prompt}] if task.system_prompt else []
    return [*system, {"role": "user", "content": task.prompt + (appended or "")}]
