"""What the disk, a task and a stop do to an episode: a typed refusal, never a half step."""

from __future__ import annotations

import json
import resource
import signal
from pathlib import Path

import pytest
from websockets.exceptions import ConnectionClosed, InvalidStatus

from ..conftest import dial, eventually
from .conftest import Player, Process, Start, action, reason, session, text
from .rebuilt_test import bundle_of, killed_and_started

NO_LIMIT = (resource.RLIM_INFINITY, resource.RLIM_INFINITY)


def fill_disk(server: Process, room: int) -> None:
    """No file of the server may be longer than that many bytes."""
    resource.prlimit(server.pid, resource.RLIMIT_FSIZE, (room, resource.RLIM_INFINITY))


def test_a_step_that_can_not_be_written_down_is_carried_out_once_there_is_room(
    start: Start, tmp_path: Path
) -> None:
    server = start(f"--journal={tmp_path}")
    player = Player(server, "session-1")
    player.begin()
    player.step(1, "add", n=4)
    journal = tmp_path / "session-1.jsonl"
    before = journal.read_bytes()
    for room in (len(before), len(before) + 40, len(before) + 140):
        fill_disk(server, room)
        refused = player.step(2, "add", n=1)
        assert reason(refused) == "JOURNAL_FULL"
        assert refused["data"]["retry_after_s"] > 0
        assert all(json.loads(line) for line in journal.read_bytes().splitlines())
    resource.prlimit(server.pid, resource.RLIMIT_FSIZE, NO_LIMIT)
    assert text(player.step(2, "add", n=1)) == "5"
    assert text(player.step(2, "add", n=1)) == "5"
    server = killed_and_started(server, start, f"--journal={tmp_path}")
    assert text(Player(server, "session-1", "").step(3, "add", n=1)) == "6"


def test_a_reset_that_can_not_be_written_down_leaves_the_old_episode_on_the_disk(
    start: Start, tmp_path: Path
) -> None:
    server = start(f"--journal={tmp_path}")
    player = Player(server, "session-1")
    player.begin(index=0)
    player.step(1, "add", n=4)
    fill_disk(server, 10)
    again = {"split": "eval", "index": 1, "episode_id": "second-1"}
    assert reason(player.ask("reset", **again)) == "JOURNAL_FULL"
    assert b'"add"' in (tmp_path / "session-1.jsonl").read_bytes()
    assert not list(tmp_path.glob("*.half"))
    resource.prlimit(server.pid, resource.RLIMIT_FSIZE, NO_LIMIT)
    assert player.ask("reset", **again)["data"]["metadata"]["task"]["index"] == 1
    assert b'"add"' not in (tmp_path / "session-1.jsonl").read_bytes()


def test_a_step_over_its_deadline_poisons_the_episode_and_keeps_the_slot(
    start: Start, tmp_path: Path
) -> None:
    server = start(f"--journal={tmp_path}", "--max-sessions=1")
    player = Player(server, "session-1")
    player.begin()
    slow = action("wait", {"seconds": 1.5}, seq=1, deadline_s=0.1)
    assert reason(player.ask("step", **slow)) == "STEP_TIMEOUT"
    assert (
        reason(
            player.ask(
                "step",
                **slow,
            )
        )
        == "STEP_TIMEOUT"
    )
    assert server.capacity()["busy_sessions"] == 1
    player.send("close")
    assert server.capacity()["active_sessions"] == 1
    eventually(lambda: server.capacity()["active_sessions"] == 0)


def test_a_reset_makes_a_poisoned_session_good_once_its_step_has_ended(
    start: Start, tmp_path: Path
) -> None:
    journal = f"--journal={tmp_path}"
    server = start(journal)
    player = Player(server, "session-1")
    player.begin()
    player.ask("step", **action("wait", {"seconds": 0.7}, seq=1, deadline_s=0.1))
    assert reason(player.begin(deadline_s=0.1)) == "STEP_TIMEOUT"
    server = killed_and_started(server, start, journal)
    player = Player(server, "session-1", "")
    assert reason(player.step(1, "add", n=1)) == "STEP_TIMEOUT"
    assert session(player.begin(episode_id="again-again"))["seq"] == 0
    assert text(player.step(1, "add", n=1)) == "1"


