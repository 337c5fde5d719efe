"""Each step is carried out once, whatever is sent how often, over whichever socket."""

from __future__ import annotations

from typing import Any

import pytest
from websockets.exceptions import ConnectionClosed

from ..conftest import Wire, dial, eventually
from .conftest import Player, Process, Start, action, reason, session, text


def test_a_step_sent_again_is_answered_again_and_not_carried_out_again(
    server: Process, name: str
) -> None:
    player = Player(server, name)
    player.begin()
    first = player.step(1, "add", n=4)
    assert text(first) == "4"
    assert player.step(1, "add", n=4) == first
    assert text(player.step(2, "add", n=1)) == "5"


@pytest.mark.parametrize("seq, why, right", [(4, "SEQ_GAP", 3), (1, "SEQ_OLD", 3)])
def test_a_step_that_is_neither_the_last_nor_the_next_is_refused(
    server: Process, name: str, seq: int, why: str, right: int
) -> None:
    player = Player(server, name)
    player.begin()
    player.step(1, "add", n=4)
    player.step(2, "add", n=4)
    refused = player.step(seq, "add", n=100)
    assert (reason(refused), refused["data"]["expected"]) == (why, right)
    assert text(player.step(3, "add", n=1)) == "9"


def test_a_reset_sent_again_is_answered_again_until_a_step_was_taken(
    server: Process, name: str
) -> None:
    player = Player(server, name)
    first = player.begin(seed=3)
    assert player.begin(seed=3) == first
    player.step(1, "add", n=4)
    assert session(player.begin(seed=3))["seq"] == 0
    assert text(player.step(1, "add", n=1)) == "1"


def test_every_reply_names_its_session_and_its_number(server: Process, name: str) -> None:
    player = Player(server, name)
    bundle_hash = server.get("/tools")["bundles"]["counter"]
    assert server.get("/tools")["protocol"] == 1
    expected = {"id": name, "epoch": 0, "seq": 0, "bundle_hash": bundle_hash}
    assert session(player.begin()) == expected
    assert session(player.step(1, "add", n=1)) == {**expected, "seq": 1}
    listed = player.ask("step", type="list_tools", metadata={"seq": 2})
    assert session(listed) == {**expected, "seq": 2}


@pytest.mark.parametrize("wish, named", [("my-episode-1", True), ("short", False), ("", False)])
def test_the_first_reset_names_the_session_where_it_can(
    server: Process, name: str, wish: str, named: bool
) -> None:
    with dial(server.url) as socket:
        reply = Wire(socket).ask("reset", **({"episode_id": wish} if wish else {}))
        found = session(reply)["id"]
        assert (found == wish) is named
        assert reply["data"]["metadata"]["episode_id"] == (wish or None)
        assert session(Player(server, found, "").step(1, "add", n=1))["seq"] == 1


def test_a_broken_socket_is_gone_on_with_over_another(server: Process, name: str) -> None:
    player = Player(server, name)
    player.begin()
    player.step(1, "add", n=4)
    player.cut()
    again = Player(server, name, "")
    assert text(again.step(1, "add", n=4)) == "4"
    assert text(again.step(2, "add", n=4)) == "8"
    again.send("close")
    eventually(lambda: server.capacity()["active_sessions"] == 0)


def test_a_step_whose_socket_broke_while_it_ran_is_answered_once_it_is_done(
    server: Process, name: str
) -> None:
    player = Player(server, name)
    player.begin()
    player.send("step", **action("wait", {"seconds": 1.0}, seq=1))
    eventually(lambda: server.capacity()["busy_sessions"] == 1)
    player.cut()
    again = Player(server, name, "")
    assert text(again.step(1, "wait", seconds=1.0)) == "waited"
    assert session(again.step(2, "add", n=1))["seq"] == 2


def test_a_second_socket_fences_the_first(server: Process, name: str) -> None:
    older = Player(server, name)
    older.begin()
    newer = Player(server, name, "")
    assert text(newer.step(1, "add", n=1)) == "1"
    with pytest.raises(ConnectionClosed) as closed:
        older.step(1, "add", n=1)
    assert closed.value.rcvd is not None
    assert closed.value.rcvd.code == 4409
    assert text(newer.step(2, "add", n=1)) == "2"


@pytest.mark.parametrize(
    "query, why",
    [
        ("?session_id=unknown-1", "SESSION_LOST"),
        ("?session_id=../../etc", "SESSION_LOST"),
        ("?session=unknown-1", "VALIDATION_ERROR"),
        ("?session_id=unknown-1&open=yes", "VALIDATION_ERROR"),
        ("?wait_s=61", "VALIDATION_ERROR"),
        ("?wait_s=nan", "VALIDATION_ERROR"),
    ],
)
def test_what_a_socket_may_not_ask_for_is_told(server: Process, query: str, why: str) -> None:
    with dial(server.url, query) as socket:
        assert reason(Wire(socket).receive()) == why
    eventually(lambda: server.capacity()["active_sessions"] == 0)


def test_close_gives_the_slot_back_at_once(server: Process, name: str) -> None:
    player = Player(server, name)
    player.begin()
    player.send("close")
    with pytest.raises(ConnectionClosed) as closed:
        player.receive()
    assert closed.value.rcvd is not None
    assert closed.value.rcvd.code == 1000
    assert server.capacity()["active_sessions"] == 0
    assert reason(Player(server, name, "").receive()) == "SESSION_LOST"


def test_a_step_without_a_number_is_carried_out_as_it_comes(server: Process, name: str) -> None:
    player = Player(server, name)
    player.begin()
    called: dict[str, Any] = {"type": "call_tool", "tool_name": "add", "arguments": {"n": 2}}
    assert [text(player.ask("step", **called)) for _ in range(3)] == ["2", "4", "6"]
    assert text(player.step(4, "add", n=2)) == "8"


def test_without_a_seed_the_task_gets_the_one_of_its_id(start: Start, tmp_path: Any) -> None:
    bundle = tmp_path / "seeded"
    bundle.mkdir()
    (bundle / "__init__.py").write_text(SEEDED)
    player = Player(start(bundle=bundle), "session-1")
    # The first 8 bytes of `printf seeded-0 | sha256sum`, halved.
    assert player.begin(split="all")["data"]["metadata"]["appended"] == " 1879224126357609764"


SEEDED = """
from agent_env import Bundle, Task, TaskData

class Seeded(Task):
    def reset(self, seed):
        return f" {seed}"

class Seeds(Bundle):
    name = "seeded"
    splits = ("all",)

    def tasks(self, split):
        return [TaskData(id="seeded-0", name="t", split="all", index=0, prompt="p")]

    def open(self, data):
        return Seeded(data)

bundle = Seeds()
"""
