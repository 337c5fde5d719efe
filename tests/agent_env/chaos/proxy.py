"""A TCP proxy on loopback that cuts connections as a broken network does, without a goodbye."""

from __future__ import annotations

import asyncio
import random
import socket
import struct
import threading
from asyncio import StreamReader, StreamWriter
from collections.abc import Coroutine
from contextlib import suppress
from typing import Any

_RESET_ON_CLOSE = struct.pack("ii", 1, 0)
_CHUNK_BYTES = 65_536


class Proxy:
    """Forwards a free port of loopback to `target`, which may be away; `cuts` counts."""

    def __init__(self, target: int) -> None:
        self._target = target
        self._pairs: set[tuple[StreamWriter, StreamWriter]] = set()
        self.cuts = 0
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self._server = self._run(asyncio.start_server(self._forward, "127.0.0.1", 0))
        self.port: int = self._server.sockets[0].getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"

    def cut(self, count: int, rng: random.Random) -> None:
        """Cut so many of the open connections, or all there are."""
        self._run(self._cut(count, rng))

    def close(self) -> None:
        """Cut the rest and stop."""
        self._run(self._end())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def __enter__(self) -> Proxy:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _run(self, work: Coroutine[Any, Any, Any]) -> Any:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(30)

    async def _forward(self, reader: StreamReader, writer: StreamWriter) -> None:
        try:
            onward_reader, onward = await asyncio.open_connection("127.0.0.1", self._target)
        except OSError:
            _reset(writer)
            return
        pair = (writer, onward)
        self._pairs.add(pair)
        await asyncio.gather(_pump(reader, onward), _pump(onward_reader, writer))
        self._pairs.discard(pair)

    async def _cut(self, count: int, rng: random.Random) -> None:
        open_pairs = sorted(self._pairs, key=lambda pair: pair[0].get_extra_info("peername"))
        for pair in rng.sample(open_pairs, min(count, len(open_pairs))):
            self._pairs.discard(pair)
            self.cuts += 1
            for writer in pair:
                _reset(writer)

    async def _end(self) -> None:
        self._server.close()
        for pair in list(self._pairs):
            for writer in pair:
                _reset(writer)
        while others := asyncio.all_tasks() - {asyncio.current_task()}:
            await asyncio.wait(others, timeout=1.0)


async def _pump(reader: StreamReader, writer: StreamWriter) -> None:
    with suppress(OSError):
        while chunk := await reader.read(_CHUNK_BYTES):
            writer.write(chunk)
            await writer.drain()
    writer.close()


def _reset(writer: StreamWriter) -> None:
    connection = writer.get_extra_info("socket")
    with suppress(OSError):
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_ON_CLOSE)
    writer.transport.abort()
