"""The workers of a server, as its front knows them: started, listened for, ended."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import socket
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial

from agent_env.server.channel import Channel, Message, pair
from agent_env.server.head import Target
from agent_env.server.nursery import Nursery

_log = logging.getLogger(__name__)

SILENT_S = 10.0
"""A worker that isn't heard of for so long is held up by a task that lets no thread run; it is
ended, and its sessions are rebuilt."""
STACK_S = 0.5
"""How long it has to write down where it is."""


class Worker:
    """What the front knows of a worker."""

    def __init__(self) -> None:
        self.channel: Channel | None = None
        self.pid: int | None = None
        self.busy = 0
        self.granted = 0
        self.routed = 0
        self.sessions: set[str] = set()
        self.places: dict[int, asyncio.Future[None]] = {}
        self.heard = asyncio.get_running_loop().time()
        self.handed: dict[int, tuple[socket.socket, Target, float]] = {}
        """Connections that it was sent and hasn't taken."""

    @property
    def load(self) -> int:
        """Sessions that it has or is about to have."""
        return max(self.granted, self.routed)


class Workers:
    """All that are alive. `told` and `ended` hear what one says, and that it is gone."""

    def __init__(
        self,
        nursery: Nursery,
        count: int,
        told: Callable[[Worker, Message, int | None], None],
        ended: Callable[[Worker], None],
    ) -> None:
        self._nursery = nursery
        self._count = count
        self._told = told
        self._ended = ended
        self._alive: list[Worker] = []
        self._stopping = False
        self._all_gone = asyncio.Event()

    def __iter__(self) -> Iterator[Worker]:
        return iter(self._alive)

    def __len__(self) -> int:
        return len(self._alive)

    def __contains__(self, worker: object) -> bool:
        return worker in self._alive

    def start_all(self) -> None:
        """As many as there are to be; call on the running loop."""
        for _ in range(self._count):
            self.start()

    def start(self) -> Worker:
        """One more."""
        ours, theirs = pair()
        self._nursery.spawn(theirs)
        worker = Worker()
        self._alive.append(worker)
        worker.channel = Channel(ours, partial(self._told, worker), partial(self._gone, worker))
        return worker

    async def drain(self, grace_s: float) -> None:
        """Stop them, which let running steps end; kill those that don't stop."""
        self._stopping = True
        for worker in self._alive:
            if worker.channel is not None:
                worker.channel.tell({"stop": True})
        # A worker needs the grace time for its steps, and as long again to say goodbye.
        await self._gone_within(grace_s)
        for worker in self._alive:
            if _silence_s(worker) > grace_s / 2:
                self._kill(worker)
        await self._gone_within(grace_s)
        for worker in self._alive:
            self._kill(worker)

    def listen(self) -> None:
        """End those that are silent, from now on."""
        loop = asyncio.get_running_loop()
        for worker in self._alive:
            if _silence_s(worker) > SILENT_S:
                _log.error("worker %s is silent for %.0f s: it is ended", worker.pid, SILENT_S)
                # It writes its stack on the log: which tool it is, nobody else can say.
                self._kill(worker, signal.SIGUSR1)
                loop.call_later(STACK_S, self._kill, worker)
        loop.call_later(SILENT_S / 8, self.listen)

    def _gone(self, worker: Worker) -> None:
        self._alive.remove(worker)
        self._ended(worker)
        if self._stopping and not self._alive:
            self._all_gone.set()

    async def _gone_within(self, seconds: float) -> None:
        with suppress(TimeoutError):
            await asyncio.wait_for(self._all_gone.wait(), seconds)

    def _kill(self, worker: Worker, number: int = signal.SIGKILL) -> None:
        if worker.pid is not None and worker in self._alive:
            with suppress(ProcessLookupError):
                os.kill(worker.pid, number)


def _silence_s(worker: Worker) -> float:
    return asyncio.get_running_loop().time() - worker.heard
