"""A spot instance that is being taken away: all of its two minutes are used, and no more."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from orchestrator.box.actions import Action, AskSpot, Mark, Stop
from orchestrator.box.body import Body
from orchestrator.box.deadline import Deadlines
from orchestrator.box.decide import SPOT_POLL_S, decide
from orchestrator.box.fold import fold
from orchestrator.box.inputs import outcome
from orchestrator.box.lanes import Outcome
from orchestrator.box.spec import parse_spec
from orchestrator.box.state import State
from orchestrator.box.store import Store
from orchestrator.box.verdict import verdict

from .rig import BUCKET, PREFIX, REGION, Cloud, Rig, box_spec, until

NOW, DRAIN, OFF = 1000.0, 9000.0, 9900.0
JOB = {"needs": [], "inputs": {}, "results": ["out"], "retries": 1}


class Imds(ThreadingHTTPServer):
    """The metadata service of a box, version 2, as far as a spot notice goes."""

    notice = ""

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"

    def give(self, seconds: float) -> None:
        at = datetime.fromtimestamp(time.time() + seconds, UTC)
        self.notice = json.dumps(
            {"action": "terminate", "time": at.strftime("%Y-%m-%dT%H:%M:%SZ")}
        )


class Answers(BaseHTTPRequestHandler):
    server: Imds

    def do_PUT(self) -> None:
        self._answer(200, "token")

    def do_GET(self) -> None:
        asked = self.path == "/latest/meta-data/spot/instance-action"
        assert self.headers["X-aws-ec2-metadata-token"] == "token"
        if asked and self.server.notice:
            self._answer(200, self.server.notice)
        else:
            self._answer(404, "")

    def _answer(self, status: int, text: str) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text.encode())

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def imds() -> Iterator[Imds]:
    server = Imds(("127.0.0.1", 0), Answers)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield server
    server.shutdown()
    server.server_close()


def box(**changes: object) -> State:
    jobs = [JOB | {"name": "a"}, JOB | {"name": "b"}]
    spec = box_spec(drain_at=DRAIN, poweroff_at=OFF, spot=True, jobs=jobs)
    state = State.of(parse_spec(spec | changes))
    state.reported_at = state.listened_at = 9e9
    job = state.jobs["a"]
    job.state, job.attempt, job.prepared, job.alive = "running", 1, True, True
    job.sync_began_at = 9e9
    state.spot_asked_at = 0.0
    return state


def at(state: State, now: float) -> list[Action]:
    return decide(state, now)


def test_a_spot_box_asks_every_five_seconds_also_while_it_drains_and_others_never() -> None:
    state = box()
    assert AskSpot() not in at(state, NOW)
    state.steady = SPOT_POLL_S
    assert AskSpot() in at(state, NOW)
    assert AskSpot() in at(state, DRAIN + 1)
    state.busy = frozenset({"spot"})
    assert AskSpot() not in at(state, NOW)
    other = box(spot=False)
    other.steady = 1e6
    assert AskSpot() not in at(other, NOW)


def test_a_notice_ends_the_trainer_softly_at_once_and_hard_half_way() -> None:
    state = box()
    fold(state, Outcome(AskSpot(), NOW + 120, None), NOW)
    assert at(state, NOW) == [
        Stop("a", hard=False, why="spot notice"),
        Mark("b", "cut", "spot notice before it started"),
    ]
    job = state.jobs["a"]
    job.stops("spot notice", 0, frozen=False, hard=False)
    state.jobs["b"].state = state.jobs["b"].outcome = "cut"
    assert at(state, NOW + 59) == []
    assert at(state, NOW + 60) == [Stop("a", hard=True, why="spot notice")]
    assert verdict(job, 0) == ("cut", "spot notice")
    assert state.phase(NOW + 104) == "draining"
    assert state.phase(NOW + 105) == "off"


@pytest.mark.parametrize("value", [None, "soon"])
def test_only_a_time_is_a_notice(value: object) -> None:
    state = box()
    before = state.deadlines
    fold(state, Outcome(AskSpot(), value, None), NOW)
    assert (state.deadlines, state.told) == (before, "")


@pytest.mark.parametrize(
    "taken_at, poweroff_at",
    [
        (NOW + 120, NOW + 120),
        (NOW + 40, NOW + 40),
        (NOW - 7200, NOW + 110),
        (NOW + 7200, NOW + 110),
        (NOW, NOW + 110),
    ],
)
def test_a_notice_read_by_a_wrong_clock_still_leaves_the_time_to_save(
    taken_at: float, poweroff_at: float
) -> None:
    told = Deadlines(DRAIN, OFF).by_notice(taken_at, NOW)
    assert (told.drain_at, told.poweroff_at) == (NOW, poweroff_at)
    assert NOW < told.kill_at < told.flush_by < told.poweroff_at


def test_a_notice_during_a_drain_shortens_it_and_never_lengthens_it() -> None:
    begun = Deadlines(NOW - 100, NOW + 800).by_notice(NOW + 120, NOW)
    assert (begun.drain_at, begun.kill_at, begun.flush_by) == (NOW - 100, NOW + 60, NOW + 105)
    nearly_over = Deadlines(NOW - 800, NOW + 100)
    assert nearly_over.by_notice(NOW + 120, NOW) == nearly_over
    assert begun.from_now(NOW + 5) == begun


def test_what_the_metadata_service_says_is_read_as_a_time_or_as_nothing(
    imds: Imds, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_EC2_METADATA_SERVICE_ENDPOINT", imds.url)
    assert Body().spot_notice() is None
    imds.notice = '{"action": "terminate", "time": "2026-11-29T12:00:00Z"}'
    assert Body().spot_notice() == datetime(2026, 11, 29, 12, tzinfo=UTC).timestamp()
    for nonsense in ("null", "[]", "{}", '{"time": null}', '{"time": "soon"}', "no json"):
        imds.notice = nonsense
        assert Body().spot_notice() is None
    monkeypatch.setenv("AWS_EC2_METADATA_SERVICE_ENDPOINT", "http://127.0.0.1:9")
    assert Body().spot_notice() is None


def test_another_box_waits_for_a_job_that_was_taken_away_until_somebody_gives_it_up(
    cloud: Cloud, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", cloud.url)
    store = Store(BUCKET, REGION, PREFIX, fast=True)

    def says(state: str, reason: str) -> dict[str, str]:
        status = {"state": state, "reason": reason}
        store.put("jobs/far/status.json", json.dumps(status).encode())
        return status

    taken = says("cut", "spot notice: last words")
    assert outcome(store, "far") == "waiting"
    store.put("jobs/far/COMPLETE", json.dumps({"state": "cut", "status": taken}).encode())
    assert outcome(store, "far") == "waiting"
    says("running", "")
    assert outcome(store, "far") == "running"
    says("cut", "its box ended: Server.SpotInstanceTermination, and no retry is left")
    assert outcome(store, "far") == "cut"
    store.put("jobs/far/COMPLETE", json.dumps({"state": "done", "status": {}}).encode())
    assert outcome(store, "far") == "done"


@pytest.mark.slow
def test_a_trainer_on_a_box_that_is_taken_away_checkpoints_and_loses_no_step(
    rig: Rig, imds: Imds
) -> None:
    rig.trainer("train", steps=9999)
    rig.job("never", "true", needs=["train"])
    now = time.time()
    rig.spec |= {"spot": True, "loss_bound_s": 600}
    rig.spec |= {"drain_at": now + 600, "poweroff_at": now + 900}
    rig.extra_env["AWS_EC2_METADATA_SERVICE_ENDPOINT"] = imds.url
    agent = rig.start()
    until(lambda: rig.status("train").get("step"))
    imds.give(30)
    assert agent.wait(40) == 0
    train, never = rig.status("train"), rig.status("never")
    assert (train["state"], never["state"]) == ("cut", "cut")
    assert train["reason"].startswith("spot notice")
    assert never["reason"] == "spot notice before it started"
    state = rig.file("train", f"out/checkpoint-{train['step']}/trainer_state.json")
    assert json.loads(state)["step"] == train["step"]
    assert rig.json("jobs/train/COMPLETE")["state"] == "cut"
    assert rig.json("boxes/l4/heartbeat.json")["phase"] == "off"


@pytest.mark.slow
def test_a_deaf_trainer_of_a_box_that_is_taken_away_is_killed_half_way(
    rig: Rig, imds: Imds
) -> None:
    rig.job("deaf", "trap '' TERM; echo kept >out/kept.txt; while :; do sleep 0.1; done")
    now = time.time()
    rig.spec |= {"spot": True, "drain_at": now + 600, "poweroff_at": now + 900}
    rig.extra_env["AWS_EC2_METADATA_SERVICE_ENDPOINT"] = imds.url
    agent = rig.start()
    until(lambda: rig.status("deaf").get("state") == "running")
    imds.give(12)
    given = time.time()
    assert agent.wait(20) == 0
    status = rig.status("deaf")
    assert status["reason"].startswith("spot notice, then killed")
    assert given + 5 <= status["ended_at"]
    assert float(rig.off.read_text()) <= given + 13
    assert rig.file("deaf", "out/kept.txt") == b"kept\n"
