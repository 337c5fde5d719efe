"""A websocket between a client and a server that does to chosen frames what a bad network does."""

from __future__ import annotations

import json
import ssl
import threading
from collections.abc import Callable
from contextlib import suppress
from socket import SHUT_RDWR
from typing import Any

from websockets.exceptions import ConnectionClosed
from websockets.sync.client import ClientConnection, connect
from websockets.sync.server import ServerConnection, serve

Frame = dict[str, Any]
Fault = Callable[["Passage"], None]
"""What to do to a frame instead of passing it on."""


class Passage:
    """One frame of a client, and both of the sockets it passes between."""

    def __init__(self, text: str, client: ServerConnection, server: ClientConnection) -> None:
        self.text = text
        self._client = client
        self._server = server

    def carry_out(self) -> Frame:
        """Let the server have it; its reply, which the client doesn't get."""
        self._server.send(self.text)
        reply: Frame = json.loads(self._server.recv(20))
        return reply

    def answer(self, reply: Frame) -> None:
        """Let the client have that reply."""
        self._client.send(json.dumps(reply))

    def cut(self) -> None:
        """Break the connection without a goodbye."""
        for side in (self._client, self._server):
            with suppress(OSError):
                side.socket.shutdown(SHUT_RDWR)

    def close(self, code: int) -> None:
        """Close it as a server does that says why."""
        self._client.close(code)


class Relay:
    """Passes everything on, but does `faults` to the next frames of their kind."""

    def __init__(self, url: str, *, tls: ssl.SSLContext | None = None) -> None:
        self._target = url.replace("http", "ws", 1)
        self.faults: dict[str, list[Fault]] = {}
        self.paths: list[str] = []
        """Path and query of every connection."""
        self.seen: list[Frame] = []
        self._listener = serve(self._pass, "127.0.0.1", 0, ssl=tls, ping_interval=None)
        self._thread = threading.Thread(target=self._listener.serve_forever)
        self._thread.start()
        port = self._listener.socket.getsockname()[1]
        self.url = f"{'https' if tls else 'http'}://127.0.0.1:{port}"

    def next(self, kind: str, *faults: Fault) -> None:
        """What happens to the next frames of that kind."""
        self.faults.setdefault(kind, []).extend(faults)

    def __enter__(self) -> Relay:
        return self

    def __exit__(self, *_: object) -> None:
        self._listener.shutdown()
        self._thread.join(10)

    def _pass(self, client: ServerConnection) -> None:
        assert client.request is not None
        self.paths.append(client.request.path)
        with (
            suppress(ConnectionClosed, OSError, TimeoutError),
            connect(self._target + client.request.path, proxy=None) as server,
        ):
            for text in client:
                self._one(Passage(str(text), client, server))

    def _one(self, passage: Passage) -> None:
        frame: Frame = json.loads(passage.text)
        self.seen.append(frame)
        waiting = self.faults.get(frame["type"], [])
        if waiting:
            waiting.pop(0)(passage)
        elif frame["type"] != "close":
            passage.answer(passage.carry_out())
        else:
            passage.close(1000)


def lose_the_frame(passage: Passage) -> None:
    """It never reaches the server."""
    passage.cut()


def lose_the_reply(passage: Passage) -> None:
    """The server carries it out, and nobody hears of it."""
    passage.carry_out()
    passage.cut()


def closed_with(code: int) -> Fault:
    """The server says goodbye instead of answering."""
    return lambda passage: passage.close(code)


def refused_with(**data: Any) -> Fault:
    """An error frame instead of an answer; the frame isn't carried out."""
    return lambda passage: passage.answer({"type": "error", "data": {"message": "no", **data}})


def changed(change: Callable[[Frame], object]) -> Fault:
    """The reply, with a change made to its data."""

    def fault(passage: Passage) -> None:
        reply = passage.carry_out()
        change(reply["data"])
        passage.answer(reply)

    return fault