SNAPSHOTS = """replayable = False

    def snapshot(self):
        return {"calls": self.calls}

    def restore(self, state):
        self.calls = state["calls"]
"""


def test_a_snapshot_stands_for_what_can_not_be_played_again(start: Start, tmp_path: Path) -> None:
    bundle = bundle_of(tmp_path / "b", said='f"{self.calls} {os.getpid()}"', more=SNAPSHOTS)
    journal = f"--journal={tmp_path / 'j'}"
    server = start(journal, bundle=bundle)
    player = Player(server, "session-1")
    player.begin(split="all")
    player.step(1, "look")
    last = player.step(2, "look")
    server = killed_and_started(server, start, journal, bundle=bundle)
    player = Player(server, "session-1", "")
    assert text(player.step(2, "look")) == text(last)
    assert text(player.step(3, "look")).split() == ["3", str(server.pid)]
    assert player.ask("state")["data"]["step_count"] == 3


def test_a_journal_with_snapshots_stays_short(start: Start, tmp_path: Path) -> None:
    big = SNAPSHOTS.replace('{"calls": self.calls}', '{"calls": self.calls, "pad": "x" * 60_000}')
    bundle = bundle_of(tmp_path / "b", more=big)
    server = start(f"--journal={tmp_path / 'j'}", bundle=bundle)
    player = Player(server, "session-1")
    player.begin(split="all")
    for n in range(1, 30):
        player.step(n, "look")
    assert (tmp_path / "j" / "session-1.jsonl").stat().st_size < 2**18 + 2 * 60_000
    server = killed_and_started(server, start, f"--journal={tmp_path / 'j'}", bundle=bundle)
    assert session(Player(server, "session-1", "").step(29, "look"))["seq"] == 29


def test_a_step_that_takes_its_process_down_again_and_again_is_given_up(
    start: Start, tmp_path: Path
) -> None:
    bundle = bundle_of(tmp_path / "b", said="os._exit(7) if self.calls > 1 else 'seen'")
    journal = f"--journal={tmp_path / 'j'}"
    server = start(journal, bundle=bundle)
    player = Player(server, "session-1")
    player.begin(split="all")
    player.step(1, "look")
    for tries in (1, 9):
        with pytest.raises(ConnectionClosed):
            player.step(2, "look")
        assert server.wait() == 7
        # As if as many servers more had been killed at that step.
        with (tmp_path / "j" / "session-1.jsonl").open("a") as file:
            file.write('{"try":2,"by":"another"}\n' * (tries - 1))
        server = start(journal, bundle=bundle, port=server.port)
        player = Player(server, "session-1", "")
    assert reason(player.receive()) == "SESSION_LOST"


def test_a_task_that_asks_for_the_end_of_the_process_ends_its_own_episode(
    start: Start, tmp_path: Path
) -> None:
    for quick in ("quick = True", ""):
        bundle = bundle_of(tmp_path / "b", said="exit(3)", more=quick)
        player = Player(start(bundle=bundle), "session-1")
        player.begin(split="all")
        reply = player.step(1, "look")
        assert (reply["data"]["done"], reply["data"]["reward"]) == (True, None)
        assert "SystemExit" in reply["data"]["metadata"]["error"]
        assert reason(player.ask("reset", split="none", index=0)) == "VALIDATION_ERROR"


