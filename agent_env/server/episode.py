"""One episode: turns resets and steps into observations, and never raises what a task raised.

What can't go on is an observation with `done` and no reward, whose metadata says why. Knows no
socket; called by one thread at a time.
"""

from __future__ import annotations

import logging
import math
import uuid
from typing import Any

from agent_env.errors import InvalidArguments, TaskNotFound, ToolError, ToolNotFound
from agent_env.server.protocol import CallTool, FrameError, ListTools, Reset
from agent_env.server.served import Served, ServedSplit
from agent_env.task import Task
from agent_env.types import END_TURN, EpisodeState, ErrorType, Observation, TaskData, ToolFault

_log = logging.getLogger(__name__)


class Episode:
    """What a session holds; `reset` begins anew."""

    def __init__(self, served: Served) -> None:
        self._served = served
        self._split: ServedSplit | None = None
        self._listed: TaskData | None = None
        self._task: Task | None = None
        self._state = EpisodeState()

    @property
    def state(self) -> EpisodeState:
        """Where the episode stands; empty before the first reset."""
        return self._state

    def reset(self, arguments: Reset) -> Observation:
        """Open the task and show its first prompt. Raises FrameError for a task that isn't."""
        split, data = self._chosen(arguments)
        self._split, self._listed, self._task = split, split.listed(data), None
        self._state = EpisodeState(
            episode_id=arguments.episode_id or uuid.uuid4().hex,
            task_id=data.id,
            task_name=data.name,
            split=split.name,
            index=data.index,
        )
        try:
            self._task = split.bundle.open(data)
            added = self._task.reset(arguments.seed)
        except Exception as error:
            return self._failed("reset", error)
        prompt = data.prompt + (added or "")
        return self._observation(
            {"prompt": prompt, "system_prompt": data.system_prompt, "appended": added}
        )

    def step(self, action: ListTools | CallTool) -> Observation:
        """One step. Raises FrameError before the first reset."""
        if self._split is None:
            message = "this session was never reset; send a reset first"
            raise FrameError("EXECUTION_ERROR", message, reason="NOT_RESET")
        if self._state.done or self._task is None:
            return self._failed("step", "the episode has ended; call reset")
        self._advance(step_count=self._state.step_count + 1)
        if isinstance(action, ListTools):
            return Observation.model_validate(
                {"tools": [t.model_dump() for t in self._split.tools]}
            )
        if action.tool_name == END_TURN:
            return self._end_turn(self._task, action.arguments)
        return self._call(self._task, action.tool_name, action.arguments)

    def _chosen(self, arguments: Reset) -> tuple[ServedSplit, TaskData]:
        if (arguments.split is None) != (arguments.index is None):
            message = "reset: give both split and index, or neither for the first task"
            raise FrameError("VALIDATION_ERROR", message, errors=[])
        try:
            split = self._served.split(arguments.split or next(iter(self._served.splits)))
            return split, split.task(arguments.index or 0)
        except TaskNotFound as error:
            message = f"reset: {error}"
            raise FrameError("VALIDATION_ERROR", message, errors=[]) from None

    def _call(self, task: Task, name: str, arguments: dict[str, Any]) -> Observation:
        try:
            text = task.call_tool(name, arguments)
        except ToolError as error:
            return self._tool_reply(name, fault=_fault(error))
        except Exception as error:
            return self._failed(name, error)
        if task.done:
            return self._finished(task, name, text)
        return self._tool_reply(name, text)

    def _end_turn(self, task: Task, arguments: dict[str, Any]) -> Observation:
        response = arguments.get("response", "")
        if not isinstance(response, str) or set(arguments) - {"response"}:
            fault = ToolFault(
                error_type="invalid_args", message="end_turn takes one text argument: response"
            )
            return self._tool_reply(END_TURN, fault=fault)
        try:
            prompt = task.end_turn(response)
        except Exception as error:
            return self._failed(END_TURN, error)
        if prompt is None or task.done:
            return self._finished(task, END_TURN, None)
        self._advance(turn=self._state.turn + 1)
        result = {"prompt": prompt, "system_prompt": task.data.system_prompt}
        return Observation.model_validate(
            {"tool_name": END_TURN, "result": result, "error": None, "metadata": self._metadata()}
        )

    def _finished(self, task: Task, name: str, text: str | None) -> Observation:
        assert self._split is not None  # noqa: S101 - a task is open, so a split is
        try:
            scores = _checked(task.score())
            reward = self._served.reward_of(self._split, scores)
            if reward is not None and not math.isfinite(reward):
                raise ValueError(f"the reward is {reward}")
        except Exception as error:
            return self._failed("no reward", error)
        self._advance(done=True)
        fields = _result(name, text)
        return Observation.model_validate(
            {**fields, "done": True, "reward": reward, "metadata": self._metadata(scores=scores)}
        )

    def _tool_reply(
        self, name: str, text: str | None = None, fault: ToolFault | None = None
    ) -> Observation:
        fields = _result(name, text, fault)
        return Observation.model_validate({**fields, "metadata": self._metadata()})

    def _failed(self, where: str, error: Exception | str) -> Observation:
        """The episode is over without a score; a fault of the environment also goes to the log."""
        if isinstance(error, Exception):
            _log.error("%s of %s failed", where, self._state.task_id, exc_info=error)
            error = f"{where}: {type(error).__name__}: {error}"
        self._advance(done=True)
        return Observation(done=True, metadata=self._metadata(status="error", error=error))

    def _observation(self, metadata: dict[str, Any]) -> Observation:
        return Observation(metadata=self._metadata(**metadata))

    def _metadata(self, **more: Any) -> dict[str, Any]:
        task = self._listed.ref() if self._listed else None
        return {**more, "task": task, "episode_id": self._state.episode_id}

    def _advance(self, **changes: Any) -> None:
        self._state = self._state.model_copy(update=changes)


def _fault(error: ToolError) -> ToolFault:
    kind: ErrorType = "execution_error"
    if isinstance(error, ToolNotFound):
        kind = "tool_not_found"
    elif isinstance(error, InvalidArguments):
        kind = "invalid_args"
    return ToolFault(error_type=kind, message=str(error))


def _result(name: str, text: str | None, fault: ToolFault | None = None) -> dict[str, Any]:
    """A tool's reply in the shape of OpenEnv's."""
    result = None
    if text is not None:
        result = {
            "content": [{"type": "text", "text": text}],
            "structured_content": None,
            "meta": None,
            "data": text,
            "is_error": False,
        }
    return {"tool_name": name, "result": result, "error": fault and fault.model_dump()}


def _checked(scores: dict[str, float]) -> dict[str, float]:
    for name, value in scores.items():
        if not 0 <= value <= 1:  # also refuses NaN
            raise ValueError(f"the score {name!r} is {value}, outside [0, 1]")
    return {name: float(value) for name, value in scores.items()}
