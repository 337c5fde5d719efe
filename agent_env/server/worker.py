"""A worker: sessions and their tasks, on connections that the front has accepted.

It ends when the front does, when the front says so, and when a step that is long past its deadline
doesn't end: its other sessions are then rebuilt elsewhere.
"""

from __future__ import annotations

import asyncio
import faulthandler
import os
import resource
import signal
import socket
from collections.abc import Callable

from starlette.applications import Starlette

from agent_env.server.channel import Channel, Message
from agent_env.server.owners import Owner
from agent_env.server.process import EnvServer
from agent_env.server.remote_slots import RemoteSlots

BEAT_S = 1.0
"""How often the front hears that the event loop turns, in seconds."""
STUCK = 75
"""Exit status of a worker that gives itself up because of a step that doesn't end."""


def work(
    end: socket.socket,
    make_app: Callable[[RemoteSlots], Starlette],
    *,
    max_sessions: int,
    memory_mb: int | None,
) -> None:
    """Serve until told to stop. `memory_mb` bounds the process's address space, in MiB."""
    if memory_mb is not None:
        bytes_ = memory_mb * 2**20
        resource.setrlimit(resource.RLIMIT_AS, (bytes_, bytes_))
    faulthandler.register(signal.SIGUSR1)
    room = RemoteSlots(max_sessions)
    server = EnvServer(make_app(room), lambda: _connect(server, end, room))
    end.setblocking(False)
    asyncio.run(server.serve(sockets=[]))


def _connect(server: EnvServer, end: socket.socket, room: RemoteSlots) -> None:
    """Hear the front, now that the app is ready."""
    loop = asyncio.get_running_loop()
    taken: set[asyncio.Task[object]] = set()

    def told(message: Message, fd: int | None) -> None:
        if fd is not None:
            channel.tell({"took": message["connection"]})
            connection = socket.socket(fileno=fd)
            task = loop.create_task(loop.connect_accepted_socket(server.protocol, connection))
            taken.add(task)
            task.add_done_callback(taken.discard)
        elif "owner" in message:
            server.app.state.sessions.admit(Owner(message["owner"], message["run"]))
        elif "answer" in message:
            room.answered(message)
        elif "stop" in message:
            server.should_exit = True

    channel = room.channel = Channel(end, told, lambda: os._exit(1))
    channel.tell({"hello": os.getpid()})
    _beat(loop, channel)
    server.app.state.sessions.watch(
        lambda busy: channel.tell({"busy": busy}), lambda: os._exit(STUCK)
    )


def _beat(loop: asyncio.AbstractEventLoop, channel: Channel) -> None:
    channel.tell({"beat": True})
    loop.call_later(BEAT_S, _beat, loop, channel)
