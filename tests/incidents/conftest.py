"""A run that a test may disturb, and then look at what the account and the bucket hold."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from orchestrator import ending, opened
from orchestrator.aws import sweep
from orchestrator.console.live import Progress
from orchestrator.console.terminal import make_console
from tests.faults.world import REGION
from tests.incidents import scene as scenes
from tests.incidents.scene import Scene


@pytest.fixture
def scene() -> Iterator[Scene]:
    """One box with one short job."""
    with scenes.opened() as one:
        yield one


@pytest.fixture
def down(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """`gpurun down RUN --now`, typed elsewhere, in the account of the scene."""
    monkeypatch.setattr(sweep, "regions", lambda _: [REGION])
    for module in (ending, opened):
        monkeypatch.setattr(module, "open_cloud", lambda *_: scene.elsewhere())
        monkeypatch.setattr(module, "SystemClock", lambda: scene.world.time)
    progress = Progress(make_console(stderr=True))
    return lambda: ending.end_run(scene.run_id, "aws", progress, now=True)
