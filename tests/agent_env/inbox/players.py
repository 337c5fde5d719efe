"""Plays inbox tasks by the rules of a policy."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from agent_env.bundles.inbox import bundle
from agent_env.bundles.inbox.mailbox import Mailbox
from agent_env.bundles.inbox.story import Story
from agent_env.bundles.inbox.tasks import InboxTask
from agent_env.types import END_TURN, TaskData

Calls = Iterable[tuple[str, dict[str, Any]]]
Policy = Callable[[Story, Mailbox], Calls]

ALL = [task for split in bundle.splits for task in bundle.tasks(split)]


def opened(data: TaskData) -> InboxTask:
    task = bundle.open(data)
    assert isinstance(task, InboxTask)
    task.reset(None)
    return task


def of_kind(kind: str, number: int = 0) -> TaskData:
    return [task for task in bundle.tasks("eval") if task.data["kind"] == kind][number]


def story_of(data: TaskData) -> Story:
    return Story.model_validate(data.data)


def play(task: InboxTask, calls: Calls) -> list[str | None]:
    """Make the calls; returns what each answered."""
    seen = []
    for name, args in calls:
        seen.append(task.end_turn(**args) if name == END_TURN else task.call_tool(name, args))
    return seen


def reward(task: InboxTask) -> float:
    worth = bundle.reward(task.score())
    assert worth is not None
    return worth
