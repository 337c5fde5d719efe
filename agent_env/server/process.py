"""The server as a process: announces when it listens, finishes running steps before it stops, and
never outlives the process that started it."""

from __future__ import annotations

import asyncio
import errno
import gc
import os
import resource
import socket
import threading
from collections.abc import Callable
from typing import Protocol

import uvicorn
from starlette.applications import Starlette

from agent_env.errors import CantListen
from agent_env.server.nursery import die_with
from agent_env.server.watchdog import insist_on_stops
from agent_env.types import MAX_FRAME_BYTES

GRACE_S = 3.0
"""How long running steps may take to end after a stop was asked for, in seconds."""

_LAST_PORT = 65_535


class Front(Protocol):
    """Accepts connections in our stead."""

    def open(self, server: EnvServer, listener: socket.socket) -> None:
        """Begin to; called on the running loop."""


class EnvServer(uvicorn.Server):
    """Uvicorn, which by itself cuts sockets in mid-step when told to stop."""

    def __init__(self, app: Starlette, announce: Callable[[], None]) -> None:
        super().__init__(
            uvicorn.Config(
                app,
                log_level="warning",
                access_log=False,
                # A trainer may hold the interpreter for long; a session must not die of that.
                ws_ping_interval=20,
                ws_ping_timeout=120,
                ws_max_size=MAX_FRAME_BYTES,
                # Steps are short texts on a near network: deflating them costs more than it saves.
                ws_per_message_deflate=False,
                timeout_graceful_shutdown=round(GRACE_S),
            )
        )
        self.app = app
        self._announce = announce

    def protocol(self) -> asyncio.BaseProtocol:
        """Serves one accepted connection; for who accepts them without our listener."""
        protocol: asyncio.BaseProtocol = self.config.http_protocol_class(  # type: ignore[call-arg]
            config=self.config, server_state=self.server_state, app_state=self.lifespan.state
        )
        return protocol

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Announce the server once it listens."""
        await super().startup(sockets)
        if self.started:
            self._announce()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Let the running steps reply first."""
        await self.app.state.sessions.drain(GRACE_S)
        await super().shutdown(sockets)


def run(
    app: Starlette,
    *,
    host: str,
    port: int,
    announce: Callable[[int], None],
    with_parent: bool = False,
    parent_pid: int | None = None,
    front: Front | None = None,
) -> None:
    """Serve until SIGTERM or SIGINT, or, `with_parent`, until the parent process is gone.

    `announce` is told the port once the server listens on it. `parent_pid` asks the kernel to
    kill this process with that one; only right if the starting thread lives as long as it does.
    Raises CantListen.
    """
    listener = _listen(host, port)
    bound = listener.getsockname()[1]

    def began() -> None:
        insist_on_stops(asyncio.get_running_loop(), GRACE_S)
        if front is not None:
            front.open(server, listener)
        announce(bound)

    server = EnvServer(app, began)
    if parent_pid is not None:
        die_with(parent_pid)
    raise_file_limit()
    if with_parent:
        threading.Thread(target=_watch_stdin, args=(server,), daemon=True).start()
    # What is loaded stays: the collector needn't look at it again and again.
    gc.freeze()
    asyncio.run(server.serve([] if front is not None else [listener]))


def raise_file_limit() -> None:
    """A session is a socket and a journal: two files, where 1024 is a usual limit."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def _listen(host: str, port: int) -> socket.socket:
    listener = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
    # A restarted server takes its old port back while the last one's connections time out.
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
    except (OSError, OverflowError, UnicodeError) as error:
        listener.close()
        raise CantListen(f"can't listen on port {port} of {host}: {_why(error)}") from error
    return listener


def _why(error: Exception) -> str:
    if isinstance(error, OverflowError):
        return f"ports are 0 to {_LAST_PORT}"
    if isinstance(error, OSError) and error.errno == errno.EADDRINUSE:
        return "it is in use; port 0 takes a free one"
    return str(getattr(error, "strerror", None) or error)


def _watch_stdin(server: EnvServer) -> None:
    """Stdin is a pipe that nobody writes to: its end is the parent's end."""
    while os.read(0, 1024):
        pass
    server.should_exit = True
    # A task that hangs in a thread would hold the interpreter's exit for ever.
    last_resort = threading.Timer(GRACE_S + 1.0, os._exit, [1])
    last_resort.daemon = True
    last_resort.start()
