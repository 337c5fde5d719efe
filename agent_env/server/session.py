"""A session: one episode after another, each step carried out once and written down before it is
answered. Used by the event loop alone; only the task itself may run in a thread.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any, TypeVar

from agent_env.server import carry, ordering, record
from agent_env.server.carry import Carried, carry_out
from agent_env.server.episode import Chosen, Episode, choose
from agent_env.server.journal import JournalFile, JournalFull
from agent_env.server.owners import Owner
from agent_env.server.protocol import FrameError, Reset, Step
from agent_env.server.rebuild import Lost, Rebuilt, rebuild, takes_down, took_down
from agent_env.server.said import Said, session_metadata
from agent_env.server.served import ServedSplit
from agent_env.server.watchdog import At
from agent_env.server.work import Work
from agent_env.types import EpisodeState

_log = logging.getLogger(__name__)

T = TypeVar("T")

STEP_TIMEOUT = "STEP_TIMEOUT"
RETRY_FULL_S = 1.0
"""When to send a step again that found the disk full, in seconds."""
COMPACT_BYTES = 2**18
"""A journal longer than this is begun anew with the next snapshot."""


class Fenced(Exception):
    """The session went on over another socket while this one's frame waited."""


class Session:
    """What a socket speaks to; outlives it."""

    __slots__ = (
        "_asked",
        "_begun",
        "_episode",
        "_running",
        "_split",
        "_tried",
        "_unsnapped_s",
        "_unwritten",
        "_work",
        "episode_id",
        "epoch",
        "holder",
        "id",
        "journal",
        "known",
        "lost",
        "owner",
        "reply",
        "seq",
    )  # fmt: skip

    def __init__(self, session_id: str | None, work: Work) -> None:
        self.id = session_id
        self.holder: object = None
        """The socket that has it, if any."""
        self.owner: Owner | None = None
        self.known = session_id is not None
        """Whether the client has shown that it can go on with a session."""
        self.journal: JournalFile | None = None
        self.episode_id: str | None = None
        self.epoch = 0
        self.seq = 0
        self.lost: str | None = None
        self.reply = ""
        self._work = work
        self._episode: Episode | None = None
        self._split: ServedSplit | None = None
        self._asked: dict[str, object] | None = None
        self._unwritten: Callable[[], None] | None = None
        self._running: asyncio.Future[Any] | None = None
        self._tried = False
        self._begun: list[record.Begun] = []
        self._unsnapped_s = 0.0

    @property
    def running(self) -> asyncio.Future[Any] | None:
        """The reset or step that a thread is at; done once it has really ended."""
        return self._running

    @property
    def is_reset(self) -> bool:
        """Whether there is an episode, if only a lost one."""
        return self._episode is not None or self.lost is not None

    def state(self) -> EpisodeState:
        """Where the episode stands; empty before the first reset."""
        return self._episode.state(self.episode_id) if self._episode else EpisodeState()

    def answer_now(self, step: Step) -> str | None:
        """Carry a quick task's step out. None: it needs `answer`. Raises FrameError."""
        split = self._split
        if self._running is not None or split is None or not self._work.pace.is_quick(split):
            return None
        if self._is_again(step) or self._tried or self._unwritten is not None:
            return None
        episode = self._open_episode()
        watchdog = self._work.watchdog
        watchdog.at = (episode, step.tool_name)
        try:
            carried = carry_out(episode, step, n=self.seq + 1, unsnapped_s=self._unsnapped_s)
        finally:
            watchdog.at = None
        self._work.pace.took(split, carried.took_s)
        return self._keep_step(carried)

    async def answer(self, frame: Reset | Step, holder: object) -> str:
        """Carry a frame out, or say again what it was answered. Raises FrameError, Fenced."""
        await self._settled(frame.deadline_s)
        if self.holder is not holder:
            raise Fenced
        if isinstance(frame, Reset):
            return await self._reset(frame)
        if self._is_again(frame):
            self._write_down()
            return self.reply
        episode = self._open_episode()
        self._write_down()
        try:
            work = partial(self._try, episode, frame, self.seq + 1)
            carried = await self._in_thread(work, frame.deadline_s, (episode, frame.tool_name))
        except JournalFull as error:
            raise _full(error) from error
        return self._keep_step(carried)

    async def rebuild(self, journal: JournalFile) -> None:
        """Become what the journal says. Raises Lost."""
        try:
            recorded = record.read(journal.read())
        except (OSError, ValueError) as error:
            raise Lost("SESSION_LOST", f"its journal can't be read: {error}") from error
        self.journal, self.episode_id = journal, recorded.episode
        self.seq, self.epoch, self.lost = recorded.seq, recorded.epoch + 1, recorded.lost
        self._tried, self._begun = True, recorded.resets
        if self.lost is None and not recorded.resets:
            self._asked = recorded.asked
            played = partial(rebuild, self._work.served, recorded, self._work.server)
            self._become(await self._work.pool.submit(played))
        elif self.lost not in (None, STEP_TIMEOUT):
            raise Lost(self.lost, "the session was lost before")
        with suppress(JournalFull):
            journal.append(record.line({"epoch": self.epoch}))

    def bury(self, reason: str) -> None:
        """It can't be rebuilt, and the journal shall say so to whoever asks again."""
        if self.journal is not None:
            self._lose(reason)
            self.journal.close()

    def _become(self, rebuilt: Rebuilt) -> None:
        self._episode, self._split = rebuilt.episode, rebuilt.chosen.split
        self._note_pace(rebuilt.episode, rebuilt.chosen.split)
        self.reply = self._frame(rebuilt.outcome.said())

    def _is_again(self, step: Step) -> bool:
        if self.lost is not None:
            raise ordering.timed_out()
        if self._episode is None:
            raise ordering.not_reset()
        return ordering.is_again(step.seq, self.seq)

    def _open_episode(self) -> Episode:
        if self._episode is None:
            raise ordering.not_reset()
        return self._episode

    async def _settled(self, deadline_s: float | None) -> None:
        """Wait for what a thread is still at: an older socket's step, or one that timed out."""
        # More than one frame may wait, where a session has no socket: they take turns.
        while (running := self._running) is not None:
            _, pending = await asyncio.wait({running}, timeout=deadline_s)
            if pending:
                raise ordering.timed_out()
            # Who began it hears of it first, and keeps what it said.
            while self._running is running:
                await asyncio.sleep(0)

    async def _reset(self, frame: Reset) -> str:
        if ordering.is_same_reset(frame, self._asked, self.seq) and self.lost is None:
            self._write_down()
            return self.reply
        chosen = choose(self._work.served, frame)
        episode = Episode(self._work.served, chosen)
        asked = ordering.asked_for(frame)
        self._note_reset(asked, chosen.data.id)
        work = partial(carry.begin, episode, self._first(chosen, frame.episode_id, asked))
        # The old episode is over the moment its successor is begun, not when that succeeds.
        self._unwritten = self._asked = None
        if self._work.pace.is_quick(chosen.split):
            self._work.watchdog.at = (episode, "reset")
            try:
                carried = work()
            finally:
                self._work.watchdog.at = None
            self._work.pace.took(chosen.split, carried.took_s)
        else:
            carried = await self._in_thread(work, frame.deadline_s, (episode, "reset"))
        self._note_pace(episode, chosen.split)
        self._episode, self._split, self._asked = episode, chosen.split, asked
        self.episode_id, self.seq, self.epoch, self.lost = frame.episode_id, 0, 0, None
        self._tried, self._unsnapped_s, self._begun = False, 0.0, []
        self.reply = self._frame(carried.said)
        if self.journal is not None:
            self._unwritten = partial(self.journal.begin, carried.records + carried.snapshot)
            self._write_down()
        return self.reply

    def _note_reset(self, asked: dict[str, object], task: str) -> None:
        """A reset may take the process down, too, and would be sent again. Raises FrameError."""
        if self.journal is None:
            return
        tries = [begun.server for begun in self._begun if begun.asked == asked]
        if takes_down(tries, self._work.server):
            message = took_down(f"the reset of the task {task}", len(tries))
            _log.error("session %s: %s", self.id, message)
            raise FrameError("EXECUTION_ERROR", message, reason="ENV_ERROR")
        try:
            self.journal.note(record.reset_try_line(asked, self._work.server))
        except JournalFull as error:
            raise _full(error) from error

    def _first(
        self, chosen: Chosen, episode_id: str | None, asked: dict[str, object]
    ) -> record.First:
        return record.First(
            session=self.id or "",
            episode=episode_id,
            bundle=self._work.served.hashes[chosen.split.owner],
            reward=self._work.served.reward_name,
            split=chosen.split.name,
            index=chosen.data.index,
            seed=chosen.seed,
            asked=asked,
        )

    def _note_pace(self, episode: Episode, split: ServedSplit) -> None:
        if episode.quick is not None:
            self._work.pace.opened(split, episode.quick)

    async def _in_thread(self, work: Callable[[], T], deadline_s: float | None, at: At) -> T:
        running = self._work.pool.submit(work)
        self._running = running
        self._work.began()
        running.add_done_callback(self._work.ended)
        try:
            _, pending = await asyncio.wait({running}, timeout=deadline_s)
        except asyncio.CancelledError:  # the server gives up waiting: nobody keeps what it says
            running.add_done_callback(self._ended)
            raise
        if pending:
            running.add_done_callback(self._ended)
            self._work.overdue(running, at)
            self._lose(STEP_TIMEOUT)
            raise ordering.timed_out()
        self._running = None
        return running.result()

    def _ended(self, running: asyncio.Future[T]) -> None:
        """A step that timed out has come to its end; what it says is too late."""
        self._running = None
        if not running.cancelled():
            running.exception()

    def _lose(self, reason: str) -> None:
        self.lost = reason
        if self.journal is not None:
            with suppress(JournalFull):
                self.journal.append(record.line({"lost": reason}))

    def _try(self, episode: Episode, step: Step, n: int) -> Carried:
        """In a thread: a step that may take the process down with it. Raises JournalFull."""
        if self.journal is not None:
            self.journal.append(
                record.try_line(n, self._work.server, step.tool_name or "list_tools")
            )
        self._tried = False
        return carry_out(episode, step, n=n, unsnapped_s=self._unsnapped_s)

    def _keep_step(self, carried: Carried) -> str:
        self.seq += 1
        self._unsnapped_s = 0.0 if carried.snapshot else self._unsnapped_s + carried.took_s
        self.reply = self._frame(carried.said)
        if self.journal is not None:
            if carried.snapshot and self.journal.size > COMPACT_BYTES:
                self._unwritten = partial(self.journal.compact, carried.snapshot)
            else:
                records = carried.records + carried.snapshot
                self._unwritten = partial(self.journal.append, records)
            self._write_down()
        return self.reply

    def _write_down(self) -> None:
        if self._unwritten is not None:
            try:
                self._unwritten()
            except JournalFull as error:
                raise _full(error) from error
            self._unwritten = None

    def _frame(self, said: Said) -> str:
        return said.frame(
            session_metadata(self.episode_id, self.id, self.epoch, self.seq, self._bundle_hash())
        )

    def _bundle_hash(self) -> str | None:
        return self._work.served.hashes[self._split.owner] if self._split else None


def _full(error: JournalFull) -> FrameError:
    message = f"the step can't be written down ({error}); send it again"
    return FrameError(
        "EXECUTION_ERROR", message, reason="JOURNAL_FULL", retry_after_s=RETRY_FULL_S
    )
