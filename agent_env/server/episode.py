"""One episode: turns resets and steps into outcomes, and never raises what a task raised.

What can't go on is an outcome that is `done` without a reward, whose metadata says why. That is so
for whatever is raised, a cancellation or a wish to end the process, too: a step that led to no
outcome wouldn't count, and would be carried out again when it is sent again. Knows no socket and
no journal; called by one thread at a time.
"""

from __future__ import annotations

import hashlib
import logging
import math
from dataclasses import dataclass, field
from typing import Any

from agent_env.errors import InvalidArguments, TaskNotFound, ToolError, ToolNotFound
from agent_env.server.protocol import FrameError, Reset, Step
from agent_env.server.said import Said, say
from agent_env.server.served import Served, ServedSplit
from agent_env.task import Task
from agent_env.types import END_TURN, EpisodeState, ErrorType, TaskData, ToolFault

_log = logging.getLogger(__name__)


@dataclass(slots=True)
class Outcome:
    """What a reset or a step led to."""

    fields: dict[str, Any] = field(default_factory=dict)
    """What the observation says beside its metadata: `tools`, or `tool_name, result, error`."""
    metadata: dict[str, Any] = field(default_factory=dict)
    reward: float | None = None
    done: bool = False

    def said(self) -> Said:
        """The same as text."""
        return say(self.fields, self.metadata, self.reward, self.done)


@dataclass(frozen=True, slots=True)
class Chosen:
    """What an episode is made from: the same three give the same episode."""

    split: ServedSplit
    data: TaskData
    seed: int


def choose(served: Served, arguments: Reset) -> Chosen:
    """The task that a reset asks for. Raises FrameError for one that isn't."""
    if (arguments.split is None) != (arguments.index is None):
        message = "reset: give both split and index, or neither for the first task"
        raise FrameError("VALIDATION_ERROR", message, errors=[])
    try:
        split = served.split(arguments.split or next(iter(served.splits)))
        data = split.task(arguments.index or 0)
    except TaskNotFound as error:
        raise FrameError("VALIDATION_ERROR", f"reset: {error}", errors=[]) from None
    return Chosen(split, data, derived_seed(data.id) if arguments.seed is None else arguments.seed)


def derived_seed(task_id: str) -> int:
    """The seed of who gives none: never random, so that a replay finds the same."""
    return int.from_bytes(hashlib.sha256(task_id.encode()).digest()[:8], "big") >> 1


