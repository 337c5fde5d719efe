"""Plays sampled tasks in a process of its own: `python -m agent_env.checking.probe REF COUNT`.

Prints one JSON line before each task and one after it, so that a task which takes the process
down, or never ends, is known by its id.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
from collections.abc import Iterator, Sequence
from typing import Any

from agent_env.bundle import Bundle, load_bundle
from agent_env.checking.playing import Player
from agent_env.checking.sampling import sampled
from agent_env.checking.snapshots import restored
from agent_env.types import TaskData


def probe(bundle: Bundle, count: int) -> Iterator[dict[str, Any]]:
    """The lines of all splits."""
    player = Player(bundle)
    for split in dict.fromkeys(bundle.splits):
        tasks = list(bundle.tasks(split))
        digest = _digest(tasks)
        yield {"split": split, "tasks": digest, "again": _digest(bundle.tasks(split))}
        for place in sampled(len(tasks), count):
            data = tasks[place]
            yield {"begins": data.id}
            yield {"split": split, "id": data.id, **_task(bundle, player, data)}


def seed_of(task_id: str) -> int:
    """The seed that a server gives a task which was asked for without one."""
    return int.from_bytes(hashlib.sha256(task_id.encode()).digest()[:8], "big") >> 1


def _task(bundle: Bundle, player: Player, data: TaskData) -> dict[str, Any]:
    """Each script three times: on a new object, on the same one reset, on another new one."""
    seed, plays = seed_of(data.id), {}
    kept = bundle.open(data)
    for script in player.scripts():
        first = player.play(kept, data, script, seed)
        again = player.play(kept, data, script, seed)
        anew = player.play(bundle.open(data), data, script, seed)
        plays[script] = [vars(played) for played in (first, again, anew)]
    kind = type(kept)
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


def main(ref: str, count: str) -> None:
    with os.fdopen(os.dup(sys.stdout.fileno()), "w") as out:
        # What the bundle and its own processes print is not for who reads the lines.
        os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
        for line in probe(load_bundle(ref), int(count)):
            out.write(json.dumps(line) + "\n")
            out.flush()


if __name__ == "__main__":
    main(*sys.argv[1:])
