"""skypilot-org/skypilot#8519 and PR#8753: taking a cluster down loses what wasn't written back.

There: results are in a cache that is flushed later. A cancel, or a `down`, ends the machines
before that, without a word.
Here: `down` in the middle of a job lets the box save all it has, the work since the last sync too.
Only `--now` doesn't; it must be given a reason in words, which stays in the run's log.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from orchestrator import ending, opened
from orchestrator.aws import sweep
from orchestrator.console.live import Progress
from orchestrator.console.terminal import make_console
from orchestrator.run import EventKind
from tests.faults.world import REGION
from tests.incidents.scene import FOR_EVER, Scene
from tests.incidents.scene import opened as scene_of
from tests.orchestrator.cli_test import gpurun

Down = Callable[..., None]
LATE_S = 150.0
"""After the start; the box has synced once, and has worked on since."""


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch) -> Down:
    """Types `gpurun down` in the account of a scene."""
    monkeypatch.setattr(sweep, "regions", lambda _: [REGION])

    def down(scene: Scene, **how: Any) -> None:
        for module in (ending, opened):
            monkeypatch.setattr(module, "open_cloud", lambda *_: scene.world.session())
            monkeypatch.setattr(module, "SystemClock", lambda: scene.world.time)
        ending.end_run(scene.run_id, "aws", Progress(make_console(stderr=True)), **how)

    return down


def test_down_lets_a_job_save_what_no_sync_has_brought(here: Down) -> None:
    with scene_of(FOR_EVER) as scene:
        scene.launched()
        scene.wait(LATE_S)
        here(scene, now=False)
        assert scene.left() == []
        scene.pull()
        newest = {each.name: each for each in scene.world.written}
        assert len(newest) > 4
        for each in newest.values():
            assert scene.pulled("train", each.name) == each.data
        assert [event.reason for event in scene.events(EventKind.TEARING_DOWN)] == [None]


def test_down_now_ends_at_once_and_the_log_says_why(here: Down) -> None:
    with scene_of(FOR_EVER) as scene:
        scene.launched()
        scene.wait(LATE_S)
        here(scene, now=True, why="it reads the wrong split")
        assert scene.left() == []
        (event,) = scene.events(EventKind.TEARING_DOWN)
        assert event.reason == "it reads the wrong split"
        (box,) = scene.instances()
        assert box.reason == "Client.UserInitiatedShutdown"


@pytest.mark.parametrize(
    "words", [("--now",), ("--now", ""), ("--now", "  "), ("--now", "--cloud")]
)
def test_now_without_a_reason_is_refused_before_any_call(
    words: tuple[str, ...], tmp_path: Path
) -> None:
    done = gpurun("down", "demo-261129-120000-abcd", *words, home=tmp_path, code=2)
    assert "--now" in done.stderr
