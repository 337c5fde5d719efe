"""A session: one episode after another on one server, through whatever happens to that server.

`Session` blocks, `AsyncSession` is awaited; both hold the same conversation.
"""

from __future__ import annotations

import threading
from typing import Any

from agent_env.client._conversation import Conversation
from agent_env.client._policy import Policy
from agent_env.client._site import Site, own
from agent_env.client._talk import T, Talk
from agent_env.client._wire import Wire
from agent_env.types import END_TURN, EpisodeState, Observation


class _Counted:
    """What a session went through, readable on either kind."""

    _conversation: Conversation
    _site: Site
    _policy: Policy

    def __init__(self, site: Site, policy: Policy) -> None:
        self._site, self._policy = site, policy
        self._begin()
        own(self)

    def _begin(self) -> None:
        self._conversation = Conversation(self._site, self._policy)

    def after_fork(self) -> None:
        """The episode stays with the parent: two that speak on one socket take each other's
        replies. In the child there is none before a reset."""
        self._begin()

    @property
    def id(self) -> str | None:
        """The name under which the server has it; None before the first reset."""
        return self._conversation.id

    @property
    def established(self) -> bool:
        """Whether a reset ever succeeded."""
        return self._conversation.established

    @property
    def epoch(self) -> int:
        """How often the server has rebuilt the episode."""
        return self._conversation.epoch

    @property
    def reopened(self) -> int:
        """Resets that had to connect again."""
        return self._conversation.reopened

    @property
    def continued(self) -> int:
        """Steps that had to connect again, in episodes that went on as if nothing had happened."""
        return self._conversation.continued

    @property
    def waited_s(self) -> float:
        """Seconds spent waiting for the server, or for room on it, so far."""
        return self._conversation.waited_s


class Session(_Counted):
    """Opened by its first `reset`, never before. Any thread may use it; calls take turns.

    When its connection breaks, a server with our extensions continues the episode, and the caller
    notices nothing but the time; a stock server has lost it: SessionLost. Every call keeps the
    policy's budget.
    """

    def _begin(self) -> None:
        super()._begin()
        self._wire = Wire(self._site)
        self._turn = threading.Lock()

    def reset(
        self, *, split: str | None = None, index: int | None = None, seed: int | None = None
    ) -> Observation:
        """Begin an episode; neither split nor index is the first task served.

        The first reset of a server that never answered raises ServerDown at once. Later ones wait
        as the policy says, then raise ServerDown or AtCapacity. Also raises StepTimeout,
        Unauthorized, and InvalidAction for a task that doesn't exist.
        """
        return self._hold(self._conversation.reset(_chosen(split, index, seed)))

    def call_tool(self, name: str, arguments: dict[str, Any]) -> Observation:
        """One tool call, carried out once.

        Raises SessionLost, SessionDiverged, ServerDown, AtCapacity, StepTimeout, JournalFull,
        NotReset, EnvError, InvalidAction. What is wrong with the call itself is in the
        observation's `error`.
        """
        return self._hold(self._conversation.step(_call(name, arguments)))

    def end_turn(self, response: str) -> Observation:
        """Answer in plain text; the reply has the next prompt, or `done` and the reward."""
        return self.call_tool(END_TURN, {"response": response})

    def list_tools(self) -> list[dict[str, Any]]:
        """The tools of the open episode."""
        return _tools(self._hold(self._conversation.step({"type": "list_tools"})))

    def state(self) -> EpisodeState:
        """Where the episode stands, as the server sees it."""
        return self._hold(self._conversation.state())

    def close(self) -> None:
        """Give the slot back; a later reset opens a new session."""
        self._hold(self._conversation.close())

    def __enter__(self) -> Session:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _hold(self, talk: Talk[T]) -> T:
        with self._turn:
            return self._wire.run(talk)


def _chosen(split: str | None, index: int | None, seed: int | None) -> dict[str, Any]:
    chosen = {"split": split, "index": index, "seed": seed}
    return {name: value for name, value in chosen.items() if value is not None}


def _call(name: str, arguments: dict[str, Any]) -> dict[str, Any]:
    return {"type": "call_tool", "tool_name": name, "arguments": arguments}


def _tools(seen: Observation) -> list[dict[str, Any]]:
    tools: list[dict[str, Any]] = (seen.model_extra or {})["tools"]
    return tools
