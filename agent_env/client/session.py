"""A session: one episode after another on one server, over one connection while that holds."""

from __future__ import annotations

import time
from typing import Any

from agent_env.client._connection import Connection
from agent_env.client._openenv import (
    CONNECT_TIMEOUT_S,
    PROBE_S,
    Policy,
    Site,
    Visitor,
    reopened,
)
from agent_env.errors import NotReset, ServerDown, SessionError, SessionLost, StepTimeout
from agent_env.types import END_TURN, EpisodeState, Observation


class Session:
    """Opened by its first `reset`, never before; a dropped one is reopened by the next `reset`.

    Counts what it went through: `reopened` connections and `waited_s`. Any thread may use it, one
    at a time.
    """

    def __init__(self, site: Site, policy: Policy) -> None:
        self._site = site
        self._policy = policy
        self._visitor = Visitor()
        self._connection: Connection | None = None
        self.established = False
        self.reopened = 0

    @property
    def waited_s(self) -> float:
        """Seconds spent waiting for the server, or for room on it, so far."""
        return self._visitor.waited_s

    def reset(
        self, *, split: str | None = None, index: int | None = None, seed: int | None = None
    ) -> Observation:
        """Begin an episode; neither split nor index is the first task served.

        The first reset of a server that never answered raises ServerDown or AtCapacity at once.
        Later ones wait as the policy says, then raise the same. Also raises StepTimeout, and
        ProtocolError for a task that doesn't exist.
        """
        chosen = {"split": split, "index": index, "seed": seed}
        request = {name: value for name, value in chosen.items() if value is not None}
        observation = self._again(request)
        if observation is None:
            observation = self._anew(request)
        self.established = self._site.answered = True
        return observation

    def call_tool(self, name: str, arguments: dict[str, Any]) -> Observation:
        """One tool call. Raises SessionLost, StepTimeout, NotReset, EpisodeFailed.

        What is wrong with the call itself is in the observation's `error`.
        """
        action = {"type": "call_tool", "tool_name": name, "arguments": arguments}
        return self._step(action)

    def end_turn(self, response: str) -> Observation:
        """Answer in plain text; the reply has the next prompt, or `done` and the reward."""
        return self.call_tool(END_TURN, {"response": response})

    def list_tools(self) -> list[dict[str, Any]]:
        """The tools of the open episode."""
        extra = self._step({"type": "list_tools"}).model_extra or {}
        tools: list[dict[str, Any]] = extra["tools"]
        return tools

    def state(self) -> EpisodeState:
        """Where the episode stands, as the server sees it."""
        return self._live().state(self._policy.step_timeout)

    def close(self) -> None:
        """Give the slot back; a later reset opens a new session."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _again(self, request: dict[str, Any]) -> Observation | None:
        """Reset over the open connection; None when there is none or it turns out to be dead."""
        if self._connection is None:
            return None
        hopeless = self._site.given_up(self._visitor, time.monotonic())
        try:
            patience_s = self._policy.reset_timeout
            timeout_s = min(PROBE_S, patience_s) if hopeless else patience_s
            return self._connection.observe("reset", request, timeout_s)
        except SessionLost:
            self.close()
            return None
        except StepTimeout:
            self.close()
            self._site.join(self._visitor, ServerDown, 0.0, time.monotonic())
            raise

    def _anew(self, request: dict[str, Any]) -> Observation:
        if not self._site.answered:
            return self._open(request, CONNECT_TIMEOUT_S)
        observation = reopened(
            lambda connect_s: self._open(request, connect_s),
            self._site,
            self._visitor,
            self._policy,
        )
        self.reopened += self.established
        return observation

    def _open(self, request: dict[str, Any], connect_s: float) -> Observation:
        connection = Connection.open(self._site.url, min(connect_s, self._policy.reset_timeout))
        try:
            observation = connection.observe("reset", request, self._policy.reset_timeout)
        except SessionError:
            connection.close()
            raise
        self._connection = connection
        self._site.opened(connection)
        return observation

    def _step(self, action: dict[str, Any]) -> Observation:
        connection = self._live()
        try:
            return connection.observe("step", action, self._policy.step_timeout)
        except (SessionLost, StepTimeout):
            self.close()
            raise

    def _live(self) -> Connection:
        if self._connection is None:
            raise NotReset("this session has no episode; reset it first")
        return self._connection
