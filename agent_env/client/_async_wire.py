"""The asynchronous driver: the same commands over `websockets.asyncio`, on the caller's loop."""

from __future__ import annotations

import asyncio
from contextlib import suppress

from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed

from agent_env.client._dial import CLOSE_TIMEOUT_S, FAULTS, GOODBYE, cut, failed
from agent_env.client._site import Site
from agent_env.client._talk import Ask, Command, Ended, HangUp, Open, Pause, T, Talk, resumed


class AsyncWire:
    """At most one connection, and the time."""

    def __init__(self, site: Site) -> None:
        self._site = site
        self._connection: ClientConnection | None = None

    async def run(self, talk: Talk[T]) -> T:
        """Hold the conversation; gives back what it comes to, and raises what it raises."""
        command = resumed(talk.send, None)
        while not isinstance(command, Ended):
            try:
                came = await self._do(command)
            except Exception as error:
                command = resumed(talk.throw, error)
            except BaseException:
                # Cancelled in mid-frame: a late reply must find nobody.
                self._abort()
                talk.close()
                raise
            else:
                command = resumed(talk.send, came)
        result: T = command.result
        return result

    async def _do(self, command: Command) -> str | bytes | None:
        match command:
            case Open():
                self._abort()
                self._connection = await self._opened(command)
            case Ask(text, timeout_s):
                assert self._connection is not None  # noqa: S101 - a conversation opens first
                return await _ask(self._connection, text, timeout_s)
            case Pause(seconds):
                await asyncio.sleep(seconds)
            case HangUp(goodbye=True):
                await self._say_goodbye()
            case HangUp():
                self._abort()
        return None

    async def _opened(self, command: Open) -> ClientConnection:
        address = self._site.address
        try:
            options = address.options(command.timeout_s)
            return await connect(address.sessions(command.query), **options)
        except FAULTS as error:
            raise failed(address, error) from error

    async def _say_goodbye(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            try:
                with suppress(OSError, ConnectionClosed, TimeoutError):
                    async with asyncio.timeout(CLOSE_TIMEOUT_S):
                        await connection.send(GOODBYE)
                        await connection.close()
            finally:  # also where the call is cancelled: nobody else knows of the connection
                connection.transport.abort()

    def _abort(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.transport.abort()


async def _ask(connection: ClientConnection, text: str, timeout_s: float) -> str | bytes:
    async with asyncio.timeout(timeout_s):
        with suppress(ConnectionClosed):
            await connection.send(text)
        try:
            return await connection.recv()
        except ConnectionClosed as error:
            raise cut(error) from error