class Episode:
    """A task that is played; begins with `reset`, or with `restore`."""

    def __init__(self, served: Served, chosen: Chosen) -> None:
        self._served = served
        self._chosen = chosen
        self._task: Task | None = None
        self._ref = chosen.split.listed(chosen.data).ref()
        self._steps = 0
        self._turn = 0
        self._end: Outcome | None = None

    def state(self, episode_id: str | None) -> EpisodeState:
        """Where the episode stands."""
        data, split = self._chosen.data, self._chosen.split.name
        return EpisodeState(
            episode_id=episode_id,
            step_count=self._steps,
            task_id=data.id,
            task_name=data.name,
            split=split,
            index=data.index,
            turn=self._turn,
            done=self._end is not None,
        )

    @property
    def quick(self) -> bool | None:
        """What the task says of itself; None when it couldn't be opened."""
        return None if self._task is None else self._task.quick

    @property
    def replayable(self) -> bool:
        """What the task says of itself; one that couldn't be opened says the same again."""
        return self._task is None or self._task.replayable

    @property
    def has_snapshots(self) -> bool:
        """Whether the task has a `snapshot` of its own."""
        return self._task is not None and type(self._task).snapshot is not Task.snapshot

    def snapshot(self) -> Any:
        """The task's state as JSON data, None where it has none just now."""
        return None if self._task is None else self._task.snapshot()

    @property
    def turn(self) -> int:
        """How many turns have ended."""
        return self._turn

    def reset(self) -> Outcome:
        """Open the task and show its first prompt."""
        data = self._chosen.data
        try:
            self._task = self._chosen.split.bundle.open(data)
            added = self._task.reset(self._chosen.seed)
            prompt = data.prompt + (added or "")
        except BaseException as error:
            self._task = None
            return self._failed("reset", error)
        shown = {"prompt": prompt, "system_prompt": data.system_prompt, "appended": added}
        return Outcome(metadata={**shown, "task": self._ref})

    def restore(self, state: Any, *, steps: int, turn: int, last: Outcome) -> None:
        """Begin where a snapshot was taken, after `last`, instead of with `reset`.

        Raises what the task does.
        """
        self._task = self._chosen.split.bundle.open(self._chosen.data)
        self._task.restore(state)
        self._steps, self._turn, self._end = steps, turn, last if last.done else None

    def step(self, step: Step) -> Outcome:
        """One step, counted whatever becomes of it."""
        self._steps += 1
        task, name = self._task, step.tool_name
        if self._end is not None or task is None:
            return self._told_again(self._end or Outcome(done=True), name)
        if name is None:
            return Outcome({"tools": self._chosen.split.listed_tools})
        if name == END_TURN:
            return self._end_turn(task, step.arguments)
        return self._call(task, name, step.arguments)

    def _told_again(self, end: Outcome, name: str | None) -> Outcome:
        """A call after the end changes nothing, least of all how the episode ended."""
        if name is None:
            fields: dict[str, Any] = {"tools": self._chosen.split.listed_tools}
        else:
            over = _faulty("execution_error", "the episode has ended; call reset")
            fields = _result(name, None, over)
        return Outcome(fields, end.metadata, end.reward, done=True)

    def _call(self, task: Task, name: str, arguments: dict[str, Any]) -> Outcome:
        try:
            text = task.call_tool(name, arguments)
        except ToolError as error:
            return self._tool_reply(name, fault=_fault(error))
        except BaseException as error:
            return self._failed(name, error, _result(name, None))
        if task.done:
            return self._finished(task, name, text)
        return self._tool_reply(name, text)

    def _end_turn(self, task: Task, arguments: dict[str, Any]) -> Outcome:
        response = arguments.get("response", "")
        if not isinstance(response, str) or set(arguments) - {"response"}:
            message = "end_turn takes one text argument: response"
            return self._tool_reply(END_TURN, fault=_faulty("invalid_args", message))
        try:
            prompt = task.end_turn(response)
            if not isinstance(prompt, str | None):
                raise TypeError(f"end_turn returned {prompt!r}, neither a prompt nor None")
        except BaseException as error:
            return self._failed(END_TURN, error, _result(END_TURN, None))
        if prompt is None or task.done:
            return self._finished(task, END_TURN, None)
        self._turn += 1
        result = {"prompt": prompt, "system_prompt": task.data.system_prompt}
        fields = {"tool_name": END_TURN, "result": result, "error": None}
        return Outcome(fields, {"task": self._ref})

    def _finished(self, task: Task, name: str, text: str | None) -> Outcome:
        try:
            scores = _checked(task.score())
            reward = self._served.reward_of(self._chosen.split, scores)
            reward = None if reward is None else float(reward)
            if reward is not None and not math.isfinite(reward):
                raise ValueError(f"the reward is {reward}")
        except BaseException as error:
            return self._failed("no reward", error, _result(name, None))
        metadata = {"scores": scores, "task": self._ref}
        self._end = Outcome(_result(name, text), metadata, reward, done=True)
        return self._end

    def _tool_reply(
        self, name: str, text: str | None = None, fault: dict[str, Any] | None = None
    ) -> Outcome:
        return Outcome(_result(name, text, fault), {"task": self._ref})

    def _failed(
        self, where: str, error: BaseException, fields: dict[str, Any] | None = None
    ) -> Outcome:
        """The episode is over without a score; the log has the whole story."""
        _log.error("%s of %s failed", where, self._chosen.data.id, exc_info=error)
        said = f"{where}: {type(error).__name__}: {_words(error)}"
        metadata = {"status": "error", "error": said, "task": self._ref}
        self._end = Outcome(fields or {}, metadata, done=True)
        return self._end


def _fault(error: ToolError) -> dict[str, Any]:
    kind: ErrorType = "execution_error"
    if isinstance(error, ToolNotFound):
        kind = "tool_not_found"
    elif isinstance(error, InvalidArguments):
        kind = "invalid_args"
    return _faulty(kind, _words(error))


def _words(error: BaseException) -> str:
    """What it says; a task's own error may fail even at that."""
    try:
        return str(error)
    except BaseException as worse:
        return f"(its text can't be read: {type(worse).__name__})"


def _faulty(kind: ErrorType, message: str) -> dict[str, Any]:
    return ToolFault(error_type=kind, message=message).model_dump()


def _result(name: str, text: str | None, fault: dict[str, Any] | None = None) -> dict[str, Any]:
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
    return {"tool_name": name, "result": result, "error": fault}


def _checked(scores: dict[str, float]) -> dict[str, float]:
    for name, value in scores.items():
        if not 0 <= value <= 1:  # also refuses NaN
            raise ValueError(f"the score {name!r} is {value}, outside [0, 1]")
    return {name: float(scores[name]) for name in sorted(scores)}
