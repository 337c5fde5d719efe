"""Clients, a clock that moves by itself, and a network that does to each frame what it is told."""

from __future__ import annotations

import itertools
import random
from collections import Counter
from collections.abc import Callable
from enum import Enum
from typing import Any

from agent_env.client._conversation import Conversation
from agent_env.client._dial import Address
from agent_env.client._frames import session_facts
from agent_env.client._policy import Policy
from agent_env.client._site import Site, Waits
from agent_env.client._talk import Ask, Command, Cut, Ended, HangUp, Open, Pause, Talk, resumed
from agent_env.errors import NotReset, ServerDown, SessionError
from agent_env.server.protocol import error_frame
from agent_env.types import Observation

from .model import DONE_AT, ModelServer, Socket

LATENCY_S = 0.01
SHORT_S = 3.0
"""How long a server is away that is killed by a frame."""


class Fault(Enum):
    """What becomes of one command."""

    NONE = "nothing bad"
    CUT_BEFORE = "the frame is lost"
    CUT_AFTER = "its reply is lost"
    KILL_BEFORE = "the server dies before it writes the step down"
    KILL_TORN = "the server dies while it writes the step down"
    KILL_AFTER = "the server dies before it replies"
    RESTARTING = "close code 1012"
    IDLE = "close code 4408"
    EVICTED = "the slot is given up, the journal stays"
    FULL_DISK = "the step can't be written down yet"
    # From here on an episode may be lost.
    SILENT = "no reply, nothing done"
    SILENT_AFTER = "carried out, no reply in time"
    OTHERS = "a reply to another frame"
    NAMELESS = "a step's reply that doesn't say whose it is"
    TAKEN = "close code 4409"
    FORGOTTEN = "session and journal are gone"
    STEP_TIMEOUT = "the server gives the step up"
    BABBLE = "something that isn't a frame"


CURABLE = tuple(Fault)[: tuple(Fault).index(Fault.SILENT)]

_WRITES = {Fault.KILL_BEFORE: "nothing", Fault.KILL_TORN: "torn"}
_CODES = {Fault.RESTARTING: 1012, Fault.IDLE: 4408, Fault.TAKEN: 4409}


class Client:
    """A conversation, and what its user knows for sure."""

    def __init__(self, world: World, name: int) -> None:
        self.world = world
        self.faults: list[Fault] = []
        self.socket: Socket | None = None
        self.ready_at: float | None = None
        """When the command in flight is over; None between calls."""
        self._effect: Callable[[], Any] = lambda: None
        self._talk: Talk[Any]
        self._then: Callable[[Any], None]
        self._began = self._budget_s = 0.0
        self.playing = self.finished = False
        self.sum = self.steps = 0
        self.outcomes: Counter[str] = Counter()
        self.expected = 0
        ids = (f"client-{name}-{n:06}" for n in itertools.count())
        self.conversation = Conversation(
            world.site,
            world.policy,
            clock=lambda: world.now,
            jitter=random.Random(name).random,
            new_id=lambda: next(ids),
        )

    def reset(self) -> None:
        if self.playing:
            self.outcomes["omitted"] += 1
        self.expected += 1
        self.playing, self.finished = True, False
        self._start(self.conversation.reset({}), self.world.policy.reset_timeout, self._shown)

    def step(self, n: int) -> None:
        action = {"type": "call_tool", "tool_name": "add", "arguments": {"n": n}}

        def then(seen: Observation) -> None:
            self._stepped(seen, n)

        self._start(self.conversation.step(action), self.world.policy.step_timeout, then)

    def close(self) -> None:
        if self.playing:
            self.outcomes["omitted"] += 1
            self.playing = False
        self._start(self.conversation.close(), 1.0, lambda _: None)

    def proceed(self) -> None:
        """The command in flight is over; on to the next, or to the end of the call."""
        self.ready_at = None
        try:
            came = self._effect()
        except Exception as error:
            self._next(self._talk.throw, error)
        else:
            self._next(self._talk.send, came)

    def _start(self, talk: Talk[Any], reply_s: float, then: Callable[[Any], None]) -> None:
        self._talk, self._then = talk, then
        self._began, self._budget_s = self.world.now, self.world.policy.call_s(reply_s)
        self._next(talk.send, None)

    def _next(self, resume: Callable[[Any], Command], came: object) -> None:
        try:
            command = resumed(resume, came)
        except SessionError as error:
            self._failed(error)
            return
        if isinstance(command, Ended):
            self._check_time()
            self._then(command.result)
            return
        duration_s, self._effect = self.world.carry_out(self, command)
        self.ready_at = self.world.now + duration_s

    def _failed(self, error: SessionError) -> None:
        self._check_time()
        assert self.playing or isinstance(error, NotReset), f"over already, and then {error!r}"
        self.outcomes[type(error).__name__] += self.playing
        self.outcomes += Counter()  # drops what was counted as 0
        self.playing = False

    def _check_time(self) -> None:
        took_s = self.world.now - self._began
        assert took_s <= self._budget_s + LATENCY_S, f"{took_s} s, budget {self._budget_s}"

    def _shown(self, seen: Observation) -> None:
        assert (session_facts(seen) or {})["seq"] == 0
        assert (seen.model_extra or {})["total"] == 0
        self.sum = self.steps = 0

    def _stepped(self, seen: Observation, n: int) -> None:
        self.sum, self.steps = self.sum + n, self.steps + 1
        assert self.playing, "a step of an episode that is over"
        assert (session_facts(seen) or {})["seq"] == self.steps
        assert (seen.model_extra or {})["total"] == self.sum, "not carried out exactly once"
        assert seen.done == (self.steps == DONE_AT)
        if seen.done:
            assert seen.reward == self.sum
            self.outcomes["scored"] += 1
            self.playing, self.finished = False, True


