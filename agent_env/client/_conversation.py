"""A session's side of the protocol: which frame goes out, and whose reply comes in. Pure.

Against a server with our extensions a step is carried out exactly once, however often its
connection breaks: it goes out again under its own number. Against a stock server a broken
connection is a lost episode, never a fresh one by accident.
"""

from __future__ import annotations

import random
import time
import uuid
from collections.abc import Callable
from typing import Any

from agent_env.client import _frames
from agent_env.client._frames import Sent
from agent_env.client._link import Link
from agent_env.client._openenv import Call, Clock, reopened
from agent_env.client._policy import Policy, server_deadline
from agent_env.client._site import Site
from agent_env.client._talk import T, Talk
from agent_env.errors import InvalidAction, NotReset, SessionError, SessionLost
from agent_env.types import EpisodeState, Observation


class Conversation:
    """One session, from its first reset to its close. One call at a time."""

    def __init__(
        self,
        site: Site,
        policy: Policy,
        *,
        clock: Clock = time.monotonic,
        jitter: Callable[[], float] = random.random,
        new_id: Callable[[], str] = lambda: uuid.uuid4().hex,
    ) -> None:
        self._site = site
        self._policy = policy
        self._clock = clock
        self._jitter = jitter
        self._new_id = new_id
        self._link = Link(site, policy, clock)
        self._playing = False
        self._seq = 0
        self._episode = ""
        self.epoch = 0
        self.established = False
        self.reopened = 0
        self.continued = 0

    @property
    def id(self) -> str | None:
        """The session's id, while there is one."""
        return self._link.id

    @property
    def connected(self) -> bool:
        """Whether a connection is open, as far as anyone has noticed."""
        return self._link.connected

    @property
    def waited_s(self) -> float:
        """Seconds spent on attempts that failed, and between them."""
        return self._link.visitor.waited_s

    def reset(self, request: dict[str, Any]) -> Talk[Observation]:
        """Begin an episode, on the connection there is or a new one."""
        call = self._call(self._policy.reset_timeout)
        again = self._link.id is not None or self._site.extended is None
        self._playing = False
        try:
            seen = yield from self._begun(request, call)
        except SessionLost:
            if not again or call.generation != self._site.generation:
                raise
            # It is an older episode that is lost, or the server of it: the new one needs neither.
            yield from self._link.forget()
            seen = yield from self._begun(request, call)
        self.reopened += self.established and call.connects > 0
        self.established = self._site.answered = self._playing = True
        return seen

    def step(self, action: dict[str, Any]) -> Talk[Observation]:
        """Carry out an action, once."""
        self._check_playing()
        call = self._call(self._policy.step_timeout)
        sent = self._step_frame(action)
        if self._link.extended:
            _frames.check_size(sent.text)
        # Until its reply is here the step may have been carried out, or not.
        self._playing = False
        try:
            seen = yield from self._reached(sent, call, lambda text: self._seen(text, sent))
        except InvalidAction:
            self._playing = self._link.connected
            raise
        except SessionLost:
            yield from self._link.forget()
            raise
        except SessionError:
            self._playing = self._link.connected and not self._link.extended
            raise
        self._playing = True
        self._seq = sent.seq
        self.continued += call.connects > 0
        return seen

    def state(self) -> Talk[EpisodeState]:
        """Where the episode stands, as the server sees it."""
        self._check_playing()
        sent = Sent(_frames.frame("state"), self._policy.step_timeout, self._seq, self._episode)
        return (yield from self._reached(sent, self._call(sent.reply_s), _frames.state))

    def close(self) -> Talk[None]:
        """End the session; a later reset opens a new one."""
        self._playing = False
        self._link.id = None
        yield from self._link.hang_up(goodbye=True)

    def _begun(self, request: dict[str, Any], call: Call) -> Talk[Observation]:
        self._episode = self._new_id()
        self._link.name(self._episode)
        reply_s = self._policy.reset_timeout
        told = {"deadline_s": server_deadline(reply_s)} if self._site.extended else {}
        text = _frames.frame("reset", {**request, "episode_id": self._episode, **told})
        if self._site.extended is not False:
            _frames.check_size(text)
        sent = Sent(text, reply_s, 0, self._episode, opens=True)
        seen = yield from self._reached(sent, call, lambda text: self._shown(text, sent))
        self._seq = 0
        return seen

    def _step_frame(self, action: dict[str, Any]) -> Sent:
        reply_s, seq = self._policy.step_timeout, self._seq + 1
        if self._link.extended:
            action = {**action, "metadata": {"seq": seq, "deadline_s": server_deadline(reply_s)}}
        return Sent(_frames.frame("step", action), reply_s, seq, self._episode)

    def _shown(self, text: str, sent: Sent) -> Observation:
        """The reply to a reset, which tells what kind of server it is."""
        seen = _frames.observation(text)
        self._link.recognised(extended=_frames.session_facts(seen) is not None)
        return self._own(seen, sent)

    def _seen(self, text: str, sent: Sent) -> Observation:
        return self._own(_frames.observation(text), sent)

    def _own(self, seen: Observation, sent: Sent) -> Observation:
        if self._link.extended:
            _frames.check_own(seen, sent, self._link.id)
            facts = _frames.session_facts(seen) or {}
            self.epoch = int(facts.get("epoch", 0))
        return seen

    def _reached(self, sent: Sent, call: Call, read: Callable[[str], T]) -> Talk[T]:
        return reopened(
            lambda: self._link.exchange(sent, call, read),
            call,
            self._site,
            self._policy,
            clock=self._clock,
            jitter=self._jitter,
        )

    def _call(self, reply_s: float) -> Call:
        if self._site.ended:
            raise SessionLost("this client was closed: open another AgentEnv")
        now = self._clock()
        return Call(
            visitor=self._link.visitor,
            deadline=now + self._policy.call_s(reply_s),
            generation=self._site.generation,
            opened_at=now,
        )

    def _check_playing(self) -> None:
        if not self._playing:
            raise NotReset("this session has no episode; reset it first")
