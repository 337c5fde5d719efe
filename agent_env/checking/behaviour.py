"""What playing showed: the same episode twice, in two processes, judged."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from agent_env.checking.finding import Finding, found
from agent_env.errors import BundleNotFound

QUICK_S = 0.010
"""A server stops believing a `quick` task whose steps take longer."""

GOOD = 0.9
"""What an expert is worth at least, and what doing nothing is not."""

_SHOWN = 100

Line = dict[str, Any]
Faults = Iterator[tuple[str, str]]


@dataclass
class Probed:
    """What one process told: `tasks` by split, `episodes` by task id."""

    name: str = ""
    splits: int = 0
    count: int = 0
    """Tasks of all splits."""
    findings: list[Finding] = field(default_factory=list)
    """What was seen without playing."""
    tasks: dict[str, tuple[str, str]] = field(default_factory=dict)
    episodes: dict[str, Line] = field(default_factory=dict)

    @classmethod
    def of(cls, lines: list[Line]) -> Probed:
        """Raises BundleNotFound where the process found no bundle."""
        probed = cls()
        for line in lines:
            probed._add(line)
        return probed

    def _add(self, line: Line) -> None:
        if "unknown" in line:
            raise BundleNotFound(line["unknown"])
        if "finding" in line:
            self.findings.append(Finding(**line["finding"]))
        elif "splits" in line:
            self.name, self.splits = line["name"], line["splits"]
        elif "tasks" in line:
            self.tasks[line["split"]] = (line["tasks"], line["again"])
            self.count += line["count"]
        elif "plays" in line:
            self.episodes[line["id"]] = line


def behaviour(one: Probed, other: Probed, same_seed: Probed | None) -> list[Finding]:
    """Judge two processes with different PYTHONHASHSEED; `same_seed` is a third, with the first's.

    Each task shows at most one fault of each rule.
    """
    findings = [*_vary(one, other)]
    faults: dict[tuple[str, str], list[tuple[str, str]]] = {}
    counts: dict[str, int] = {}
    for id, line in one.episodes.items():
        counts[line["split"]] = counts.get(line["split"], 0) + 1
        third = same_seed.episodes.get(id) if same_seed else None
        for rule, what in dict(_faults(line, other.episodes.get(id), third)).items():
            faults.setdefault((rule, line["split"]), []).append((id, what))
    for (rule, split), seen in faults.items():
        id, what = seen[0]
        where = f"{split}: {len(seen)} of {counts[split]} tasks, first {id}"
        findings.append(found(rule, where, what))
    return findings


def differ(one: Probed, other: Probed) -> bool:
    """Whether any replayable task was played otherwise in the other process."""
    return any(
        _difference(script[0], other.episodes[id]["plays"][name][0])
        for id, line in one.episodes.items()
        if line["replayable"] and id in other.episodes
        for name, script in line["plays"].items()
    )


def _vary(one: Probed, other: Probed) -> Iterator[Finding]:
    for split, (digest, again) in one.tasks.items():
        if digest != again:
            yield found("tasks-vary", split, "tasks() gives other tasks when asked again")
        elif split in other.tasks and other.tasks[split][0] != digest:
            yield found("tasks-vary", split, "tasks() gives other tasks in another process")


def _faults(line: Line, other: Line | None, third: Line | None) -> Faults:
    for name, plays in line["plays"].items():
        for play in plays:
            yield from ((rule, f"{name}: {what}") for rule, what in play["faults"])
        if line["replayable"]:
            yield from _repeated(name, plays, _first(other, name), _first(third, name))
    yield from _restarts(line)
    yield from _worth(line)
    yield from _pace(line, other)


def _first(line: Line | None, script: str) -> Line | None:
    return line["plays"][script][0] if line else None


def _repeated(name: str, plays: list[Line], other: Line | None, third: Line | None) -> Faults:
    first, again, anew = plays
    if what := _difference(first, anew):
        yield "random", f"{name}, played on two objects: {what}"
    elif what := _difference(first, again):
        yield "reset", f"{name}, played again after a reset: {what}"
    elif other and (what := _difference(first, other)):
        hashed = third is not None and not _difference(first, third)
        yield "hash-seed" if hashed else "random", f"{name}, played in two processes: {what}"


def _difference(one: Line, other: Line) -> str:
    """The first step that went otherwise, as text; empty for none."""
    for (did, said), (did_too, said_too) in zip(one["steps"], other["steps"], strict=False):
        if did != did_too:
            return f"once it went on with {_cut(did)}, once with {_cut(did_too)}"
        if said != said_too:
            return f"{_cut(did)} answered once {_cut(said)}, once {_cut(said_too)}"
    if len(one["steps"]) != len(other["steps"]):
        return f"once it took {len(one['steps'])} steps, once {len(other['steps'])}"
    return ""


def _restarts(line: Line) -> Faults:
    if not line["replayable"] and not line["snapshots"]:
        yield "not-replayable", "it says replayable = False and has no snapshot()"
    if line["snapshot_fault"]:
        yield "snapshot", line["snapshot_fault"]


def _worth(line: Line) -> Faults:
    plays = {name: script[0] for name, script in line["plays"].items()}
    idle, expert = plays["idle"], plays.get("expert")
    if expert is not None and not expert["faults"]:
        if expert["refused"]:
            yield "expert", f"not accepted: {_cut(expert['refused'][0])}"
        elif expert["reward"] is not None and expert["reward"] < GOOD:
            yield "expert", f"it is worth {expert['reward']:.3f}"
    if idle["reward"] is not None and idle["reward"] >= GOOD:
        yield "idle", f"an episode in which nothing is done is worth {idle['reward']:.3f}"


def _pace(line: Line, other: Line | None) -> Faults:
    """The least of all runs counts: a busy machine slows down one, a slow step all of them."""
    if not line["quick"]:
        return
    for name, plays in line["plays"].items():
        runs = [*plays, *(other["plays"][name] if other else [])]
        slow = min(runs, key=lambda run: float(run["slowest_s"]))
        if slow["slowest_s"] > QUICK_S:
            took_ms = slow["slowest_s"] * 1000
            yield "quick", f"{slow['slowest']} took {took_ms:.0f} ms, the limit is 10"


def _cut(text: str) -> str:
    return text if len(text) <= _SHOWN else text[: _SHOWN - 1] + "…"
