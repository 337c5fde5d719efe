"""Carrying out: one reset or step of an episode and the records that say so. Touches no file.

Runs on the event loop for quick tasks and in a thread for others, so everything that costs time
beside the task itself, hashes and snapshots, is here too.
"""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass

from agent_env.server import record
from agent_env.server.episode import Episode, Outcome
from agent_env.server.protocol import Step
from agent_env.server.said import Said

_log = logging.getLogger(__name__)

REPLAY_S = 1.0
"""Of a task that has snapshots, about this much is played again at most, in seconds."""


@dataclass(slots=True)
class Carried:
    """What came of it."""

    outcome: Outcome
    said: Said
    records: bytes
    took_s: float
    snapshot: bytes = b""
    """One more record that stands for all before it, if there is one."""


def carry_out(episode: Episode, step: Step, *, n: int, unsnapped_s: float) -> Carried:
    """Step number `n`; the steps since the last snapshot took `unsnapped_s`."""
    began = time.perf_counter()
    outcome = episode.step(step)
    took = time.perf_counter() - began
    said = outcome.said()
    carried = Carried(outcome, said, record.step_line(n, step.action(), said), took)
    if episode.has_snapshots and (not episode.replayable or unsnapped_s + took > REPLAY_S):
        _add_snapshot(carried, episode, n)
    return carried


def begin(episode: Episode, first: record.First) -> Carried:
    """The reset, and the journal's first line."""
    began = time.perf_counter()
    outcome = episode.reset()
    took = time.perf_counter() - began
    said = outcome.said()
    carried = Carried(outcome, said, record.reset_line(first, said), took)
    if episode.has_snapshots and not episode.replayable:
        _add_snapshot(carried, episode, 0)
    return carried


def _add_snapshot(carried: Carried, episode: Episode, n: int) -> None:
    try:
        state = episode.snapshot()
        if state is not None:
            carried.snapshot = record.snapshot_line(n, episode.turn, state, carried.outcome)
    except Exception:
        _log.exception("the snapshot after step %d failed; the journal goes on without it", n)
