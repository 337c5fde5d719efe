"""Many sessions stepped at once by one event loop, with frames that any OpenEnv client sends."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from websockets.asyncio.client import ClientConnection, connect

from benchmarks.env.process import Server

Action = dict[str, Any]

TICK: Action = {"type": "call_tool", "tool_name": "tick", "arguments": {}}
ADD: Action = {"type": "call_tool", "tool_name": "add", "arguments": {"a": 20, "b": 22}}

RESET_TIMEOUT_S = 60.0


class Player:
    """One session; `seq` is the number of its last step."""

    def __init__(self, socket: ClientConnection) -> None:
        self._socket = socket
        self.seq = 0

    async def reset(self, **data: Any) -> dict[str, Any]:
        """Begin an episode; returns the reply."""
        self.seq = 0
        return await self._ask("reset", data)

    async def step(self, action: Action, *, numbered: bool = True) -> dict[str, Any]:
        """One step; returns the reply."""
        self.seq += 1
        metadata = {"seq": self.seq} if numbered else {}
        return await self._ask("step", {**action, "metadata": metadata})

    async def steps(self, action: Action, count: int) -> None:
        """So many steps one after the other."""
        for _ in range(count):
            await self.step(action)

    async def close(self) -> None:
        """Give the session back."""
        with suppress(Exception):
            await self._socket.close()

    async def _ask(self, kind: str, data: dict[str, Any]) -> dict[str, Any]:
        await self._socket.send(json.dumps({"type": kind, "data": data}))
        reply: dict[str, Any] = json.loads(await self._socket.recv())
        if reply["type"] != "observation":
            raise RuntimeError(f"a refused frame costs nothing worth knowing: {reply}")
        return reply


async def dial(server: Server, query: str = "") -> Player:
    """A socket to the server, without a session's first reset."""
    return Player(
        await connect(
            f"ws://127.0.0.1:{server.port}/ws{query}",
            compression=None,
            proxy=None,
            open_timeout=RESET_TIMEOUT_S,
            ping_interval=None,
            max_size=None,
        )
    )


async def players(server: Server, count: int, **reset: Any) -> list[Player]:
    """So many sessions, all reset."""
    made = [await dial(server) for _ in range(count)]
    await asyncio.gather(*(player.reset(**reset) for player in made))
    return made


async def cpu_us_per_step(
    server: Server, made: Sequence[Player], action: Action, count: int
) -> float:
    """Server CPU microseconds a step while every player makes `count` of them at once."""
    before = server.cpu_s()
    await asyncio.gather(*(player.steps(action, count) for player in made))
    return (server.cpu_s() - before) / (len(made) * count) * 1e6
