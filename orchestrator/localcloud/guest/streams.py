"""Joining two byte streams: how a port in a box reaches the host, and the other way round."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable

# A half-closed connection leaves nothing but the loop's weak reference to its task.
_carrying: set[asyncio.Task[None]] = set()
Pair = tuple[asyncio.StreamReader, asyncio.StreamWriter]
Handler = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


def joined_to(connect: Callable[[], Awaitable[Pair]]) -> Handler:
    """A connection handler that carries bytes to what `connect` opens, until both ends close."""

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            far_reader, far_writer = await connect()
        except OSError:
            writer.transport.abort()  # to the caller: refused or reset, as while a machine boots
            return
        task = asyncio.ensure_future(_both(reader, writer, far_reader, far_writer))
        _carrying.add(task)
        task.add_done_callback(_carrying.discard)
        try:
            await task
        finally:
            writer.close()
            far_writer.close()

    return handle


async def _both(
    reader: asyncio.StreamReader,
    writer: asyncio.StreamWriter,
    far_reader: asyncio.StreamReader,
    far_writer: asyncio.StreamWriter,
) -> None:
    await asyncio.gather(_carry(reader, far_writer), _carry(far_reader, writer))


async def _carry(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        while data := await reader.read(1 << 18):
            writer.write(data)
            await writer.drain()
    with contextlib.suppress(OSError, RuntimeError):
        writer.write_eof()
