"""Who waits, for how long and in which order: the app itself, with short times of its own."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from agent_env.bundle import load_bundle
from agent_env.server.journal import Journals
from agent_env.server.served import serve
from agent_env.server.serving import Serving
from agent_env.server.sessions import Sessions, Times
from agent_env.server.slots import Slots

from ..conftest import COUNTER

SERVED = serve(load_bundle(COUNTER), None)


class Peer:
    """A client's end of one socket, without a network in between."""

    def __init__(self, serving: Serving, query: str = "") -> None:
        self._inbox: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        self.sent: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        self._inbox.put_nowait({"type": "websocket.connect"})
        scope = {"type": "websocket", "path": "/ws", "query_string": query.encode()}
        self.served = asyncio.ensure_future(
            serving(scope, self._inbox.get, self.sent.put)  # type: ignore[arg-type]
        )

    def send(self, kind: str, **data: Any) -> None:
        text = json.dumps({"type": kind, "data": data})
        self._inbox.put_nowait({"type": "websocket.receive", "text": text})

    def hang_up(self) -> None:
        self._inbox.put_nowait({"type": "websocket.disconnect", "code": 1006})

    async def receive(self) -> dict[str, Any]:
        """The next frame; the number of a close is under `closed`."""
        message = await asyncio.wait_for(self.sent.get(), 10)
        if message["type"] == "websocket.accept":
            return await self.receive()
        if message["type"] == "websocket.close":
            return {"closed": message["code"]}
        frame: dict[str, Any] = json.loads(message["text"])
        return frame

    async def ask(self, kind: str, **data: Any) -> dict[str, Any]:
        self.send(kind, **data)
        return await self.receive()

    async def begin(self, name: str) -> dict[str, Any]:
        return await self.ask("reset", episode_id=name)


async def until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(10):
        while not holds():
            await asyncio.sleep(0.005)


def played(
    play: Callable[[Slots, Serving], Awaitable[None]],
    *,
    max_sessions: int = 1,
    journal: Path | None = None,
    **times: float,
) -> None:
    async def main() -> None:
        journals = Journals(journal, max_sessions) if journal else None
        slots = Slots(max_sessions)
        if journals is not None:
            journals.reclaim(slots)
        sessions = Sessions(SERVED, slots, journals, Times(**times))
        serving = Serving(sessions)
        sessions.begin()
        serving.begin()
        await play(slots, serving)
        serving.close()
        sessions.close()

    asyncio.run(main())


def test_room_goes_to_who_waited_longest_and_not_to_who_hung_up() -> None:
    async def play(slots: Slots, serving: Serving) -> None:
        first = Peer(serving)
        await first.begin("session-1")
        waiting = [Peer(serving, "wait_s=60") for _ in range(3)]
        for peer in waiting:
            peer.send("reset")
        await until(lambda: slots.waiting == 3)
        waiting[0].hang_up()
        await until(lambda: slots.waiting == 2)
        first.send("close")
        assert (await waiting[1].receive())["type"] == "observation"
        assert (slots.waiting, slots.active) == (1, 1)
        waiting[1].send("close")
        assert (await waiting[2].receive())["type"] == "observation"

    played(play)


def test_a_wait_for_room_ends_with_a_refusal() -> None:
    async def play(slots: Slots, serving: Serving) -> None:
        await Peer(serving).begin("session-1")
        for query in ("", "wait_s=0.05"):
            refused = await Peer(serving, query).receive()
            assert refused["data"]["code"] == "CAPACITY_REACHED"
            assert refused["data"]["retry_after_s"] > 0
        assert (slots.waiting, slots.active) == (0, 1)

    played(play)


def test_the_queue_is_bounded() -> None:
    async def play(slots: Slots, serving: Serving) -> None:
        await Peer(serving).begin("session-1")
        queue = [Peer(serving, "wait_s=60") for _ in range(4)]
        await until(lambda: slots.waiting == 4)
        refused = await Peer(serving, "wait_s=60").receive()
        assert refused["data"]["code"] == "CAPACITY_REACHED"
        for peer in queue:
            peer.hang_up()
        await until(lambda: slots.waiting == 0)

    played(play)


def test_a_session_without_a_socket_keeps_its_slot_for_the_hold_time(tmp_path: Path) -> None:
    async def play(slots: Slots, serving: Serving) -> None:
        peer = Peer(serving)
        await peer.begin("session-1")
        peer.hang_up()
        await peer.served
        assert slots.active == 1
        await until(lambda: slots.active == 0)
        assert (tmp_path / "left" / "session-1.jsonl").exists()
        again = Peer(serving, "session_id=session-1")
        assert (await again.ask("state"))["data"]["episode_id"] == "session-1"
        assert (tmp_path / "session-1.jsonl").exists()

    played(play, journal=tmp_path, hold_s=0.1)


