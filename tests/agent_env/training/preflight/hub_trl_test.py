"""A hub that lacks the model, or doesn't answer, is told at once and by the model's name."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from agent_env.errors import AgentEnvError
from agent_env.training.config import ConfigError, GrpoConfig
from agent_env.training.preflight import check_machine, hub
from agent_env.training.preflight.source import source_faults
from tests.agent_env.training.preflight.source_test import model

pytestmark = pytest.mark.trl

NOWHERE = "http://127.0.0.1:9"


class _Hub(BaseHTTPRequestHandler):
    """Has one model, as the hub's own API answers; is out of order for another."""

    asked: list[str]

    def do_GET(self) -> None:
        name = self.path.removeprefix("/api/models/")
        self.asked += [name] if name != self.path else []
        status = {"me/there": 200, "me/out-of-order": 503}.get(name, 401)
        self.send_response(status)
        if status == 401:
            self.send_header("X-Error-Code", "RepoNotFound")
        self.end_headers()
        self.wfile.write(b'{"id": "me/there"}' if status == 200 else b"{}")

    def log_message(self, *_: object) -> None:
        """Nothing."""


@pytest.fixture(autouse=True)
def _cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path))
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    for name in ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    names: list[str] = []
    with HTTPServer(("127.0.0.1", 0), type("Hub", (_Hub,), {"asked": names})) as served:
        monkeypatch.setenv("HF_ENDPOINT", f"http://127.0.0.1:{served.server_port}")
        threading.Thread(target=served.serve_forever, daemon=True).start()
        yield names
        served.shutdown()


def test_a_name_that_the_hub_does_not_know_is_told_by_one_question(asked: list[str]) -> None:
    said = "config.model: the hub has no model 'me/thare'"
    assert [fault[: len(said)] for fault in source_faults("me/thare", "config.model")] == [said]
    assert list(source_faults("me/there", "config.model")) == []
    assert list(source_faults("me/out-of-order", "config.model")) == []
    assert asked == ["me/thare", "me/there", "me/out-of-order"]


def test_a_program_is_told_before_it_loads_a_trainer(asked: list[str]) -> None:
    with pytest.raises(ConfigError, match="the hub has no model 'me/thare'"):
        check_machine("me/thare", GrpoConfig(model="me/thare", bundle="gridsim"))
    assert asked == ["me/thare"]


def test_a_hub_that_refuses_or_is_silent_is_told_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hub, "ASK_S", 0.3)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        for endpoint in (NOWHERE, f"http://127.0.0.1:{silent.getsockname()[1]}"):
            monkeypatch.setenv("HF_ENDPOINT", endpoint)
            began = time.monotonic()
            said = f"config.model: 'me/model' is no folder here, and the hub at {endpoint} doesn't"
            with pytest.raises(AgentEnvError, match=said) as told:
                list(source_faults("me/model", "config.model"))
            assert not isinstance(told.value, ConfigError)  # tried again: it may pass
            assert time.monotonic() - began < 30
    model(tmp_path / "models--me--model" / "snapshots" / "1f2e")
    assert list(source_faults("me/model", "config.model")) == []
