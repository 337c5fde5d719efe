"""What crosses the wire and what a task is made of: plain frozen data, no behaviour.

Shapes follow OpenEnv's protocol: an observation with `done`, `reward` and free `metadata`, tool
replies as content blocks. A reward of None means "not scored": the rollout was lost to something
that isn't the model's doing. It is never turned into 0.
"""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

END_TURN = "end_turn"
MAX_FRAME_BYTES = 16 * 2**20
"""The largest frame that a server of ours takes."""
"""The tool every session offers beside the task's own: the answer in plain text ends a turn."""

RESERVED_TOOLS = frozenset({END_TURN, "reset", "step", "state", "close", "get_reward"})
"""Names a task's own tool may not have: the protocol's and the trainers' words."""

ErrorType = Literal[
    "tool_not_found", "invalid_args", "execution_error", "timeout", "transport_error"
]


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class TaskData(_Frozen):
    """One task of a bundle: what a dataset row needs, and `data` for the task class.

    `data` stays on the server, so that no answer reaches a trainer; a task listed by a client has
    it empty.
    """

    id: str
    name: str
    split: str
    index: int = Field(ge=0)
    prompt: str
    system_prompt: str | None = None
    data: dict[str, Any] = Field(default_factory=dict)

    def ref(self) -> dict[str, Any]:
        """The task as episodes name it in their metadata."""
        return {"id": self.id, "name": self.name, "split": self.split, "index": self.index}


class ToolSpec(_Frozen):
    """A tool as a model is shown it; `input_schema` is a JSON Schema object."""

    name: str
    description: str
    input_schema: dict[str, Any]


class ToolFault(_Frozen):
    """Why a call gave no result; `message` is written for the model to read."""

    error_type: ErrorType
    message: str


class Observation(BaseModel):
    """One reply of the environment. Its other fields depend on the step: `tools`, `result`, ….

    `done` with `reward` None is an episode that ended without a score; `metadata` then says why.
    """

    model_config = ConfigDict(frozen=True, extra="allow")

    done: bool = False
    reward: float | None = None
    metadata: dict[str, Any] = Field(default_factory=dict)


class EpisodeState(_Frozen):
    """Where an episode stands: the reply to a `state` frame."""

    episode_id: str | None = None
    step_count: int = 0
    task_id: str | None = None
    task_name: str | None = None
    split: str | None = None
    index: int | None = None
    turn: int = 0
    done: bool = False
