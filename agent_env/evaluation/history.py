"""What a policy sees of an episode, and what it answers with.

Messages have the shape that chat templates read: an assistant's `tool_calls` with arguments as an
object, a `tool` message with `name` and `content` for each.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from agent_env.types import Observation, TaskData, ToolSpec

Message = dict[str, Any]

_NOT_SAID = frozenset({"session", "episode_id"})
"""Metadata of the session that an observation came through; two runs differ in it."""


@dataclass(frozen=True, kw_only=True)
class Call:
    """A tool call. With a `fault` it isn't carried out: the policy is told what was wrong."""

    name: str
    arguments: dict[str, Any]
    fault: str | None = None


@dataclass(frozen=True, kw_only=True)
class Move:
    """Text, calls, or both. Without calls the text is the answer, which ends the turn."""

    text: str = ""
    calls: tuple[Call, ...] = ()


@dataclass(kw_only=True)
class History:
    """An episode so far, oldest first. Policies read it; who plays the episode writes it."""

    task: TaskData
    """Without its `data`, which stays on the server."""
    attempt: int
    seed: int
    """The attempt's own; the same for every run with the same `--seed`."""
    tools: tuple[ToolSpec, ...]
    messages: list[Message] = field(default_factory=list)
    observations: list[Observation] = field(default_factory=list)
    hashes: list[str] = field(default_factory=list)
    """One per observation."""
    calls: int = 0

    def saw(self, observation: Observation) -> None:
        """Write down a reply of the environment."""
        self.observations.append(observation)
        self.hashes.append(observation_hash(observation))

    @property
    def last(self) -> str:
        """The text of the last message: what the policy is to answer."""
        return str(self.messages[-1]["content"])

    def digest(self, *more: object) -> str:
        """SHA-256 over task, attempt, every observation so far, and `more`."""
        parts = [self.task.id, self.attempt, *self.hashes, *more]
        return hashlib.sha256("\n".join(map(str, parts)).encode()).hexdigest()


Policy = Callable[[History], Move]
"""Called once per move, from several threads at a time. Whatever it raises leaves the episode
unscored."""


def observation_hash(observation: Observation) -> str:
    """SHA-256 of its canonical JSON, without the names of the session that it came through."""
    said = observation.model_dump(mode="json")
    said["metadata"] = _said(said["metadata"])
    canonical = json.dumps(said, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(canonical.encode()).hexdigest()


def tool_schema(spec: ToolSpec) -> dict[str, Any]:
    """A tool as chat templates and chat endpoints take it."""
    function = {
        "name": spec.name,
        "description": spec.description,
        "parameters": spec.input_schema,
    }
    return {"type": "function", "function": function}


def spoken(move: Move) -> Message:
    """The assistant's message of a move."""
    message: Message = {"role": "assistant", "content": move.text}
    if move.calls:
        message["tool_calls"] = [
            {"type": "function", "function": {"name": call.name, "arguments": call.arguments}}
            for call in move.calls
        ]
    return message


def _said(metadata: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in metadata.items() if key not in _NOT_SAID}
