"""An env server in memory: its sessions, journal and slots, and the ways in which it can fail.

Its one task adds what it is told. Which frame is the next one, which one comes again and which is
out of order, is decided by the server's own code.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from agent_env.client._talk import Cut
from agent_env.errors import ServerDown
from agent_env.server.ordering import is_again, is_same_reset
from agent_env.server.protocol import FrameError, Reset, error_frame

DONE_AT = 4
"""Steps of an episode."""


@dataclass
class Live:
    """A session in the server's memory."""

    id: str | None
    episode: str | None = None
    asked: dict[str, object] | None = None
    seq: int = 0
    total: int = 0
    epoch: int = 0
    reply: str = ""
    lost: str | None = None
    holder: Socket | None = None


@dataclass(eq=False)
class Socket:
    """A client's connection; who it is for is decided by its first frame."""

    query: dict[str, str]
    session: Live | None = None
    queued_until: float = 0.0
    late: str | None = None
    """A reply that nobody waited for any more."""
    closed: int | None = None
    """The code it was closed with; 1006 is without a goodbye."""


class ModelServer:
    """Sessions that die with the process, and journals that don't."""

    def __init__(self, slots: int) -> None:
        self.slots = slots
        self.up_at = 0.0
        self.live: list[Live] = []
        self.journals: dict[str, str] = {}
        self.sockets: list[Socket] = []
        self.most = 0

    def connect(self, query: dict[str, str], now: float) -> Socket:
        """Raises ServerDown."""
        if now < self.up_at:
            raise ServerDown("refused")
        socket = Socket(query, queued_until=now + float(query.get("wait_s", 0)))
        self.sockets.append(socket)
        return socket

    def kill(self, up_at: float) -> None:
        """All but the journals is gone."""
        self.up_at = max(self.up_at, up_at)
        for socket in self.sockets:
            socket.closed = socket.closed or 1006
        self.live, self.sockets = [], []

    def drop(self, socket: Socket, code: int = 1006) -> None:
        """The connection breaks; the session stays."""
        socket.closed = code
        if socket.session is not None and socket.session.holder is socket:
            socket.session.holder = None

    def evict(self, socket: Socket) -> None:
        """Its hold time is over: the slot is free, the journal stays."""
        self.drop(socket)
        if socket.session in self.live:
            self.live.remove(socket.session)

    def frame(self, socket: Socket, text: str, write: str = "whole") -> str:
        """The reply. `write` says how much of a record gets into the journal: a torn server is
        killed by the caller. Raises Cut."""
        if socket.closed is not None:
            raise Cut(socket.closed if socket.closed != 1006 else None, "closed")
        if socket.late is not None:
            late, socket.late = socket.late, None
            return late
        if socket.session is None:
            refusal = self._attach(socket)
            if refusal is not None:
                socket.closed = 1000
                return refusal
        assert socket.session is not None
        message = json.loads(text)
        try:
            if message["type"] == "reset":
                return self._reset(socket.session, message["data"], write)
            if message["type"] == "step":
                return self._step(socket.session, message["data"], write)
            return _state(socket.session)
        except FrameError as error:
            return error.frame()

    def say_goodbye(self, socket: Socket) -> None:
        """A `close` frame."""
        if socket.closed is None and socket.session is not None:
            self.live.remove(socket.session)
            self.journals.pop(str(socket.session.id), None)
        self.drop(socket, 1000)

    def _attach(self, socket: Socket) -> str | None:
        name = socket.query.get("session_id")
        found = next((live for live in self.live if live.id == name), None) if name else None
        if found is None:
            if name and name not in self.journals and "open" not in socket.query:
                return _session_error("SESSION_LOST")
            if len(self.live) >= self.slots:
                return error_frame("CAPACITY_REACHED", "full", retry_after_s=1.0)
            found = Live(name)
            if name in self.journals:
                self._rebuild(found, self.journals[name])
            self.live.append(found)
            self.most = max(self.most, len(self.live))
        if found.lost is not None:
            self.live.remove(found)
            self.journals.pop(str(found.id), None)
            return _session_error(found.lost)
        if found.holder is not None:
            self.drop(found.holder, 4409)
        found.holder, socket.session = socket, found
        return None

    def _reset(self, live: Live, data: dict[str, Any], write: str) -> str:
        asked = Reset.model_validate(data)
        if not is_same_reset(asked, live.asked, live.seq):
            live.id = live.id or asked.episode_id
            live.episode, live.seq, live.total, live.epoch = asked.episode_id, 0, 0, 0
            live.asked = asked.model_dump(exclude={"deadline_s"}, exclude_none=True)
            self.journals[str(live.id)] = ""
            self._write(live, {"episode": live.episode, "asked": live.asked}, write)
            live.reply = _observation(live)
        return live.reply

    def _step(self, live: Live, data: dict[str, Any], write: str) -> str:
        if live.episode is None:
            raise FrameError("EXECUTION_ERROR", "never reset", reason="NOT_RESET")
        if not is_again(data["metadata"]["seq"], live.seq):
            n = int(data["arguments"]["n"])
            live.seq, live.total = live.seq + 1, live.total + n
            self._write(live, {"n": n}, write)
            live.reply = _observation(live)
        return live.reply

    def _write(self, live: Live, record: dict[str, Any], write: str) -> None:
        line = json.dumps(record) + "\n"
        cut = {"whole": len(line), "torn": len(line) // 2, "nothing": 0}[write]
        self.journals[str(live.id)] += line[:cut]

    def _rebuild(self, live: Live, journal: str) -> None:
        whole = journal[: journal.rfind("\n") + 1]
        self.journals[str(live.id)] = whole
        for line in whole.splitlines():
            record = json.loads(line)
            if "episode" in record:
                live.episode, live.asked = record["episode"], record["asked"]
            else:
                live.seq, live.total = live.seq + 1, live.total + record["n"]
        live.epoch += 1
        live.reply = _observation(live)


def _observation(live: Live) -> str:
    session = {"id": live.id, "seq": live.seq, "epoch": live.epoch, "bundle_hash": "b"}
    metadata = {"session": session, "episode_id": live.episode}
    done = live.seq == DONE_AT
    observation = {"total": live.total, "metadata": metadata}
    data = {
        "observation": observation,
        "reward": float(live.total) if done else None,
        "done": done,
        "metadata": metadata,
    }
    return json.dumps({"type": "observation", "data": data})


def _state(live: Live) -> str:
    return json.dumps({"type": "state", "data": {"episode_id": live.episode}})


def _session_error(reason: str) -> str:
    return error_frame("SESSION_ERROR", "gone", reason=reason)
