"""A server that is killed goes on with every episode where it was, or says why it can't."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from .conftest import Player, Process, Start, reason, session, text

PLAYED = '''
import os
from agent_env import Bundle, Task, TaskData, tool

class Played(Task):
    {more}

    def reset(self, seed):
        self.calls = 0

    @tool
    def look(self) -> str:
        """Look."""
        self.calls += 1
        return {said}

    def score(self):
        return {{"done": 1.0}}

class PlayedBundle(Bundle):
    name = "played"
    splits = ("all",)

    def tasks(self, split):
        return [TaskData(id="played-0", name="t", split="all", index=0, prompt="{prompt}")]

    def open(self, data):
        return Played(data)

bundle = PlayedBundle()
'''


def bundle_of(folder: Path, *, said: str = '"seen"', more: str = "", prompt: str = "p") -> Path:
    folder.mkdir(exist_ok=True)
    shutil.rmtree(folder / "__pycache__", ignore_errors=True)
    (folder / "__init__.py").write_text(PLAYED.format(said=said, more=more, prompt=prompt))
    return folder


def killed_and_started(server: Process, start: Start, *options: str, **more: Any) -> Process:
    server.kill()
    return start(*options, port=server.port, **more)


def test_an_episode_goes_on_over_a_kill_and_the_step_in_flight_is_done_once(
    start: Start, tmp_path: Path
) -> None:
    journal = f"--journal={tmp_path}"
    server = start(journal)
    player = Player(server, "session-1")
    player.begin(seed=7)
    player.step(1, "add", n=4)
    last = player.step(2, "add", n=1)
    for epoch in (1, 2, 3, 4):
        server = killed_and_started(server, start, journal)
        player = Player(server, "session-1", "")
        again = player.step(2, "add", n=1)
        assert session(again).pop("epoch") == epoch
        assert session(last) == {**session(again), "epoch": 0}
        assert again["data"]["observation"]["result"] == last["data"]["observation"]["result"]
    assert text(player.step(3, "add", n=1)) == "6"
    assert player.ask("state")["data"]["step_count"] == 3
    reply = player.step(4, "commit")
    assert (reply["data"]["done"], reply["data"]["reward"]) == (True, pytest.approx(0.6))
    player.send("close")
    with pytest.raises(Exception, match="1000"):
        player.receive()
    assert not list(tmp_path.glob("**/*.jsonl"))


def test_an_episode_that_was_only_reset_goes_on(start: Start, tmp_path: Path) -> None:
    journal = f"--journal={tmp_path}"
    server = start(journal)
    first = Player(server, "session-1").begin(split="turns", seed=7)
    server = killed_and_started(server, start, journal)
    player = Player(server, "session-1", "")
    again = player.begin(split="turns", seed=7)
    assert again["data"]["metadata"]["prompt"] == first["data"]["metadata"]["prompt"]
    assert session(again)["epoch"] == 1
    assert player.step(1, "end_turn", response="one")["data"]["done"] is False
    server = killed_and_started(server, start, journal)
    player = Player(server, "session-1", "")
    assert player.ask("state")["data"]["turn"] == 1
    assert player.step(2, "end_turn", response="two")["data"]["done"] is True


def test_without_a_journal_the_session_is_lost(start: Start) -> None:
    server = start()
    Player(server, "session-1").begin()
    server = killed_and_started(server, start)
    assert reason(Player(server, "session-1", "").receive()) == "SESSION_LOST"


def test_an_episode_that_says_something_else_has_diverged(start: Start, tmp_path: Path) -> None:
    bundle = bundle_of(tmp_path / "b", said="str(os.getpid()) if self.calls > 1 else 'same'")
    journal = f"--journal={tmp_path / 'j'}"
    server = start(journal, bundle=bundle)
    player = Player(server, "session-1")
    player.begin(split="all")
    player.step(1, "look")
    player.step(2, "look")
    for _ in range(2):  # whoever asks again is told again
        server = killed_and_started(server, start, journal, bundle=bundle)
        refused = Player(server, "session-1", "").receive()
        assert refused["data"]["code"] == "SESSION_ERROR"
        assert reason(refused) == "SESSION_DIVERGED"
    assert server.capacity()["active_sessions"] == 0


def test_the_step_that_diverged_is_named(start: Start, tmp_path: Path) -> None:
    bundle = bundle_of(tmp_path / "b", said="str(os.getpid())")
    journal = f"--journal={tmp_path / 'j'}"
    server = start(journal, bundle=bundle)
    player = Player(server, "session-1")
    player.begin(split="all")
    player.step(1, "look")
    server = killed_and_started(server, start, journal, bundle=bundle)
    assert Player(server, "session-1", "").receive()["data"]["seq"] == 1


def test_a_changed_bundle_loses_the_session(start: Start, tmp_path: Path) -> None:
    journal = f"--journal={tmp_path / 'j'}"
    server = start(journal, bundle=bundle_of(tmp_path / "b"))
    Player(server, "session-1").begin(split="all")
    changed = bundle_of(tmp_path / "b", prompt="another")
    server = killed_and_started(server, start, journal, bundle=changed)
    assert reason(Player(server, "session-1", "").receive()) == "BUNDLE_CHANGED"


def test_a_task_that_can_not_be_played_again_loses_the_session(
    start: Start, tmp_path: Path
) -> None:
    bundle = bundle_of(tmp_path / "b", more="replayable = False")
    journal = f"--journal={tmp_path / 'j'}"
    server = start(journal, bundle=bundle)
    Player(server, "session-1").begin(split="all")
    server = killed_and_started(server, start, journal, bundle=bundle)
    assert reason(Player(server, "session-1", "").receive()) == "SESSION_LOST"


def test_a_torn_last_record_was_never_answered(start: Start, tmp_path: Path) -> None:
    journal = f"--journal={tmp_path}"
    server = start(journal)
    player = Player(server, "session-1")
    player.begin()
    player.step(1, "add", n=4)
    server.kill()
    with (tmp_path / "session-1.jsonl").open("ab") as file:
        file.write(b'{"n":2,"a":{"type":"call_tool","tool_na')
    server = start(journal, port=server.port)
    assert text(Player(server, "session-1", "").step(2, "add", n=1)) == "5"
    server = killed_and_started(server, start, journal)
    assert text(Player(server, "session-1", "").step(3, "add", n=1)) == "6"


@pytest.mark.parametrize("damage", [b"", b"\x00\xff\n", b'{"v": 9}\n', b"[]\n"])
def test_a_damaged_journal_loses_its_session_and_no_other(
    start: Start, tmp_path: Path, damage: bytes
) -> None:
    journal = f"--journal={tmp_path}"
    server = start(journal)
    Player(server, "session-1").begin()
    Player(server, "session-2").begin()
    server.kill()
    (tmp_path / "session-1.jsonl").write_bytes(damage)
    server = start(journal, port=server.port)
    assert reason(Player(server, "session-1", "").receive()) == "SESSION_LOST"
    assert text(Player(server, "session-2", "").step(1, "add", n=4)) == "4"


def test_after_a_restart_room_is_kept_for_the_sessions_of_before(
    start: Start, tmp_path: Path
) -> None:
    options = (f"--journal={tmp_path}", "--max-sessions=2")
    server = start(*options)
    Player(server, "session-1").begin()
    server = killed_and_started(server, start, *options)
    assert server.capacity()["reserved_sessions"] == 1
    Player(server, "session-3").begin()
    assert reason(Player(server, "session-4").receive()) == "CAPACITY_REACHED"
    assert text(Player(server, "session-1", "").step(1, "add", n=4)) == "4"
    assert server.capacity() == {
        "max_sessions": 2,
        "active_sessions": 2,
        "reserved_sessions": 0,
        "waiting": 0,
        "busy_sessions": 0,
        "free": 0,
    }


def test_two_servers_can_not_share_a_journal(start: Start, tmp_path: Path) -> None:
    start(f"--journal={tmp_path}")
    with pytest.raises(AssertionError, match="ended at its start"):
        start(f"--journal={tmp_path}", log=tmp_path / "log")
    assert "another server writes to it" in (tmp_path / "log").read_text()


EDITS: dict[str, Any] = {
    "another reset": lambda lines: [lines[0].replace(b'"index":0', b'"index":99'), *lines[1:]],
    "no number": lambda lines: [lines[0].replace(b'"index":0', b'"index":"0"'), *lines[1:]],
    "no action": lambda lines: [lines[0], b'{"n":1,"a":{"type":"call_tool"},"h":"","d":false}'],
    "no step": lambda lines: [lines[0], b'{"n":1,"a":[],"h":"","d":false}'],
    "no epoch": lambda lines: [*lines, b'{"epoch":"x"}'],
    "no reason": lambda lines: [*lines, b'{"lost":{"a":1}}'],
    "no reply": lambda lines: [*lines, b'{"snap":1,"turn":0,"state":{},"reply":{"x":1}}'],
    "too deep": lambda lines: [*lines, b"[" * 100_000 + b"]" * 100_000],
}


def test_a_journal_that_somebody_wrote_into_is_lost_by_name(start: Start, tmp_path: Path) -> None:
    journal = f"--journal={tmp_path}"
    server = start(journal)
    names = {f"edited-{number}": edit for number, edit in enumerate(EDITS.values())}
    for name in names:
        player = Player(server, name)
        player.begin()
        player.step(1, "add", n=4)
    server.kill()
    for name, edit in names.items():
        path = tmp_path / f"{name}.jsonl"
        lines = edit([x for x in path.read_bytes().splitlines() if b"try" not in x])
        path.write_bytes(b"".join(line + b"\n" for line in lines))
    server = start(journal, port=server.port)
    for name, what in zip(names, EDITS, strict=True):
        assert reason(Player(server, name, "").receive()) == "SESSION_LOST", what
        assert reason(Player(server, name, "").receive()) == "SESSION_LOST", what
    assert server.capacity()["active_sessions"] == 0


def test_a_server_with_another_reward_loses_the_session(start: Start, tmp_path: Path) -> None:
    journal = f"--journal={tmp_path}"
    server = start(journal)
    player = Player(server, "session-1")
    player.begin()
    player.step(1, "add", n=4)
    assert server.get("/tools")["reward"] is None
    server = killed_and_started(server, start, journal, "--reward=mean")
    assert server.get("/tools")["reward"] == "mean"
    assert reason(Player(server, "session-1", "").receive()) == "BUNDLE_CHANGED"
