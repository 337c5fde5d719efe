"""An S3 whose answers a test decides: held back, refused, or other bytes than were stored."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from moto.moto_server.werkzeug_app import (
    DomainDispatcherApplication,
    MotoRequestHandler,
    create_backend_app,
)
from werkzeug.serving import make_server

from .rig import Cloud

Ask = dict[str, Any]
"""What WSGI says of a request."""
Which = Callable[[Ask], bool]


def puts_of(size: int) -> Which:
    """Uploads of at least so many bytes."""
    return lambda ask: ask["REQUEST_METHOD"] == "PUT" and _length(ask) >= size


def any_of(words: str) -> Which:
    """Requests whose method and path contain the words."""
    return lambda ask: words in f"{ask['REQUEST_METHOD']} {ask['PATH_INFO']}"


@dataclass
class Valve:
    """Stands before moto's application. What was asked for is in `seen`, as method, path, size."""

    app: Any
    seen: list[tuple[str, str, int]] = field(default_factory=list)
    held: threading.Event = field(default_factory=threading.Event)
    """Set once a request is being held back."""
    _holds: list[tuple[Which, threading.Event]] = field(default_factory=list)
    _refusals: list[tuple[Which, str, int]] = field(default_factory=list)
    _damages: list[Which] = field(default_factory=list)

    @contextmanager
    def hold(self, which: Which) -> Iterator[None]:
        """Don't answer these until the block ends."""
        entry = which, threading.Event()
        self._holds.append(entry)
        try:
            yield
        finally:
            self._holds.remove(entry)
            entry[1].set()

    @contextmanager
    def refuse(self, which: Which, code: str, status: int = 403) -> Iterator[None]:
        entry = which, code, status
        self._refusals.append(entry)
        try:
            yield
        finally:
            self._refusals.remove(entry)

    @contextmanager
    def damage(self, which: Which) -> Iterator[None]:
        """Answer these with as many other bytes."""
        self._damages.append(which)
        try:
            yield
        finally:
            self._damages.remove(which)

    def __call__(self, ask: Ask, start: Callable[..., Any]) -> Iterable[bytes]:
        self.seen.append((ask["REQUEST_METHOD"], ask["PATH_INFO"], _length(ask)))
        for which, released in list(self._holds):
            if which(ask):
                self.held.set()
                released.wait(60)
        for which, code, status in list(self._refusals):
            if which(ask):
                ask["wsgi.input"].read(_length(ask))
                start(f"{status} Refused", [("Content-Type", "application/xml")])
                return [f"<Error><Code>{code}</Code><Message>no</Message></Error>".encode()]
        answer: Iterable[bytes] = self.app(ask, start)
        if any(which(ask) for which in self._damages):
            return [bytes(byte ^ 1 for byte in block) for block in answer]
        return answer


class _Server:
    """What rig.Cloud needs of a ThreadedMotoServer."""

    def __init__(self, valve: Valve) -> None:
        self._server = make_server(
            "127.0.0.1", 0, valve, threaded=True, request_handler=MotoRequestHandler
        )
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()

    @property
    def port(self) -> int:
        return int(self._server.server_port)

    def stop(self) -> None:
        self._server.shutdown()


@dataclass
class ValveCloud(Cloud):
    """A rig's cloud behind a valve."""

    valve: Valve = field(default_factory=lambda: Valve(None))

    @classmethod
    def start(cls) -> ValveCloud:
        valve = Valve(DomainDispatcherApplication(create_backend_app))
        server: Any = _Server(valve)
        return cls(server, server.port, valve)


def _length(ask: Ask) -> int:
    return int(ask.get("HTTP_X_AMZ_DECODED_CONTENT_LENGTH") or ask.get("CONTENT_LENGTH") or 0)
