"""A session's connection as its conversation sees it: there or not, and what a break of it means.

Flags are set for the worst before each command and right again after it, so that a call that is
interrupted half-way leaves a session that connects anew.
"""

from __future__ import annotations

from collections.abc import Callable

from agent_env.client._frames import Refusal, Sent, frame
from agent_env.client._openenv import Call, Clock
from agent_env.client._policy import LONGEST_QUEUE_S, PROBE_S, Policy
from agent_env.client._site import Site, Visitor
from agent_env.client._talk import Ask, Cut, HangUp, Open, T, Talk
from agent_env.errors import (
    AtCapacity,
    ProtocolError,
    ServerDown,
    SessionLost,
    StepTimeout,
)

ATTACHED_ELSEWHERE = 4409
UNREADABLE = frozenset({1002, 1003, 1007, 1009})
"""Close codes of a side that can't take the other's frame: it fares no better a second time."""

_CONNECTION_IS_OVER = frozenset({"CAPACITY_REACHED", "SESSION_ERROR"})
_NOT_OURS = ("SESSION_ERROR", None)
"""How a stock server refuses a session id; ours gives a reason."""


class Link:
    """One connection after another to one session of the server."""

    def __init__(self, site: Site, policy: Policy, clock: Clock) -> None:
        self._site = site
        self._policy = policy
        self._clock = clock
        self.visitor = Visitor()
        self.connected = False
        self.extended = False
        """Whether the server that has the session speaks our extensions."""
        self.id: str | None = None
        self._plain = False
        """Open the next one as a stock client would: session ids mean nothing to the server."""

    def recognised(self, *, extended: bool) -> None:
        """The reply to a reset shows what kind of server it is."""
        self.extended = self._site.extended = extended
        self._plain = False

    def name(self, episode: str) -> None:
        """Call the session by its first episode, unless it has a name that the server knows."""
        nameless = self._plain or self._site.extended is False
        if self.id is None or (nameless and not self.connected):
            self.id = episode

    def forget(self) -> Talk[None]:
        """Leave the session as lost; the next one gets a new id."""
        self.id = None
        yield from self.hang_up()

    def hang_up(self, *, goodbye: bool = False) -> Talk[None]:
        """Leave the connection; with a goodbye the session ends."""
        self.connected = False
        yield HangUp(goodbye)

    def exchange(self, sent: Sent, call: Call, read: Callable[[str], T]) -> Talk[T]:
        """Send a frame and read its reply, connecting first where need be; one attempt."""
        if not self.connected:
            yield from self._connect(sent, call)
        elif self._given_up():
            yield from self._look(sent, call)
        reply_s = sent.reply_s + call.queued_s
        text = yield from self._ask(sent.text, reply_s, call, goes_on=sent.opens or self.extended)
        try:
            return read(text)
        except Refusal as refusal:
            if refusal.code in _CONNECTION_IS_OVER:
                yield from self.hang_up()
            self._plain = self._plain or (refusal.code, refusal.reason) == _NOT_OURS
            raise
        except ProtocolError:
            yield from self.hang_up()
            raise

    def _connect(self, sent: Sent, call: Call) -> Talk[None]:
        now = self._clock()
        if call.generation != self._site.generation:
            raise SessionLost("this client was closed")
        query = self._query(sent, call, now)
        connect_s = min(call.connect_s, PROBE_S) if self._given_up() else call.connect_s
        try:
            yield Open(query, min(connect_s, sent.reply_s, call.left(now)))
        except ServerDown as down:
            if sent.opens or self._site.journaled:
                raise
            raise SessionLost(f"{down}; it keeps no journal to go on from") from down
        self.connected = True
        call.connects += 1
        call.waits.pop(ServerDown, None)
        self._site.waits.over(ServerDown)

    def _query(self, sent: Sent, call: Call, now: float) -> dict[str, str]:
        call.queued_s = 0.0
        extended = self._site.extended is not False and not self._plain
        if self.id is None or not (extended if sent.opens else self.extended):
            return {}
        patience_s = self._policy.patience
        room_s = self._site.waits.left(self.visitor, AtCapacity, patience_s, now)
        call.queued_s = min(room_s, LONGEST_QUEUE_S, call.left(now))
        queue = {"wait_s": f"{call.queued_s:.3f}"} if call.queued_s > 0 else {}
        opening = {"open": "1"} if sent.opens else {}
        return {"session_id": self.id} | opening | queue

    def _look(self, sent: Sent, call: Call) -> Talk[None]:
        """Others have just waited in vain for this server: ask for something quick first."""
        yield from self._ask(frame("state"), min(PROBE_S, sent.reply_s), call, goes_on=True)

    def _ask(self, text: str, reply_s: float, call: Call, *, goes_on: bool) -> Talk[str]:
        self.connected = False
        timeout_s = min(reply_s, call.left(self._clock()))
        try:
            reply: str = yield Ask(text, timeout_s)
        except TimeoutError:
            yield from self.hang_up()
            if goes_on and timeout_s >= min(reply_s, PROBE_S, self._policy.call_s(reply_s) / 2):
                self._note_silence()
            message = f"{self._site.address.url}: no reply within {timeout_s:.1f} s"
            raise StepTimeout(message) from None
        except Cut as cut:
            yield from self.hang_up()
            self._check_curable(cut, call, goes_on=goes_on)
            raise
        self.connected = True
        self._site.waits.over(ServerDown)
        return reply

    def _check_curable(self, cut: Cut, call: Call, *, goes_on: bool) -> None:
        where = self._site.address.url
        if call.generation != self._site.generation:
            raise SessionLost("this client was closed") from cut
        if cut.code == ATTACHED_ELSEWHERE:
            raise SessionLost(f"{where}: another client took the session over") from cut
        if cut.code in UNREADABLE:
            raise ProtocolError(f"{where}: a frame that is too large, or none: {cut}") from cut
        if not goes_on:
            message = f"{where}: the connection broke, and the episode with it: {cut}"
            raise SessionLost(message) from cut

    def _note_silence(self) -> None:
        """A server of ours would have said that the step is slow: it hangs, for all of us."""
        budget_s = self._policy.wait_s(ServerDown())
        self._site.waits.join(self.visitor, ServerDown, budget_s, self._clock(), vain=True)

    def _given_up(self) -> bool:
        budget_s = self._policy.wait_s(ServerDown())
        return self._site.waits.given_up(self.visitor, ServerDown, budget_s, self._clock())
