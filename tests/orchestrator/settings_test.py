"""Settings: the environment, read in one place."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from orchestrator.errors import GpurunError
from orchestrator.settings import Settings

STATE = {
    "pid": 42,
    "url": "http://127.0.0.1:40000",
    "driver": "bwrap",
    "started_at": "2026-12-01T12:00:00Z",
    "region": "us-east-1",
}


def write_state(settings: Settings, text: str) -> None:
    settings.cloud_folder.mkdir(parents=True)
    (settings.cloud_folder / "state.json").write_text(text)


def test_home_comes_from_the_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("GPURUN_HOME", str(tmp_path / "mine"))

    assert Settings().home == tmp_path / "mine"


def test_without_an_environment_the_cloud_is_local(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("GPURUN_CLOUD", "GPURUN_HOME", "AWS_REGION", "AWS_DEFAULT_REGION"):
        monkeypatch.delenv(name, raising=False)

    settings = Settings()

    assert settings.cloud == "local"
    assert settings.region is None
    assert settings.home.parts[-3:] == (".local", "state", "gpurun")


def test_an_unknown_cloud_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GPURUN_CLOUD", "azure")

    with pytest.raises(GpurunError, match="GPURUN_CLOUD is 'azure'"):
        Settings()


def test_the_local_cloud_is_known_by_its_state_file() -> None:
    settings = Settings()
    write_state(settings, json.dumps({**STATE, "later": "key"}))

    state = settings.cloud_state()

    assert state is not None
    assert (state.pid, state.url, state.driver) == (42, "http://127.0.0.1:40000", "bwrap")


@pytest.mark.parametrize("cut", [0, 1, 20, -1])
def test_a_state_file_cut_short_is_no_cloud(cut: int) -> None:
    settings = Settings()
    write_state(settings, json.dumps(STATE)[:cut])

    assert settings.cloud_state() is None


def test_no_state_file_is_no_cloud() -> None:
    assert Settings().cloud_state() is None
