"""One rollout's episode, for trainers: what the model's calls say back, and what became of it.

The rules are the same for every trainer: what the infrastructure did is unscored, never 0; a tool
that a model misused answers with a text; an episode that is left open is ended on its behalf.
`Episode` blocks, `AsyncEpisode` is awaited; both keep the same `Record`.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from agent_env.client.async_session import AsyncSession
from agent_env.client.session import Session
from agent_env.errors import EpisodeFailed, SessionError, ToolError
from agent_env.training._functions import tool_text
from agent_env.types import END_TURN, Observation

_log = logging.getLogger(__name__)

MAX_TURNS = 64
"""Turns that are ended on the model's behalf before the rollout is called unscored."""


@dataclass
class Rollout:
    """One rollout as its environment saw it."""

    started: bool = False
    done: bool = False
    reward: float | None = None
    lost: str | None = None
    """Why there is no score; None while all is well."""
    scores: dict[str, float] = field(default_factory=dict)
    tool_calls: int = 0
    tool_failures: int = 0
    turns: int = 0
    """Answers that reached the task: in plain text, or as calls of `end_turn`."""
    reopened: int = 0
    continued: int = 0
    """Calls in mid-episode that went on over another connection."""
    waited_s: float = 0.0

    @property
    def open(self) -> bool:
        """Whether the episode can still be ended."""
        return self.started and not self.done and self.lost is None


class Record:
    """What is known of the rollout in hand; decides, and calls nobody."""

    def __init__(self, *, turns: bool) -> None:
        self.turns = turns
        """Whether a model's turn can be ended for it; else the last reward it was told counts."""
        self.rollout = Rollout()

    def begin(self) -> None:
        """A new rollout."""
        self.rollout = Rollout(started=True)

    def opened(self, observation: Observation) -> str | None:
        """What a reset adds to the prompt; an episode that is over at once is lost."""
        if observation.done:
            self.lose(observation.metadata.get("error"))
        appended: str | None = observation.metadata.get("appended")
        return appended

    def expect_call(self, name: str) -> None:
        """Count a tool call. Raises EpisodeFailed for a lost rollout, ToolError after the end."""
        rollout = self.rollout
        if rollout.lost is not None or not rollout.started:
            raise EpisodeFailed("the environment is gone; there is nothing more to do")
        if rollout.done:
            raise ToolError("the episode has ended; there is nothing more to do")
        rollout.tool_calls += 1
        rollout.turns += name == END_TURN

    def read(self, observation: Observation) -> str:
        """The text for the model. Raises ToolError, and EpisodeFailed for a broken episode."""
        rollout, metadata = self.rollout, observation.metadata
        if observation.reward is not None and not math.isfinite(observation.reward):
            raise EpisodeFailed(f"the environment's reward is {observation.reward}")
        if observation.done or (not self.turns and observation.reward is not None):
            rollout.reward = observation.reward
        if observation.done:
            rollout.done = True
            rollout.scores = _numbers(metadata.get("scores"))
            if metadata.get("status") == "error":
                raise EpisodeFailed(str(metadata.get("error")))
        return tool_text(observation.model_extra or {})

    def lose(self, why: object) -> None:
        """The rollout is unscored from here on."""
        self.rollout.lost = str(why)
        self.rollout.reward = None
        _log.warning("rollout unscored: %s", why)

    def unfinished(self) -> None:
        """It goes on after the last turn that is ended for it."""
        if self.rollout.open:
            self.lose(f"the task asked for more than {MAX_TURNS} turns")

    @contextmanager
    def counted(self, session: Session | AsyncSession) -> Iterator[None]:
        """What the session goes through in the block is the rollout's."""
        rollout = self.rollout
        reopened, continued, waited_s = session.reopened, session.continued, session.waited_s
        try:
            yield
        finally:
            rollout.reopened += session.reopened - reopened
            rollout.continued += session.continued - continued
            rollout.waited_s += session.waited_s - waited_s

    @contextmanager
    def losing(self, session: Session | AsyncSession) -> Iterator[None]:
        """A reset, or a call, in the block: without its session there is no rollout."""
        try:
            with self.counted(session):
                yield
        except SessionError as error:
            self.lose(error)
            raise

    @contextmanager
    def calling(self, session: Session | AsyncSession) -> Iterator[None]:
        """A tool call in the block: a lost session loses the rollout, a refusal is counted."""
        with self.losing(session):
            try:
                yield
            except ToolError:
                self.rollout.tool_failures += 1
                raise

    @contextmanager
    def ending(self, session: Session | AsyncSession) -> Iterator[None]:
        """A turn that is ended in the block: whatever goes wrong loses the rollout."""
        try:
            with self.counted(session):
                yield
        except (SessionError, ToolError) as error:
            self.lose(error)