def test_a_client_that_never_showed_that_it_can_come_back_is_not_waited_for() -> None:
    async def play(slots: Slots, serving: Serving) -> None:
        peer = Peer(serving)
        await peer.ask("reset")
        peer.hang_up()
        await peer.served
        assert slots.active == 0

    played(play)


def test_without_a_journal_a_session_that_was_given_up_is_lost() -> None:
    async def play(slots: Slots, serving: Serving) -> None:
        peer = Peer(serving)
        await peer.begin("session-1")
        peer.hang_up()
        await until(lambda: slots.active == 0)
        lost = await Peer(serving, "session_id=session-1").receive()
        assert lost["data"]["reason"] == "SESSION_LOST"

    played(play, hold_s=0.05)


def test_a_silent_socket_is_closed_and_its_session_may_come_back(tmp_path: Path) -> None:
    async def play(slots: Slots, serving: Serving) -> None:
        peer = Peer(serving)
        await peer.begin("session-1")
        assert await peer.receive() == {"closed": 4408}
        assert slots.active == 0
        again = Peer(serving, "session_id=session-1")
        assert (await again.ask("state"))["data"]["episode_id"] == "session-1"

    played(play, journal=tmp_path, lease_s=0.2)


def test_a_socket_whose_step_runs_is_not_silent() -> None:
    async def play(slots: Slots, serving: Serving) -> None:
        peer = Peer(serving)
        await peer.begin("session-1")
        wait = {"type": "call_tool", "tool_name": "wait", "arguments": {"seconds": 0.5}}
        assert (await peer.ask("step", **wait))["type"] == "observation"

    played(play, lease_s=0.2)


def test_room_that_is_kept_and_not_asked_for_is_free_again(tmp_path: Path) -> None:
    async def before(slots: Slots, serving: Serving) -> None:
        await Peer(serving).begin("session-1")

    async def after(slots: Slots, serving: Serving) -> None:
        assert (slots.claimed, slots.free) == (1, 0)
        peer = Peer(serving, "wait_s=60")
        assert (await peer.begin("session-2"))["type"] == "observation"
        assert (slots.claimed, slots.active) == (0, 1)
        assert (tmp_path / "left" / "session-1.jsonl").exists()

    played(before, journal=tmp_path)
    played(after, journal=tmp_path, reserve_s=0.1)


def test_a_server_with_less_room_keeps_it_for_the_newest(tmp_path: Path) -> None:
    async def before(slots: Slots, serving: Serving) -> None:
        for number in range(3):
            await Peer(serving).begin(f"session-{number}")

    async def after(slots: Slots, serving: Serving) -> None:
        assert slots.claimed == 1
        assert [path.stem for path in tmp_path.glob("*.jsonl")] == ["session-2"]
        again = Peer(serving, "session_id=session-2")
        assert (await again.ask("state"))["type"] == "state"
        again.send("close")
        assert await again.receive() == {"closed": 1000}
        again = Peer(serving, "session_id=session-0")
        assert (await again.ask("state"))["type"] == "state"

    played(before, journal=tmp_path, max_sessions=3)
    played(after, journal=tmp_path)


def test_no_room_is_kept_for_who_can_not_come_back(tmp_path: Path) -> None:
    async def before(slots: Slots, serving: Serving) -> None:
        await Peer(serving).ask("reset")

    async def after(slots: Slots, serving: Serving) -> None:
        assert slots.free == 1

    played(before, journal=tmp_path)
    played(after, journal=tmp_path)


def test_the_oldest_of_many_given_up_journals_go(tmp_path: Path) -> None:
    async def play(slots: Slots, serving: Serving) -> None:
        for number in range(7):
            peer = Peer(serving)
            await peer.begin(f"session-{number}")
            peer.hang_up()
            await until(lambda: slots.active == 0)
        left = sorted(path.stem for path in (tmp_path / "left").iterdir())
        assert left == ["session-3", "session-4", "session-5", "session-6"]

    played(play, journal=tmp_path, hold_s=0.01)


def test_two_sockets_of_one_session_rebuild_it_once(tmp_path: Path) -> None:
    async def before(slots: Slots, serving: Serving) -> None:
        peer = Peer(serving)
        await peer.begin("session-1")
        await peer.ask("step", type="call_tool", tool_name="add", arguments={"n": 4})

    async def after(slots: Slots, serving: Serving) -> None:
        peers = [Peer(serving, "session_id=session-1") for _ in range(3)]
        for peer in peers[:2]:
            assert await peer.receive() == {"closed": 4409}
        again = {"type": "call_tool", "tool_name": "add", "arguments": {"n": 4}}
        reply = await peers[2].ask("step", **again, metadata={"seq": 1})
        assert reply["data"]["observation"]["result"]["data"] == "4"
        assert reply["data"]["metadata"]["session"]["epoch"] == 1
        assert slots.active == 1

    played(before, journal=tmp_path)
    played(after, journal=tmp_path)