def test_a_stopping_server_answers_running_steps_and_sends_everybody_away_with_1012(
    start: Start, tmp_path: Path
) -> None:
    journal = f"--journal={tmp_path}"
    server = start(journal)
    busy, idle = Player(server, "session-1"), Player(server, "session-2")
    busy.begin()
    idle.begin()
    busy.send("step", **action("wait", {"seconds": 1.0}, seq=1))
    eventually(lambda: server.capacity()["busy_sessions"] == 1)
    server.signal(signal.SIGTERM)

    def refused() -> bool:
        try:
            with dial(server.url):
                return False
        except InvalidStatus as error:
            response = error.response
            assert (response.status_code, response.headers["Retry-After"]) == (503, "1")
            return True

    eventually(refused, 3.0)
    assert text(busy.receive()) == "waited"
    for player in (busy, idle):
        with pytest.raises(ConnectionClosed) as closed:
            player.receive()
        assert closed.value.rcvd is not None
        assert closed.value.rcvd.code == 1012
    server.wait()
    server = start(journal, port=server.port)
    assert text(Player(server, "session-1", "").step(2, "add", n=1)) == "1"


def test_a_quick_task_that_is_not_quick_is_found_out(start: Start, tmp_path: Path) -> None:
    said = "str(os.stat('.') and __import__('threading').Event().wait(0.6))"
    bundle = bundle_of(tmp_path / "b", said=said, more="quick = True")
    server = start(bundle=bundle, log=tmp_path / "log")
    player = Player(server, "session-1")
    player.begin(split="all")
    player.step(1, "look")
    eventually(lambda: "says quick" in (tmp_path / "log").read_text())
    player.send("step", **action("look", {}, seq=2))
    eventually(lambda: server.capacity()["busy_sessions"] == 1, 5.0)
    assert text(player.receive()) == "False"


def test_the_journal_is_only_for_its_owner(start: Start, tmp_path: Path) -> None:
    Player(start(f"--journal={tmp_path / 'j'}"), "session-1").begin()
    assert (tmp_path / "j" / "session-1.jsonl").stat().st_mode & 0o077 == 0


@pytest.mark.parametrize("quick", ["quick = True", ""])
@pytest.mark.parametrize(
    "raised", ["GeneratorExit", "asyncio.CancelledError", "type('Odd', (BaseException,), {})"]
)
def test_whatever_a_task_raises_its_step_counts_and_is_done_once(
    start: Start, tmp_path: Path, raised: str, quick: str
) -> None:
    said = f"(_ for _ in ()).throw(({raised})('odd')) if self.calls > 1 else 'seen'"
    more = f"import asyncio; {quick}" if quick else "import asyncio"
    bundle = bundle_of(tmp_path / "b", said=said.replace("asyncio.", "self.asyncio."), more=more)
    player = Player(start(bundle=bundle), "session-1")
    player.begin(split="all")
    player.step(1, "look")
    reply = player.step(2, "look")
    assert (reply["data"]["done"], reply["data"]["reward"]) == (True, None)
    assert "odd" in reply["data"]["metadata"]["error"]
    assert player.step(2, "look") == reply


def test_a_reset_that_takes_its_process_down_again_and_again_is_given_up(
    start: Start, tmp_path: Path
) -> None:
    crash = "def open_(self): os._exit(7) if self.data.index else None\n    "
    bundle = bundle_of(tmp_path / "b", more=crash)
    code = bundle / "__init__.py"
    text_ = code.read_text().replace("self.calls = 0", "self.calls = 0; self.open_()")
    two = (
        "[TaskData(id=f'played-{n}', name='t', split='all', index=n, prompt='p') for n in (0, 1)]"
    )
    line = next(line for line in text_.splitlines() if "return [TaskData" in line)
    code.write_text(text_.replace(line.strip(), f"return {two}"))
    server = start(f"--journal={tmp_path / 'j'}", "--workers=1", bundle=bundle)
    for _ in range(3):
        with pytest.raises(ConnectionClosed):
            Player(server, "session-1").begin(split="all", index=1)
    player = Player(server, "session-1")
    refused = player.begin(split="all", index=1)
    assert (reason(refused), "begun 3 times" in refused["data"]["message"]) == ("ENV_ERROR", True)
    assert reason(player.step(1, "look")) == "NOT_RESET"
    assert session(player.begin(split="all", index=0))["seq"] == 0
    assert text(player.step(1, "look")) == "seen"
