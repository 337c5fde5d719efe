"""What is to be reported to is there, or is told to be missing before anything is loaded."""

from __future__ import annotations

import os
import threading
from base64 import b64encode
from collections.abc import Iterator, MutableMapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from unittest.mock import patch

import pytest

from agent_env.training.config import ConfigError, GrpoConfig, parse_config
from agent_env.training.process import settle_process
from agent_env.training.reporting import check_reporting, run_name, settle_reporting

NOWHERE = "http://127.0.0.1:1"


@pytest.fixture
def wandb(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An installed wandb that nobody has logged in."""
    (tmp_path / "wandb.py").touch()
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("WANDB_API_KEY", raising=False)
    for name in ("WANDB_MODE", "WANDB_BASE_URL", "NETRC"):
        monkeypatch.delenv(name, raising=False)


def fault(*names: str) -> str:
    with pytest.raises(ConfigError) as caught:
        check_reporting(parse_config(GrpoConfig, {"report_to": list(names)}))
    return str(caught.value)


def test_a_missing_package_is_told_by_name() -> None:
    assert fault("trackio").startswith("config.report_to: the package trackio isn't installed")


@pytest.mark.usefixtures("wandb")
def test_wandb_without_a_token_is_told_the_secrets_name() -> None:
    assert "WANDB_API_KEY" in fault("wandb")


@pytest.mark.usefixtures("wandb")
def test_a_netrc_counts_only_if_it_names_wandbs_server(tmp_path: Path) -> None:
    netrc = tmp_path / ".netrc"
    netrc.write_text("machine github.com login me password p\n")
    assert "WANDB_API_KEY" in fault("wandb")
    netrc.write_text("machine api.wandb.ai\n  login user\n  password p\n")
    check_reporting(parse_config(GrpoConfig, {"report_to": ["wandb"]}))


@pytest.mark.usefixtures("wandb")
@pytest.mark.parametrize(("name", "value"), [("WANDB_API_KEY", "k"), ("WANDB_MODE", "offline")])
def test_wandb_with_a_token_or_without_a_network_is_fine(
    name: str, value: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(name, value)
    check_reporting(parse_config(GrpoConfig, {"report_to": ["wandb"]}))


class Server(ThreadingHTTPServer):
    """Answers every request with one status, and remembers who asked for what."""

    def __init__(self, status: int) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.status = status
        self.asked: list[tuple[str, str | None]] = []
        self.url = f"http://127.0.0.1:{self.server_address[1]}"


class _Handler(BaseHTTPRequestHandler):
    server: Server

    def do_GET(self) -> None:
        self.server.asked.append((self.path, self.headers["Authorization"]))
        self.rfile.read(int(self.headers["Content-Length"] or 0))
        self.send_response(self.server.status)
        self.send_header("Location", f"{self.server.url}/elsewhere")
        self.send_header("Content-Length", "0")
        self.end_headers()

    do_POST = do_GET

    def log_message(self, *_: object) -> None:
        pass


@contextmanager
def answering(status: int) -> Iterator[Server]:
    with Server(status) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.02,))
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()


@pytest.fixture
def told(
    wandb: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[MutableMapping[str, str]]:
    """An environment of its own with tokens for both, and both installed."""
    (tmp_path / "trackio.py").touch()
    monkeypatch.setenv("WANDB_API_KEY", "k")
    monkeypatch.setenv("HF_TOKEN", "hf_k")
    for name in ("WANDB_DIR", "TRACKIO_DIR", "TRACKIO_SPACE_ID", "HF_HUB_OFFLINE", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
    with patch.dict(os.environ, {"no_proxy": "127.0.0.1"}):
        yield os.environ


def settle(name: str, out: Path) -> None:
    settle_reporting(parse_config(GrpoConfig, {"report_to": [name]}), out)


def test_wandb_is_asked_once_with_the_token_and_writes_into_the_results(
    told: MutableMapping[str, str], tmp_path: Path
) -> None:
    with answering(200) as server:
        told["WANDB_BASE_URL"] = server.url
        settle("wandb", tmp_path / "out")
    assert server.asked == [("/graphql", f"Basic {b64encode(b'api:k').decode()}")]
    assert told["WANDB_DIR"] == str(tmp_path / "out")
    assert (tmp_path / "out").is_dir()
    assert told["WANDB_FINISH_TIMEOUT"] == "60"
    assert "WANDB_MODE" not in told


def test_a_trackio_that_was_told_no_space_asks_nobody(
    told: MutableMapping[str, str], tmp_path: Path
) -> None:
    settle("trackio", tmp_path / "out")
    assert told["TRACKIO_DIR"] == str(tmp_path / "out" / "trackio")


def test_a_trackio_with_a_space_reaches_the_hub_also_when_the_model_is_all_here(
    told: MutableMapping[str, str], tmp_path: Path
) -> None:
    told["TRACKIO_SPACE_ID"] = "me/space"
    with answering(200) as server:
        told["HF_ENDPOINT"] = server.url
        settle("trackio", tmp_path / "out")
    assert server.asked == [("/api/whoami-v2", "Bearer hf_k")]
    settle_process(source="tiny", unsloth=False)
    assert (told["HF_HUB_OFFLINE"], told["TRACKIO_SPACE_ID"]) == ("0", "me/space")


def test_folders_that_somebody_set_are_left_as_they_are(
    told: MutableMapping[str, str], tmp_path: Path
) -> None:
    told.update(WANDB_DIR="/there", TRACKIO_DIR="/elsewhere", WANDB_MODE="offline")
    settle("wandb", tmp_path / "out")
    settle("trackio", tmp_path / "out")
    assert (told["WANDB_DIR"], told["TRACKIO_DIR"]) == ("/there", "/elsewhere")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("name", "address", "named"),
    [("wandb", "WANDB_BASE_URL", "WANDB_API_KEY"), ("trackio", "HF_ENDPOINT", "HF_TOKEN")],
)
def test_a_refused_token_is_told_before_anything_is_loaded_and_a_redirect_gets_none(
    told: MutableMapping[str, str], tmp_path: Path, name: str, address: str, named: str
) -> None:
    told["TRACKIO_SPACE_ID"] = "me/space"
    with answering(401) as server:
        told[address] = server.url
        with pytest.raises(ConfigError, match=f"refuses .*{named}"):
            settle(name, tmp_path / "out")
    with answering(302) as server:
        told[address] = server.url
        settle(name, tmp_path / "out")
    assert len(server.asked) == 1


def test_a_server_that_cannot_be_reached_has_the_report_kept_here(
    told: MutableMapping[str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    told.update(WANDB_BASE_URL=NOWHERE, HF_ENDPOINT=NOWHERE)
    told["TRACKIO_SPACE_ID"] = "me/space"
    settle("wandb", tmp_path)
    settle("trackio", tmp_path)
    assert told["WANDB_MODE"] == "offline"
    assert "TRACKIO_SPACE_ID" not in told
    assert capsys.readouterr().out.count("send it later with:") == 2


def test_a_token_with_a_line_s_end_is_sent_without_it_and_one_that_cannot_be_sent_isnt_shown(
    told: MutableMapping[str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    told.update(TRACKIO_SPACE_ID="me/space", HF_TOKEN="hf_k\n")
    with answering(200) as server:
        told["HF_ENDPOINT"] = server.url
        settle("trackio", tmp_path)
        assert server.asked == [("/api/whoami-v2", "Bearer hf_k")]
        told["HF_TOKEN"] = "hf_k\nhf_l"
        settle("trackio", tmp_path)
    said = capsys.readouterr().out
    assert "can't be reached (the address isn't one, or the token has a character" in said
    assert "hf_" not in said


@pytest.mark.parametrize(
    ("without", "more", "named"),
    [
        ("HF_TOKEN", {"TRACKIO_SPACE_ID": "me/space"}, "the secret HF_TOKEN"),
        ("HF_TOKEN", {"TRACKIO_SERVER_URL": NOWHERE}, "TRACKIO_WRITE_TOKEN"),
    ],
)
def test_a_trackio_without_a_token_for_its_server_is_told_the_secrets_name(
    told: MutableMapping[str, str], without: str, more: dict[str, str], named: str
) -> None:
    del told[without]
    told.update(more)
    assert named in fault("trackio")


def test_a_job_has_the_same_name_at_each_start(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("GPURUN_RUN", raising=False)
    assert run_name(tmp_path / "night" / "out") == "night"
    monkeypatch.setenv("GPURUN_RUN", "r1")
    monkeypatch.setenv("GPURUN_JOB", "learn")
    assert run_name(tmp_path / "night" / "out") == "r1-learn"