class World:
    """One server, some clients of one process, one clock."""

    def __init__(self, clients: int, slots: int, policy: Policy) -> None:
        self.now = 1000.0
        self.policy = policy
        self.server = ModelServer(slots)
        self.site = Site(Address("http://127.0.0.1:1"))
        self.site.waits = Waits()
        self.site.answered = self.site.extended = True
        self.clients = [Client(self, name) for name in range(clients)]

    def run(self, events: int | None = None) -> None:
        """Let so many commands end, in the order of time; all of them by default."""
        for _ in itertools.count() if events is None else range(events):
            busy = [c for c in self.clients if c.ready_at is not None]
            if not busy:
                return
            first = min(busy, key=lambda client: client.ready_at or 0.0)
            assert first.ready_at is not None
            self.now = max(self.now, first.ready_at)
            first.proceed()

    def carry_out(self, client: Client, command: Command) -> tuple[float, Callable[[], Any]]:
        """How long the command takes, and what is to happen then."""
        match command:
            case Pause(seconds):
                assert seconds >= 0
                return seconds, lambda: None
            case HangUp(goodbye):
                return 0.0, lambda: self._hang_up(client, goodbye)
            case Open(query, timeout_s):
                return self._opening(client, query, timeout_s)
            case Ask(text, timeout_s):
                return self._asking(client, text, timeout_s)

    def _hang_up(self, client: Client, goodbye: bool) -> None:
        socket, client.socket = client.socket, None
        if socket is not None:
            (self.server.say_goodbye if goodbye else self.server.drop)(socket)

    def _opening(
        self, client: Client, query: dict[str, str], timeout_s: float
    ) -> tuple[float, Callable[[], Any]]:
        if client.faults and client.faults[0] is Fault.SILENT:
            client.faults.pop(0)
            return timeout_s, _hangs

        def connect() -> None:
            client.socket = self.server.connect(query, self.now)

        return min(LATENCY_S, timeout_s), connect

    def _asking(
        self, client: Client, text: str, timeout_s: float
    ) -> tuple[float, Callable[[], Any]]:
        fault = client.faults.pop(0) if client.faults else Fault.NONE
        socket = client.socket
        assert socket is not None, "a frame without a connection"
        takes_s = LATENCY_S
        if socket.session is None and len(self.server.live) >= self.server.slots:
            takes_s = max(LATENCY_S, socket.queued_until - self.now)
        if fault in (Fault.SILENT, Fault.SILENT_AFTER) or takes_s > timeout_s:
            done = fault is Fault.SILENT_AFTER
            return timeout_s, lambda: self._silence(socket, text, done)
        return takes_s, lambda: self._answer(socket, text, fault)

    def _silence(self, socket: Socket, text: str, done: bool) -> None:
        if done:
            socket.late = self.server.frame(socket, text)
        raise TimeoutError

    def _answer(self, socket: Socket, text: str, fault: Fault) -> str:
        server, before = self.server, socket.session and socket.session.reply
        if fault is Fault.CUT_BEFORE:
            server.drop(socket)
        if fault in _CODES and socket.closed is None:
            server.drop(socket, _CODES[fault])
        if fault is Fault.EVICTED:
            server.evict(socket)
        if fault is Fault.FORGOTTEN:
            name = str(socket.session and socket.session.id)
            server.evict(socket)
            server.journals.pop(name, None)
        if fault is Fault.FULL_DISK:
            return error_frame("EXECUTION_ERROR", "f", reason="JOURNAL_FULL", retry_after_s=1.0)
        if fault is Fault.STEP_TIMEOUT:
            return error_frame("EXECUTION_ERROR", "slow", reason="STEP_TIMEOUT")
        reply = server.frame(socket, text, _WRITES.get(fault, "whole"))
        if fault in (Fault.KILL_BEFORE, Fault.KILL_TORN, Fault.KILL_AFTER):
            server.kill(self.now + SHORT_S)
        if fault is Fault.CUT_AFTER:
            server.drop(socket)
        if socket.closed not in (None, 1000):
            raise Cut(None, "cut")
        if fault is Fault.OTHERS:
            return before or reply.replace('"seq": ', '"seq": 9')
        if fault is Fault.NAMELESS and '"type": "step"' in text:
            return reply.replace('"session"', '"nobody"')
        return "{]" if fault is Fault.BABBLE else reply


def _hangs() -> None:
    raise ServerDown("no handshake")
