"""A session for programs that run an event loop; see `session` for what it promises."""

from __future__ import annotations

import asyncio
from typing import Any

from agent_env.client._async_wire import AsyncWire
from agent_env.client._talk import T, Talk
from agent_env.client.session import _call, _chosen, _Counted, _tools
from agent_env.types import END_TURN, EpisodeState, Observation


class AsyncSession(_Counted):
    """`Session`, awaited: the same policy and errors, on the caller's own event loop.

    Calls take turns. A cancelled call leaves the episode unknown: reset to go on. Use
    `async with`, or close it: AgentEnv can't do that from outside the loop.
    """

    def _begin(self) -> None:
        super()._begin()
        self._wire = AsyncWire(self._site)
        self._turn = asyncio.Lock()

    async def reset(
        self, *, split: str | None = None, index: int | None = None, seed: int | None = None
    ) -> Observation:
        """Begin an episode; raises what `Session.reset` raises."""
        return await self._hold(self._conversation.reset(_chosen(split, index, seed)))

    async def call_tool(self, name: str, arguments: dict[str, Any]) -> Observation:
        """One tool call, carried out once; raises what `Session.call_tool` raises."""
        return await self._hold(self._conversation.step(_call(name, arguments)))

    async def end_turn(self, response: str) -> Observation:
        """Answer in plain text; the reply has the next prompt, or `done` and the reward."""
        return await self.call_tool(END_TURN, {"response": response})

    async def list_tools(self) -> list[dict[str, Any]]:
        """The tools of the open episode."""
        return _tools(await self._hold(self._conversation.step({"type": "list_tools"})))

    async def state(self) -> EpisodeState:
        """Where the episode stands, as the server sees it."""
        return await self._hold(self._conversation.state())

    async def close(self) -> None:
        """Give the slot back; a later reset opens a new session."""
        await self._hold(self._conversation.close())

    async def __aenter__(self) -> AsyncSession:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def _hold(self, talk: Talk[T]) -> T:
        async with self._turn:
            return await self._wire.run(talk)
