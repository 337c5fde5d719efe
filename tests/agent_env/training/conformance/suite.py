"""The one suite that every trainer's helper passes: `class TestTrl(Conformance): driver = …`.

A driver plays `CASES` through its trainer's own rollout code, with a model that speaks from a
script, against a real server process.
"""

from __future__ import annotations

import json
import os
import signal
import threading
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ClassVar, Protocol

import pytest

from agent_env.client.local import LocalServer
from tests.agent_env.conftest import eventually

from .cases import CASES, Case, Outcome, Script

ADDER = Path(__file__).parent / "adder"
SESSIONS = len(CASES)
HELD_S = 20.0
"""A session whose connection broke keeps its place for ten seconds."""
QUICK_S = 40.0
"""Within this the play is over even when the server answers nobody."""


class BriefServer(LocalServer):
    """Lets go of a session one second after its connection broke."""

    _module = f"{__package__}.brief_server"


class Driver(Protocol):
    """A trainer's rollouts."""

    def __call__(
        self, url: str, script: Script, folder: Path, *, timeout: float
    ) -> Sequence[Outcome]:
        """Play the script's cases, let go of all that is held; `timeout` for a reply."""
        ...


@contextmanager
def served(
    folder: Path,
    *,
    journal: bool,
    sessions: int = SESSIONS,
    kind: type[LocalServer] = LocalServer,
) -> Iterator[LocalServer]:
    """The adder on a server of its own, its calls written down in `folder/calls`."""
    (folder / "calls").mkdir(exist_ok=True)
    kept = folder / "journal" if journal else None
    before = os.environ.get("CONFORMANCE_LOG")
    os.environ["CONFORMANCE_LOG"] = str(folder / "calls")
    try:
        with kind(ADDER, max_sessions=sessions, journal=kept) as server:
            yield server
    finally:
        os.environ.pop("CONFORMANCE_LOG")
        if before is not None:
            os.environ["CONFORMANCE_LOG"] = before


def calls_of(folder: Path, number: int) -> list[list[Any]]:
    """What the environment of that case carried out."""
    path = folder / "calls" / f"{number}.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()]


def busy(url: str) -> int:
    """Sessions that the server holds."""
    with urllib.request.urlopen(url + "/capacity") as reply:
        held: int = json.load(reply)["active_sessions"]
    return held


def lost(seen: Outcome) -> bool:
    """Whether it is what a case must be that the infrastructure lost."""
    return (seen.reward, seen.scores, seen.counts) == (None, {}, False)


class Once:
    """Does something at the first message with that number in that case, and only there."""

    def __init__(self, number: int, turn: int, act: Callable[[], object]) -> None:
        self._at, self._act, self.done = (number, turn), act, False

    def __call__(self, number: int, turn: int) -> None:
        if (number, turn) == self._at and not self.done:
            self.done = True
            self._act()


class Conformance:
    """What a trainer's helper promises."""

    driver: ClassVar[Driver]

    def test_each_case_has_its_calls_reward_scores_and_mask(self, tmp_path: Path) -> None:
        with served(tmp_path, journal=True) as server:
            seen = type(self).driver(server.url, Script(), tmp_path, timeout=30)
            self.all_as_expected(tmp_path, seen)
            eventually(lambda: busy(server.url) == 0, HELD_S)

    @pytest.mark.parametrize("at", [(0, 0), (2, 1), (8, 2)])
    def test_a_server_that_is_killed_and_comes_back_changes_nothing(
        self, tmp_path: Path, at: tuple[int, int]
    ) -> None:
        with served(tmp_path, journal=True) as server:
            strike = Once(*at, server.restart)
            script = Script(before=strike)
            seen = type(self).driver(server.url, script, tmp_path, timeout=30)
            assert strike.done
            self.all_as_expected(tmp_path, seen)
            eventually(lambda: busy(server.url) == 0, HELD_S)

    def test_without_a_journal_what_was_lost_is_unscored_and_never_zero(
        self, tmp_path: Path
    ) -> None:
        with served(tmp_path, journal=False) as server:
            script = Script(before=Once(1, 1, server.restart))
            seen = type(self).driver(server.url, script, tmp_path, timeout=30)
            self.all_as_expected_or_lost(seen)
            assert lost(seen[1])
            eventually(lambda: busy(server.url) == 0, HELD_S)

    def test_a_server_that_is_gone_costs_no_more_than_its_rollouts(self, tmp_path: Path) -> None:
        with served(tmp_path, journal=True) as server:
            script = Script(before=Once(0, 1, server.kill))
            seen = type(self).driver(server.url, script, tmp_path, timeout=1)
            self.all_as_expected_or_lost(seen)
            assert lost(seen[0])

    @pytest.mark.timeout(QUICK_S * 3)
    def test_a_server_that_says_nothing_holds_nobody_up_for_long(self, tmp_path: Path) -> None:
        with served(tmp_path, journal=True, kind=BriefServer) as server:
            wake = threading.Timer(QUICK_S, os.kill, (server.pid, signal.SIGCONT))

            def freeze() -> None:
                os.kill(server.pid, signal.SIGSTOP)
                wake.start()

            script = Script(CASES[:3], Once(0, 1, freeze))
            seen = type(self).driver(server.url, script, tmp_path, timeout=0.5)
            assert wake.is_alive(), f"the play took more than {QUICK_S:.0f} s"
            wake.cancel()
            os.kill(server.pid, signal.SIGCONT)
            self.all_as_expected_or_lost(seen)
            assert lost(seen[0])
            eventually(lambda: busy(server.url) == 0, HELD_S)

    def all_as_expected(self, folder: Path, seen: Sequence[Outcome]) -> None:
        """Every case is what it says, and the environment saw each call once."""
        for number, (case, outcome) in enumerate(zip(CASES, seen, strict=True)):
            self.as_expected(case, outcome)
            assert calls_of(folder, number) == [list(one) for one in case.calls], case.name

    def all_as_expected_or_lost(self, seen: Sequence[Outcome]) -> None:
        """No case has another reward than its own, unless it has none."""
        for case, outcome in zip(CASES, seen, strict=False):
            if not lost(outcome):
                self.as_expected(case, outcome)

    def as_expected(self, case: Case, seen: Outcome) -> None:
        """Reward, scores, and what the loss may look at."""
        if case.reward is None:
            assert lost(seen), case.name
            return
        assert seen.reward == pytest.approx(case.reward), case.name
        assert seen.scores == pytest.approx(case.scores), case.name
        if case.same_text:
            assert seen.own_text == case.own_text, case.name
