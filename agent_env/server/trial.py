"""One episode in which nothing is done: does the reward that was asked for exist?

It is played in a process of its own, before there is a server: a task may print, hang or end its
process, and none of that says anything about the reward.
"""

from __future__ import annotations

import json
import logging
import os
import select
import signal

from agent_env.errors import RewardUndefined
from agent_env.server.episode import derived_seed
from agent_env.server.nursery import die_with
from agent_env.server.served import Served, ServedSplit

_log = logging.getLogger(__name__)

TRIAL_S = 10.0
"""How long the episodes of all splits may take, in seconds; else nothing is known."""
_MAX_TURNS = 16


def check_reward(served: Served) -> None:
    """Raises RewardUndefined where no split's first task records the score asked for.

    Where only some do, the log names the others. The bundles' own rule is `agent-env check`'s.
    """
    if not isinstance(served.reward, str):
        return
    faults = _played_apart(served)
    if faults and len(faults) == len(served.splits):
        raise RewardUndefined(f"--reward: {next(iter(faults.values()))}")
    for split, fault in faults.items():
        _log.warning("no episode of %s will be scored: %s", split, fault)


def _played_apart(served: Served) -> dict[str, str]:
    """What is wrong by split, as a forked process finds it."""
    told, tells = os.pipe()
    parent = os.getpid()
    child = os.fork()
    if child == 0:
        die_with(parent)
        _play_and_exit(served, tells)
    os.close(tells)
    with os.fdopen(told, "rb") as pipe:
        said = pipe.readline() if select.select([pipe], [], [], TRIAL_S)[0] else b""
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    faults: dict[str, str] = json.loads(said) if said.endswith(b"\n") else {}
    return faults


def _play_and_exit(served: Served, tells: int) -> None:
    try:
        nowhere = os.open(os.devnull, os.O_RDWR)
        for fd in (0, 1, 2):
            os.dup2(nowhere, fd)
        faults = {split.name: _fault(served, split) for split in served.splits.values()}
        found = {name: fault for name, fault in faults.items() if fault is not None}
        os.write(tells, json.dumps(found).encode() + b"\n")
    finally:
        os._exit(0)


def _fault(served: Served, split: ServedSplit) -> str | None:
    """Any other failure than the reward's is the task's, and told when it is played."""
    try:
        data = split.tasks[0]
        task = split.bundle.open(data)
        task.reset(derived_seed(data.id))
        for _ in range(_MAX_TURNS):
            if task.end_turn("") is None or task.done:
                break
        served.reward_of(split, task.score())
    except RewardUndefined as error:
        return str(error)
    except BaseException:
        return None
    return None
