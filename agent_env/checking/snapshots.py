"""Whether a task that can be snapshotted comes back as it was."""

from __future__ import annotations

import json
from collections.abc import Sequence

from agent_env.bundle import Bundle, told
from agent_env.checking.playing import Call, called
from agent_env.errors import ToolError
from agent_env.task import Task
from agent_env.types import TaskData


def restored(bundle: Bundle, data: TaskData, seed: int, calls: Sequence[Call]) -> str | None:
    """None where the task has no snapshot; else what is wrong with it, "" for nothing.

    Some calls are made (half of them, then all), a new object is restored from a snapshot, and the
    rest must be answered and scored alike.
    """
    if type(bundle.open(data)).snapshot is Task.snapshot:
        return None
    try:
        cuts = (len(calls) // 2, len(calls))
        return next(filter(None, (_cut(bundle, data, seed, calls, cut) for cut in cuts)), "")
    except (Exception, SystemExit) as error:
        return told(error)


def _cut(bundle: Bundle, data: TaskData, seed: int, calls: Sequence[Call], cut: int) -> str:
    task, copy = bundle.open(data), bundle.open(data)
    task.reset(seed)
    for call in calls[:cut]:
        _answer(task, call)
    copy.restore(json.loads(json.dumps(task.snapshot())))
    for call in calls[cut:]:
        said, otherwise = _answer(task, call), _answer(copy, call)
        if said != otherwise:
            return f"after restore(), {call[0]} answers {otherwise!r} instead of {said!r}"
    scores, others = task.score(), copy.score()
    return "" if scores == others else f"after restore(), score() is {others}, not {scores}"


def _answer(task: Task, call: Call) -> str | None:
    name, args = call
    try:
        return called(task, name, args)
    except ToolError as error:
        return str(error)
