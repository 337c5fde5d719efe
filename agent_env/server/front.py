"""The front of a server with several workers: it listens, admits, and hands connections on.

A websocket's connection goes to a worker as it is, before its handshake, so that no step passes
through here. A session's connections all go to the worker that has it; a worker that dies is
replaced, and its sessions are rebuilt from their journals where they are asked for again.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections import OrderedDict
from functools import partial
from itertools import count

from agent_env.server.channel import Message
from agent_env.server.doorway import Doorway
from agent_env.server.head import Target
from agent_env.server.journal import Journals
from agent_env.server.nursery import Nursery
from agent_env.server.owners import Owner, Owners
from agent_env.server.process import EnvServer
from agent_env.server.sessions import Times
from agent_env.server.slots import Slots
from agent_env.server.workers import Worker, Workers

_log = logging.getLogger(__name__)

PLACES_PER_SLOT = 16
"""How many sessions' workers are remembered for each that may be open."""
RESPAWN_S = 1.0


class Front:
    """The desk of a server whose sessions live in its workers."""

    def __init__(
        self,
        nursery: Nursery,
        workers: int,
        max_sessions: int,
        journals: Journals | None,
        times: Times = Times(),  # noqa: B008 - frozen
    ) -> None:
        self.stopping = False
        self._journals = journals
        self._times = times
        self._slots = Slots(max_sessions)
        self._places: OrderedDict[str, Worker] = OrderedDict()
        self._server: EnvServer | None = None
        self._doorway: Doorway | None = None
        self._tasks: set[asyncio.Task[object]] = set()
        self._workers = Workers(nursery, workers, self._told, self._ended)
        self._numbers = count(1)
        self._owners = Owners()
        if journals is not None:
            journals.reclaim(self._slots)

    @property
    def journaled(self) -> bool:
        """Whether sessions outlive the process."""
        return self._journals is not None

    @property
    def busy(self) -> int:
        """Steps that a thread of a worker is at, as last told."""
        return sum(worker.busy for worker in self._workers)

    def capacity(self) -> dict[str, int]:
        """Counts of sessions by what became of them."""
        return self._slots.counts()

    def admit(self, owner: Owner) -> bool:
        """The workers end what older runs of that owner have; False if it is older itself."""
        if self._owners.learns(owner):
            for worker in self._workers:
                _tell_of(owner, worker)
        return self._owners.admits(owner)

    def open(self, server: EnvServer, listener: socket.socket) -> None:
        """Start the workers and accept; call on the running loop."""
        self._server = server
        loop = asyncio.get_running_loop()
        self._workers.start_all()
        self._doorway = Doorway(listener, self._route)
        loop.call_later(self._times.reserve_s, self._give_claims_up, None)
        self._workers.listen()

    async def drain(self, grace_s: float) -> None:
        """Stop the workers, which let running steps end; kill those that don't stop."""
        self.stopping = True
        await self._workers.drain(grace_s)
        if self._doorway is not None:
            self._doorway.close()

    def _ended(self, worker: Worker) -> None:
        """A worker is gone, and with it whatever it was doing."""
        for place in list(worker.places.values()):
            place.cancel()
        orphans = [key for key, owner in self._places.items() if owner is worker]
        kept = worker.sessions if self._journals is not None else set()
        self._slots.exchange(worker.granted, kept)
        if self.stopping:
            for connection, _, _ in worker.handed.values():
                connection.close()
            return
        _log.warning("worker %s ended with %d sessions", worker.pid, len(worker.sessions))
        loop = asyncio.get_running_loop()
        loop.call_later(self._times.hold_s, self._give_claims_up, frozenset(kept))
        if worker.pid is not None:
            self._replace(orphans)
        else:  # what never got as far as its name will hardly fare better at once
            loop.call_later(RESPAWN_S, self._replace, orphans)
        for connection, target, deadline in worker.handed.values():
            loop.call_soon(self._route, connection, target, deadline)

    def _replace(self, orphans: list[str]) -> None:
        """A new worker gets all sessions of the old one: a bad task goes round in one place."""
        if not self.stopping:
            worker = self._workers.start()
            self._places.update(dict.fromkeys(orphans, worker))

    def _route(self, connection: socket.socket, target: Target, deadline: float) -> None:
        loop = asyncio.get_running_loop()
        worker = self._chosen(target)
        if worker is None and target.kind != "http" and not self.stopping:
            # No worker just now: one is being started.
            wait = partial(self._route, connection, target, deadline)
            loop.call_later(0.05, wait if loop.time() < deadline else connection.close)
            return
        if worker is None or worker.channel is None:
            assert self._server is not None  # noqa: S101 - it was there before the listener
            serving = loop.connect_accepted_socket(
                self._server.protocol,
                connection,
            )
            task: asyncio.Task[object] = loop.create_task(serving)
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
            return
        number = next(self._numbers)
        worker.handed[number] = (connection, target, deadline)
        worker.channel.tell({"connection": number}, connection.fileno())

    def _chosen(self, target: Target) -> Worker | None:
        """The worker for a connection; None: the front answers it."""
        if target.kind == "http" or self.stopping:
            return None
        # A session's worker says so before the client can know it: what was said is heard first.
        for worker in list(self._workers):
            if worker.channel is not None:
                worker.channel.pump()
        if not self._workers:
            return None
        if target.kind == "rpc":
            return next(iter(self._workers))
        known = self._places.get(target.session_id or "")
        if known not in self._workers:
            known = None
        worker = known or min(self._workers, key=lambda one: one.load)
        if known is None:
            worker.routed = worker.load + 1
        if target.session_id is not None:
            self._place(target.session_id, worker)
        return worker

    def _place(self, session_id: str, worker: Worker) -> None:
        self._places[session_id] = worker
        self._places.move_to_end(session_id)
        if len(self._places) > PLACES_PER_SLOT * self._slots.limit:
            oldest = next(iter(self._places))
            if oldest not in self._places[oldest].sessions:
                del self._places[oldest]

    def _told(self, worker: Worker, message: Message, _: int | None) -> None:
        worker.heard = asyncio.get_running_loop().time()
        match message:
            case {"enter": ticket, "id": session_id, "wait_s": wait_s}:
                self._enter(worker, ticket, session_id, wait_s)
            case {"drop": ticket}:
                if ticket in worker.places:
                    worker.places[ticket].cancel()
            case {"seat": session_id}:
                worker.sessions.add(session_id)
                self._place(session_id, worker)
            case {"release": session_id}:
                worker.sessions.discard(session_id)
                worker.granted -= 1
                worker.routed = worker.granted
                self._slots.release(session_id)
            case {"took": number}:
                worker.handed.pop(number)[0].close()
            case {"busy": busy}:
                worker.busy = busy
            case {"owner": name, "run": run}:
                self.admit(Owner(name, run))
            case {"hello": pid}:
                worker.pid = pid
                for owner in self._owners:
                    _tell_of(owner, worker)

    def _enter(self, worker: Worker, ticket: int, session_id: str | None, wait_s: float) -> None:
        if self._slots.take(session_id):
            self._answer(worker, ticket, ok=True)
            return
        place = self._slots.queue() if wait_s else None
        if place is None:
            self._answer(worker, ticket, ok=False)
            return
        worker.places[ticket] = place
        timer = asyncio.get_running_loop().call_later(wait_s, place.cancel)

        def settled(place: asyncio.Future[None]) -> None:
            timer.cancel()
            del worker.places[ticket]
            if place.cancelled() or worker in self._workers:
                self._answer(worker, ticket, ok=not place.cancelled())
            else:
                self._slots.release(session_id)

        place.add_done_callback(settled)

    def _answer(self, worker: Worker, ticket: int, *, ok: bool) -> None:
        worker.granted += ok
        if worker.channel is not None:
            answer = {"answer": ticket, "ok": ok, "active": self._slots.active}
            worker.channel.tell(answer)

    def _give_claims_up(self, session_ids: frozenset[str] | None) -> None:
        for session_id in self._slots.give_claims_up(session_ids):
            if self._journals is not None:
                self._journals.leave(session_id)


def _tell_of(owner: Owner, worker: Worker) -> None:
    if worker.channel is not None:
        worker.channel.tell({"owner": owner.name, "run": owner.run})
