"""Looks at a bundle and plays it, in a process of its own.

`python -m agent_env.checking.probe REF COUNT AHEAD` prints one JSON line before each thing that it
does and for each that it found, so that what takes the process down, or never ends, is known by
its name.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from typing import Any

from agent_env.bundle import Bundle, load_bundle
from agent_env.checking.clock import run_ahead
from agent_env.checking.finding import Finding, found
from agent_env.checking.playing import Player
from agent_env.checking.sampling import sampled
from agent_env.checking.snapshots import restored
from agent_env.checking.structure import structure
from agent_env.errors import BundleError, BundleNotFound
from agent_env.types import TaskData

UNPLAYABLE = frozenset({"load", "splits", "dead-split", "tasks", "raises"})
"""Rules of the structure: what can't be listed or opened can't be played either."""

At = Callable[[str], None]


def probe(ref: str, count: int, at: At) -> Iterator[dict[str, Any]]:
    """All lines. `at` is told what is about to be done."""
    at("the import")
    try:
        bundle = load_bundle(ref)
    except BundleNotFound as error:
        yield {"unknown": str(error)}
        return
    except BundleError as error:
        yield {"finding": asdict(found("load", ref, str(error)))}
        return
    findings: list[Finding] = structure(bundle, count, at)
    yield from ({"finding": asdict(finding)} for finding in findings)
    splits = tuple(getattr(bundle, "splits", ()))
    yield {"name": str(getattr(bundle, "name", "")), "splits": len(splits)}
    if not any(finding.rule in UNPLAYABLE for finding in findings):
        yield from _plays(bundle, count, at)


def _plays(bundle: Bundle, count: int, at: At) -> Iterator[dict[str, Any]]:
    player = Player(bundle, at)
    listed = []
    for split in dict.fromkeys(bundle.splits):
        at(f"tasks({split!r})")
        tasks = list(bundle.tasks(split))
        digest, places = _digest(tasks), sampled(len(tasks), count)
        again = _digest(bundle.tasks(split))
        counts = {"count": len(tasks), "sampled": len(places)}
        yield {"split": split, "tasks": digest, "again": again, **counts}
        listed += [(split, tasks[place]) for place in places]
    for split, data in listed:
        yield {"begins": data.id}
        yield {"split": split, "id": data.id, **_task(bundle, player, data, at)}


def seed_of(task_id: str) -> int:
    """The seed that a server gives a task which was asked for without one."""
    return int.from_bytes(hashlib.sha256(task_id.encode()).digest()[:8], "big") >> 1


def _task(bundle: Bundle, player: Player, data: TaskData, at: At) -> dict[str, Any]:
    """Each script three times: on a new object, on the same one reset, on another new one."""
    seed, plays = seed_of(data.id), {}
    at("open()")
    kept = bundle.open(data)
    for script in player.scripts():
        first = player.play(kept, data, script, seed)
        again = player.play(kept, data, script, seed)
        anew = player.play(bundle.open(data), data, script, seed)
        plays[script] = [vars(played) for played in (first, again, anew)]
    kind = type(kept)
    at("snapshot() and restore()")
    snapshot = restored(bundle, data, seed, anew.calls)
    return {
        "plays": plays,
        "quick": kind.quick,
        "replayable": kind.replayable,
        "snapshots": snapshot is not None,
        "snapshot_fault": snapshot or "",
    }


def _digest(tasks: Sequence[TaskData]) -> str:
    digest = hashlib.sha256()
    for task in tasks:
        digest.update(task.model_dump_json().encode())
    return digest.hexdigest()


def main(ref: str, count: str, ahead: str) -> None:
    if int(ahead):
        run_ahead()
    with os.fdopen(os.dup(sys.stdout.fileno()), "w") as out:
        # What the bundle and its own processes print is not for who reads the lines.
        os.dup2(sys.stderr.fileno(), sys.stdout.fileno())

        def write(line: dict[str, Any]) -> None:
            # What a bundle's expert calls with may be no JSON; nobody reads it here.
            out.write(json.dumps(line, default=repr) + "\n")
            out.flush()

        for line in probe(ref, int(count), lambda what: write({"at": what})):
            write(line)


if __name__ == "__main__":
    main(*sys.argv[1:])
