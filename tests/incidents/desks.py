"""A job's folder and its syncer before an S3 of moto's, for tests that need no whole box."""

from __future__ import annotations

from pathlib import Path

import pytest

from orchestrator.box.store import Store
from tests.orchestrator.box.conftest import cloud, rig, shared_cloud, valves
from tests.orchestrator.box.desk import Desk
from tests.orchestrator.box.rig import BUCKET, PREFIX, REGION, Cloud
from tests.orchestrator.box.valve import ValveCloud

__all__ = ["cloud", "desk", "desk_of", "rig", "shared_cloud", "valve_desk", "valves"]


@pytest.fixture
def desk(cloud: Cloud, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Desk:
    return desk_of(cloud, tmp_path, monkeypatch)


@pytest.fixture
def valve_desk(valves: ValveCloud, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Desk:
    """Its S3 does what the test's valve lets it."""
    return desk_of(valves, tmp_path, monkeypatch)


def desk_of(cloud: Cloud, folder: Path, monkeypatch: pytest.MonkeyPatch) -> Desk:
    monkeypatch.setenv("AWS_ENDPOINT_URL", cloud.url)
    return Desk(Store(BUCKET, REGION, PREFIX), folder / "job")
