"""From a journal back to the episode: play it again and compare every word. Never a guess."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import Any

from agent_env.server.episode import Chosen, Episode, Outcome
from agent_env.server.protocol import FrameError, parse_action
from agent_env.server.record import Recorded, Snapshot
from agent_env.server.served import Served

_log = logging.getLogger(__name__)

MAX_TRIES = 3
"""A step that was begun this often by workers of one server and never finished takes them down."""
MAX_TRIES_EVER = 10
"""The same, by whatever servers: one that was killed from outside proves nothing by itself."""


class Lost(Exception):
    """The session can't be gone on with; its rollout is unscored."""

    def __init__(self, reason: str, message: str, **extra: Any) -> None:
        super().__init__(message)
        self.reason = reason
        self.message = message
        self.extra = extra

    def frame(self) -> str:
        """The error frame that says so."""
        extra = {"reason": self.reason, **self.extra}
        return FrameError("SESSION_ERROR", self.message, **extra).frame()


@dataclass(frozen=True, slots=True)
class Rebuilt:
    """An episode as it was, and what it said last."""

    chosen: Chosen
    episode: Episode
    outcome: Outcome


def rebuild(served: Served, recorded: Recorded, server: str) -> Rebuilt:
    """Play a journal in that server. Raises Lost; takes as long as the steps took."""
    try:
        return _rebuilt(served, recorded, server)
    except Lost:
        raise
    except Exception as error:  # a file that somebody else wrote into can say anything
        message = f"its journal can't be played: {type(error).__name__}: {error}"
        raise Lost("SESSION_LOST", message) from error


def takes_down(tries: list[str], server: str) -> bool:
    """Whether what was begun by these servers, and never ended, ends its process."""
    return tries.count(server) >= MAX_TRIES or len(tries) >= MAX_TRIES_EVER


def took_down(what: str, times: int) -> str:
    """How the log and the client are told of it."""
    return f"{what} was begun {times} times and took its process down"


def _rebuilt(served: Served, recorded: Recorded, server: str) -> Rebuilt:
    chosen = _chosen(served, recorded)
    tries = recorded.tries
    if tries:
        step = f"step {recorded.seq + 1}, {recorded.tried} of the task {chosen.data.id},"
        if takes_down(tries, server):
            raise Lost("SESSION_LOST", took_down(step, len(tries)))
        _log.warning("%s was begun before, and its process ended meanwhile", step)
    episode = Episode(served, chosen)
    if recorded.snapshot is not None:
        outcome = _restored(episode, recorded.snapshot)
    else:
        outcome = _begun(episode, recorded)
    for played in recorded.steps:
        outcome = episode.step(parse_action(played.action))
        _compare(outcome, played.digest, played.n)
    return Rebuilt(chosen, episode, outcome)


def _chosen(served: Served, recorded: Recorded) -> Chosen:
    split = served.splits.get(recorded.split)
    if split is None or served.hashes[split.owner] != recorded.bundle:
        message = f"the tasks of {recorded.split!r} aren't those that the episode began with"
        raise Lost("BUNDLE_CHANGED", message)
    if recorded.reward != served.reward_name:
        rule = "the reward is {0!r}, and was {1!r} when the episode began"
        raise Lost("BUNDLE_CHANGED", rule.format(served.reward_name, recorded.reward))
    return Chosen(split, split.task(recorded.index), recorded.seed)


def _begun(episode: Episode, recorded: Recorded) -> Outcome:
    outcome = episode.reset()
    if not episode.replayable:
        raise Lost("SESSION_LOST", "the task says that it can't be played again")
    _compare(outcome, recorded.digest, 0)
    return outcome


def _restored(episode: Episode, snapshot: Snapshot) -> Outcome:
    outcome = Outcome(**snapshot.reply)
    try:
        episode.restore(snapshot.state, steps=snapshot.n, turn=snapshot.turn, last=outcome)
    except BaseException as error:
        message = f"the task can't restore its snapshot: {type(error).__name__}: {error}"
        raise Lost("SESSION_LOST", message) from error
    return outcome


def _compare(outcome: Outcome, digest: str, seq: int) -> None:
    if outcome.said().digest() != digest:
        step = f"step {seq}" if seq else "the reset"
        message = f"played again, {step} didn't say what it had said; the task isn't deterministic"
        raise Lost("SESSION_DIVERGED", message, seq=seq)
