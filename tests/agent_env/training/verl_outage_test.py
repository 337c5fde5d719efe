"""The env server killed, restarted, frozen or too small, under verl's own worker."""

from __future__ import annotations

import asyncio
import json
import os
import random
import signal
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest

from agent_env.bundle import load_bundle
from agent_env.client import AgentEnv
from agent_env.client.local import LocalServer
from agent_env.training._functions import tool_text
from agent_env.training.verl import RolloutLost, rows
from tests.agent_env.conftest import COUNTER, eventually

pytestmark = [pytest.mark.verl, pytest.mark.filterwarnings("ignore")]

ROLLOUTS = 4


@pytest.fixture(scope="module")
def harness() -> Any:
    from tests.agent_env.training import verl_harness  # noqa: PLC0415

    return verl_harness


class Together:
    """Waits until so many rollouts are there, and then does it once."""

    def __init__(self, rollouts: int, what: Callable[[], Any]) -> None:
        self._expected = rollouts
        self._what = what
        self._done: asyncio.Event | None = None

    async def __call__(self) -> None:
        if self._done is None:
            self._done = asyncio.Event()
        self._expected -= 1
        if self._expected == 0:
            await asyncio.to_thread(self._what)
            self._done.set()
        await self._done.wait()


def active(url: str) -> int:
    with urlopen(f"{url}/capacity") as reply:
        return int(json.load(reply)["active_sessions"])


def disturbed(
    tmp_path: Path,
    harness: Any,
    server: LocalServer,
    before: dict[int, Callable[[], Awaitable[None]]],
) -> tuple[Any, list[Any]]:
    """The worker, and its four rollouts at once, each of three replies."""
    script = harness.Script(
        harness.call("add", n=4), harness.call("add", n=6), "done", before=before
    )
    worker = harness.made_worker(tmp_path, server.url, script)
    row = rows(AgentEnv(server.url), "train")[0]
    return worker, asyncio.run(worker.play_all([row] * ROLLOUTS))


def test_a_server_that_restarts_in_mid_rollout_costs_time_and_nothing_else(
    tmp_path: Path, harness: Any
) -> None:
    with LocalServer(COUNTER, max_sessions=ROLLOUTS, journal=tmp_path / "journal") as server:
        worker, outputs = disturbed(
            tmp_path, harness, server, {1: Together(ROLLOUTS, server.restart)}
        )
        assert [output.reward_score for output in outputs] == [1.0] * ROLLOUTS
        facts = [output.extra_fields["reward_extra_info"] for output in worker.outputs]
        assert all(fact["env/continued"] >= 1 for fact in facts)
        eventually(lambda: active(server.url) == 0)


def test_gridsims_expert_earns_under_verl_what_it_earns_without_though_the_server_dies(
    tmp_path: Path, harness: Any
) -> None:
    with LocalServer("gridsim", max_sessions=ROLLOUTS, journal=tmp_path / "journal") as server:
        env = AgentEnv(server.url)
        given = [*rows(env, "train")[:3], rows(env, "coarse-train")[0]]
        plays = [Played(env, row["extra_info"]) for row in given]
        expert = Expert(harness, plays, before=Together(ROLLOUTS, server.restart))
        worker = harness.made_worker(
            tmp_path, server.url, expert, sessions=ROLLOUTS, scores=("value",)
        )
        outputs = asyncio.run(worker.play_all(given))
        assert [output.reward_score for output in outputs] == [play.reward for play in plays]
        facts = [output.extra_fields["reward_extra_info"] for output in outputs]
        assert [fact["score/value"] for fact in facts] == [play.value for play in plays]
        assert all(fact["env/continued"] >= 1 for fact in facts)
    assert len({play.reward for play in plays}) == ROLLOUTS  # none is by chance another's


class Played:
    """What the bundle's expert does on a row of gridsim's, and what comes of it without verl."""

    def __init__(self, env: AgentEnv, told: dict[str, Any]) -> None:
        split, index = told["split"], told["index"]
        rng = random.Random(index)
        calls = load_bundle("gridsim").expert(env.tasks(split)[index], noise=0.1, rng=rng)
        with env.session() as session:
            session.reset(split=split, index=index)
            first, last = [session.call_tool(*call) for call in calls]
        self.first, self.second = calls
        self.reads = tool_text(first.model_extra or {})
        self.reward, self.value = last.reward, last.metadata["scores"]["value"]


class Expert:
    """A model that reads its day, and then does what was done on it; `before` its second call."""

    def __init__(self, harness: Any, plays: list[Played], *, before: Any) -> None:
        self._harness, self._plays, self._before = harness, plays, before
        self._tokenizer = harness.byte_tokenizer()

    async def generate(self, *, prompt_ids: list[int], **_: Any) -> Any:
        seen = self._tokenizer.decode(prompt_ids)
        name, arguments = self._plays[0].first
        if mine := [play for play in self._plays if play.reads in seen]:
            ((name, arguments),) = (play.second for play in mine)
            await self._before()
        ids = self._tokenizer.encode(self._harness.call(name, **arguments))
        return self._harness.TokenOutput(token_ids=ids, log_probs=[-0.5] * len(ids))


def test_without_a_journal_the_rollouts_are_lost_and_none_is_scored(
    tmp_path: Path, harness: Any
) -> None:
    with LocalServer(COUNTER, max_sessions=ROLLOUTS) as server:
        worker, outputs = disturbed(
            tmp_path, harness, server, {1: Together(ROLLOUTS, server.restart)}
        )
        assert [type(output) for output in outputs] == [RolloutLost] * ROLLOUTS
        assert worker.outputs == []
        assert active(server.url) == 0
        # The server is there again: what begins now is scored.
        row = rows(AgentEnv(server.url), "train")[0]
        worker.llm_client.before.clear()
        (output,) = asyncio.run(worker.play_all([row]))
        assert output.reward_score == 1.0


def test_a_server_that_accepts_and_never_answers_ends_the_rollout_by_its_own_deadline(
    tmp_path: Path, harness: Any
) -> None:
    with LocalServer(COUNTER, max_sessions=1) as server:
        stop = Together(1, lambda: os.kill(server.pid, signal.SIGSTOP))
        script = harness.Script(harness.call("add", n=4), before={1: stop})
        worker = harness.made_worker(tmp_path, server.url, script, rollout_s=0.5)
        row = rows(AgentEnv(server.url), "train")[0]
        began = time.monotonic()
        try:
            (lost,) = asyncio.run(worker.play_all([row]))
        finally:
            os.kill(server.pid, signal.SIGCONT)
        assert isinstance(lost, RolloutLost)
        assert "wasn't over within 0.5 s" in str(lost)
        assert time.monotonic() - began < 20


def test_more_rollouts_than_the_server_has_room_for_take_turns(
    tmp_path: Path, harness: Any
) -> None:
    most = 0

    async def look() -> None:
        nonlocal most
        most = max(most, await asyncio.to_thread(active, server.url))

    with LocalServer(COUNTER, max_sessions=2) as server:
        script = harness.Script(harness.call("add", n=10), "done", before={1: look})
        worker = harness.made_worker(tmp_path, server.url, script, sessions=2, patience=0.0)
        row = rows(AgentEnv(server.url), "train")[0]
        outputs = asyncio.run(worker.play_all([row] * 8))
        assert [output.reward_score for output in outputs] == [1.0] * 8
        assert most == 2
