"""What can be seen without playing: splits, tasks, prompts, tools."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from agent_env.bundle import Bundle, told
from agent_env.checking.finding import Finding, found
from agent_env.checking.sampling import sampled
from agent_env.task import Task
from agent_env.types import TaskData, ToolSpec

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]*")
_TYPED = {"type", "enum", "const", "anyOf", "allOf", "oneOf", "$ref"}


def structure(bundle: Bundle, sample: int, at: Callable[[str], None]) -> list[Finding]:
    """Everything wrong with how the bundle is laid out; at most `sample` tasks are opened.

    `at` is told what is about to be called.
    """
    findings = [*_names(bundle)]
    tasks: list[TaskData] = []
    for split in dict.fromkeys(getattr(bundle, "splits", ())):
        at(f"tasks({split!r})")
        try:
            there = list(bundle.tasks(split))
        except (Exception, SystemExit) as error:
            rule = "dead-split" if isinstance(error, KeyError) else "tasks"
            findings.append(found(rule, split, f"tasks({split!r}): {told(error)}"))
            continue
        if what := _no_data(split, there):
            findings.append(found("tasks", split, what))
            continue
        findings += [*_tasks(split, there)]
        at(f"open() of {split}")
        findings += [*_tools(bundle, split, _some(there, sample))] if there else []
        tasks += there
    return [*findings, *_ids(tasks)]


def _no_data(split: str, tasks: Sequence[Any]) -> str:
    """What of it a server can't serve; empty for nothing."""
    for place, task in enumerate(tasks):
        where = f"tasks({split!r})[{place}]"
        if not isinstance(task, TaskData):
            return f"{where} is a {type(task).__name__}, not TaskData"
        try:
            task.model_dump_json()
        except Exception as error:
            return f"{where} is no JSON data: {error}"
    return ""


def _some(tasks: Sequence[TaskData], sample: int) -> list[TaskData]:
    return [tasks[place] for place in sampled(len(tasks), sample)]


def _names(bundle: Bundle) -> Iterator[Finding]:
    name = getattr(bundle, "name", "")
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        yield found("name", "bundle", f"the name is {name!r}")
    splits = getattr(bundle, "splits", ())
    if not splits or isinstance(splits, str):
        yield found("splits", "bundle", f"splits is {splits!r}")
    elif len(set(splits)) != len(splits):
        yield found("splits", "bundle", f"a split is named twice: {', '.join(splits)}")


def _tasks(split: str, tasks: Sequence[TaskData]) -> Iterator[Finding]:
    if not tasks:
        yield found("dead-split", split, "it has no tasks")
    lost = [
        place for place, task in enumerate(tasks) if (task.split, task.index) != (split, place)
    ]
    if lost:
        task = tasks[lost[0]]
        said = f"tasks({split!r})[{lost[0]}] says split {task.split!r}, index {task.index}"
        yield found("place", f"{split}: {len(lost)} of {len(tasks)} tasks", said)
    empty = [task.id for task in tasks if not task.prompt.strip()]
    if empty:
        where = f"{split}: {len(empty)} of {len(tasks)} tasks"
        yield found("empty-prompt", where, f"the prompt of {empty[0]} is empty")


def _ids(tasks: Sequence[TaskData]) -> Iterator[Finding]:
    twice = [id for id, count in Counter(task.id for task in tasks).items() if count > 1]
    if twice:
        yield found("id-twice", "bundle", f"{len(twice)} ids are not unique, first {twice[0]!r}")


def _tools(bundle: Bundle, split: str, tasks: Sequence[TaskData]) -> Iterator[Finding]:
    try:
        others = {type(bundle.open(task)) for task in tasks}
        if strange := [other.__name__ for other in others if not issubclass(other, Task)]:
            yield found("raises", split, f"open() returned a {strange[0]}, not a Task")
            return
        specs = bundle.tools(split)
    except (Exception, SystemExit) as error:
        yield found("raises", split, f"a task can't be opened: {told(error)}")
        return
    if not all(isinstance(spec, ToolSpec) for spec in specs):
        yield found("raises", split, f"tools({split!r}) returned {specs!r}, not ToolSpecs")
        return
    for spec in specs:
        yield from _spec(f"{split}: {spec.name}", spec)
    shown = [spec.name for spec in specs]
    for other in others:
        if other.tools() != specs:
            names = ", ".join(spec.name for spec in other.tools()) or "none"
            said = f"the split offers {', '.join(shown) or 'none'}; {other.__name__} has {names}"
            yield found("tools-differ", split, said)


def _spec(where: str, spec: ToolSpec) -> Iterator[Finding]:
    if not spec.description.strip():
        yield found("tool-docs", where, "it has no description")
    arguments: dict[str, Any] = spec.input_schema.get("properties", {})
    for name, schema in arguments.items():
        if not str(schema.get("description", "")).strip():
            yield found("tool-docs", where, f"the argument {name!r} has no description")
        if not _typed(schema):
            yield found("tool-types", where, f"the argument {name!r} may be anything")


def _typed(schema: dict[str, Any]) -> bool:
    if schema.get("type") == "array":
        return _typed(schema.get("items") or {})
    return bool(_TYPED & schema.keys())