def _numbers(scores: object) -> dict[str, float]:
    """Those that can be averaged: a server that isn't ours may say anything."""
    told = scores.items() if isinstance(scores, Mapping) else ()
    numbers = {name: value for name, value in told if isinstance(value, int | float)}
    return {str(name): float(value) for name, value in numbers.items() if math.isfinite(value)}


class Episode(Record):
    """A blocking session's rollouts, one after another."""

    def __init__(self, session: Session, *, turns: bool) -> None:
        super().__init__(turns=turns)
        self.session = session

    def open(self, **chosen: Any) -> str | None:
        """Begin the episode of that split, index and seed; returns what its prompt lacks.

        Raises SessionError, after which the rollout is lost.
        """
        self.begin()
        with self.losing(self.session):
            return self.opened(self.session.reset(**chosen))

    def call(self, name: str, arguments: dict[str, Any]) -> str:
        """A tool's text. Raises ToolError for the model's own faults, SessionError when lost."""
        self.expect_call(name)
        with self.calling(self.session):
            return self.read(self.session.call_tool(name, arguments))

    def answer(self, text: str) -> str | None:
        """End the turn with plain text; the next prompt, None when the episode is over or lost."""
        if not self.rollout.open:
            return None
        self.rollout.turns += 1
        with self.ending(self.session):
            said = self.read(self.session.end_turn(text))
            return None if self.rollout.done else said
        return None

    def settle(self) -> Rollout:
        """End an episode that the model left open; the rollout, scored or lost."""
        if self.turns:
            for _ in range(MAX_TURNS):
                if not self.rollout.open:
                    break
                with self.ending(self.session):
                    self.read(self.session.end_turn(""))
            self.unfinished()
        return self.rollout

    def close(self) -> None:
        """Give the session's slot back; twice is once."""
        self.session.close()


class AsyncEpisode(Record):
    """`Episode` on an event loop, with the same rules. Close it on the loop it ran on."""

    def __init__(self, session: AsyncSession, *, turns: bool) -> None:
        super().__init__(turns=turns)
        self.session = session

    async def open(self, **chosen: Any) -> str | None:
        """See `Episode.open`."""
        self.begin()
        with self.losing(self.session):
            return self.opened(await self.session.reset(**chosen))

    async def call(self, name: str, arguments: dict[str, Any]) -> str:
        """See `Episode.call`."""
        self.expect_call(name)
        with self.calling(self.session):
            return self.read(await self.session.call_tool(name, arguments))

    async def answer(self, text: str) -> str | None:
        """See `Episode.answer`."""
        if not self.rollout.open:
            return None
        self.rollout.turns += 1
        with self.ending(self.session):
            said = self.read(await self.session.end_turn(text))
            return None if self.rollout.done else said
        return None

    async def settle(self) -> Rollout:
        """See `Episode.settle`."""
        if self.turns:
            for _ in range(MAX_TURNS):
                if not self.rollout.open:
                    break
                with self.ending(self.session):
                    self.read(await self.session.end_turn(""))
            self.unfinished()
        return self.rollout

    async def close(self) -> None:
        """Give the session's slot back; twice is once."""
        await self.session.close()
