"""What a check finds: where, what is wrong, and what to do about it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One fault of a bundle; tasks with the same fault are one finding."""

    rule: str
    where: str
    what: str
    fix: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Checked:
    """A bundle that was checked. `played` of `tasks` tasks were played."""

    name: str
    splits: int
    tasks: int
    played: int
    findings: tuple[Finding, ...]


FIXES = {
    "load": "correct it; the bundle can't be served before",
    "name": "set `name` to a short word of letters, digits, - and _",
    "splits": "name at least one split in `splits`, each once",
    "dead-split": "give the split tasks, or take it out of `splits`",
    "tasks": "let tasks(split) return a list of TaskData; what is wrong with one is named above",
    "place": "set `split` and `index` so that tasks(split)[i] is at index i of that split",
    "id-twice": "give every task of the bundle an id of its own",
    "empty-prompt": "write a prompt: it is all that the model is told before its first call",
    "tool-docs": "describe the tool in its docstring and each argument under `Args:`",
    "tool-types": "annotate the argument: str, int, float, bool, list[…], Literal[…] or a model",
    "tools-differ": "open every task of a split with one class, or put the others in a split",
    "tasks-vary": "make the same tasks in every process: seed random.Random with text such as the"
    " split and index, sort sets, keep data in a file",
    "random": "draw from random.Random(seed) with the seed that reset gets; ask no clock, and keep"
    " nothing outside the task object",
    "hash-seed": "sort sets before they are shown or drawn from, and use hashlib for hash()",
    "reset": "let reset() set everything anew that tools, end_turn and score use",
    "not-replayable": "make the task deterministic, or give it snapshot() and restore(): without"
    " either a restart of the server loses its episodes",
    "snapshot": "let snapshot() return all that later replies depend on, as JSON data, and"
    " restore() take it back",
    "breaks": "raise ToolError for what the model may do wrong; anything else ends the episode"
    " unscored",
    "raises": "correct that method: on a server every such episode ends unscored",
    "never-ends": "return None from end_turn after the last turn, or set `done`",
    "score-range": "keep every score in [0, 1]",
    "reward-range": "keep the reward in [0, 1]; None only for what can't be scored",
    "reward-undefined": 'set `rewarded` to a score or "mean", or override reward()',
    "expert": "let expert() solve the task with noise 0: every call accepted, a reward of at least"
    " 0.9, `end_turn` included where the episode needs it",
    "idle": "let score() give little to an episode in which nothing was done: a trainer sees no"
    " difference otherwise",
    "quick": "take `quick = True` away: its steps then run in threads",
    "hangs": "bound what each call may take; one that is only slow needs more --timeout, or"
    " fewer --tasks",
    "crash": "find what ends the process: a server would lose every session with it",
}
"""What to do, by rule."""


def found(rule: str, where: str, what: str) -> Finding:
    """A finding with its rule's fix."""
    return Finding(rule=rule, where=where, what=what, fix=FIXES[rule])
