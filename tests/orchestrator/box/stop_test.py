"""How a box learns that it is to stop: from S3 only, and from nothing that S3 says otherwise."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from orchestrator.box.store import Store
from orchestrator.box.work import told_to_stop

from .rig import BUCKET, PREFIX, REGION, Cloud, Rig, until

KEY = f"{PREFIX}boxes/l4/stop"


@contextmanager
def refusing(status: int) -> Iterator[tuple[str, list[str]]]:
    """An S3 that gives one answer to everything, and what it was asked."""
    asked: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def do_HEAD(self) -> None:
            asked.append(f"{self.command} {self.path}")
            self.send_response(status)
            self.send_header("Content-Length", "0")
            self.end_headers()

        do_GET = do_HEAD

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", asked
    finally:
        server.shutdown()
        server.server_close()


def test_a_box_is_told_to_stop_by_an_object_of_its_own_whatever_it_holds(
    cloud: Cloud, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", cloud.url)
    store = Store(BUCKET, REGION, PREFIX, fast=True)
    cloud.s3.put_object(Bucket=BUCKET, Key=KEY + "ped", Body=b"x")
    assert not told_to_stop(store, "l4")
    cloud.s3.put_object(Bucket=BUCKET, Key=KEY, Body=b"")
    assert told_to_stop(store, "l4")
    assert not told_to_stop(store, "l40")


@pytest.mark.parametrize("status", [403, 404, 500, 503])
def test_an_s3_that_refuses_says_nothing_and_is_asked_once(
    status: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    with refusing(status) as (url, asked):
        monkeypatch.setenv("AWS_ENDPOINT_URL", url)
        assert not told_to_stop(Store(BUCKET, REGION, PREFIX, fast=True), "l4")
    assert asked == [f"HEAD /{BUCKET}/{KEY}"]


def test_an_s3_that_isnt_there_says_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    assert not told_to_stop(Store(BUCKET, REGION, PREFIX, fast=True), "l4")


@pytest.mark.slow
def test_a_box_that_is_told_to_stop_checkpoints_commits_it_as_cut_and_powers_off(
    rig: Rig,
) -> None:
    rig.trainer("train", steps=9999)
    rig.job("never", "true", needs=["train"])
    rig.spec |= {"drain_at": time.time() + 600, "poweroff_at": time.time() + 900}
    agent = rig.start()
    until(lambda: rig.status("train").get("step"))
    rig.cloud.s3.put_object(Bucket=BUCKET, Key=KEY, Body=b"{}")
    assert agent.wait(20) == 0
    assert rig.off.exists()
    train, never = rig.status("train"), rig.status("never")
    assert (train["state"], never["state"]) == ("cut", "cut")
    assert train["reason"].split(":")[0] == "told to stop"
    assert never["reason"] == "the box was told to stop before it started"
    state = rig.file("train", f"out/checkpoint-{train['step']}/trainer_state.json")
    assert json.loads(state)["step"] == train["step"]
    assert rig.manifests("train")[-1]["final"]
    assert rig.json("jobs/train/COMPLETE")["state"] == "cut"
    assert rig.json("boxes/l4/heartbeat.json")["drain_at"] < time.time()


@pytest.mark.slow
def test_a_deaf_job_of_a_box_that_is_told_to_stop_is_killed_in_time_for_the_flush(
    rig: Rig,
) -> None:
    rig.job("deaf", "trap '' TERM; echo kept >out/kept.txt; while :; do sleep 0.1; done")
    rig.spec |= {"drain_at": time.time() + 600, "poweroff_at": time.time() + 606}
    agent = rig.start()
    until(lambda: rig.manifests("deaf"))
    rig.cloud.s3.put_object(Bucket=BUCKET, Key=KEY, Body=b"")
    assert agent.wait(15) == 0
    assert rig.status("deaf")["reason"].startswith("told to stop, then killed")
    assert rig.file("deaf", "out/kept.txt") == b"kept\n"


@pytest.mark.slow
def test_a_second_agent_of_a_box_that_was_told_to_stop_says_so_too(rig: Rig) -> None:
    rig.job("deaf", "trap '' TERM; echo on; while :; do sleep 0.1; done")
    first = rig.start()
    until(lambda: rig.status("deaf").get("state") == "running")
    rig.cloud.s3.put_object(Bucket=BUCKET, Key=KEY, Body=b"")
    written = rig.root / "jobs" / "deaf" / "agent.json"
    until(lambda: json.loads(written.read_text())["told"])
    first.kill()
    first.wait()
    rig.run()
    assert (rig.status("deaf")["state"], rig.status("deaf")["reason"]) == ("cut", "told to stop")
