"""SkyRL's own generator and baseline, a scripted model, and a real env server with bad luck."""

from __future__ import annotations

import asyncio
import math
import os
import signal
import threading
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from agent_env import AgentEnv
from agent_env.client import _dial
from agent_env.client.local import LocalServer
from agent_env.errors import TooManyUnscored
from agent_env.training.job import JobFailed
from tests.agent_env.conftest import COUNTER, eventually
from tests.agent_env.training.skyrl_support import (
    COMMIT,
    Turn,
    adds,
    advantages,
    batch,
    call,
    free,
    generated,
    generator,
    rows_of,
    totals,
)

pytestmark = pytest.mark.skyrl


def together(number: int, then: Callable[[], None]) -> Callable[[], Awaitable[str]]:
    """A turn that waits for `number` rollouts to be at it, and for what then happens; once."""
    arrived: list[asyncio.Future[None]] = []

    async def turn() -> str:
        mine = asyncio.get_running_loop().create_future()
        arrived.append(mine)
        if len(arrived) == number:
            await asyncio.to_thread(then)
            for one in arrived:
                one.set_result(None)
        await mine
        return COMMIT

    return turn


def test_a_server_killed_in_mid_rollout_costs_time_and_no_score(tmp_path: Path) -> None:
    with LocalServer(COUNTER, max_sessions=4, journal=tmp_path) as server:
        restarted = together(4, server.restart)
        made = generator(server.url, lambda number: [adds(number)[0], restarted])
        output = generated(made, batch(rows_of(server.url, "train")[0], 4))
        assert totals(output) == pytest.approx([0.2, 0.4, 0.6, 0.8])
        assert output["rollout_metrics"]["env/continued"] == 4
        assert output["rollout_metrics"]["env/unscored"] == 0
        eventually(lambda: free(server))


def test_rollouts_that_begin_while_the_server_restarts_wait_for_it() -> None:
    with LocalServer(COUNTER, max_sessions=4) as server:
        made = generator(server.url, adds)
        given = batch(rows_of(server.url, "train")[0], 4)
        server.kill()
        back = threading.Thread(target=server.restart)
        back.start()
        output = generated(made, given)
        back.join()
        assert totals(output) == pytest.approx([0.2, 0.4, 0.6, 0.8])


def test_what_a_restart_loses_teaches_nothing_and_shifts_no_siblings_baseline() -> None:
    with LocalServer(COUNTER, max_sessions=4) as server:
        restarted = together(2, server.restart)

        async def gone() -> str:
            await made.inference_engine_client.finished(2)
            return await restarted()

        made = generator(
            server.url, lambda number: adds(number) if number < 2 else [adds(number)[0], gone]
        )
        output = generated(made, batch(rows_of(server.url, "train")[0], 4))
        assert totals(output)[:2] == pytest.approx([0.2, 0.4])
        assert advantages(output) == pytest.approx([-0.1, 0.1, 0, 0])
        assert [sum(mask) > 0 for mask in output["loss_masks"]] == [True, True, False, False]
        assert output["stop_reasons"] == ["stop", "stop", "unscored", "unscored"]
        assert all(math.isfinite(p) for row in output["rollout_logprobs"] for p in row)
        assert output["rollout_metrics"]["env/unscored"] == 0.5
        assert output["rollout_metrics"]["env/reward_mean"] == pytest.approx(0.3)
        eventually(lambda: free(server))


def test_more_rollouts_than_sessions_and_threads_take_turns() -> None:
    with LocalServer(COUNTER, max_sessions=2) as server:
        patience = "generator.agent_env.patience_s=40"
        made = generator(server.url, lambda number: adds(number % 4), patience)
        began = time.monotonic()
        output = generated(made, batch(rows_of(server.url, "train")[0], 8))
        assert time.monotonic() - began < 20
        assert output["rollout_metrics"]["env/unscored"] == 0
        assert free(server)


def test_an_environment_that_breaks_costs_one_rollout_and_leaks_no_session(
    server: LocalServer, row: dict[str, Any]
) -> None:
    def script(number: int) -> list[Turn]:
        return [call("add", n=2), call("crash")] if number == 3 else adds(number)

    output = generated(generator(server.url, script), batch(row, 4))
    assert totals(output) == pytest.approx([0.2, 0.4, 0.6, 0.4])
    assert advantages(output) == pytest.approx([-0.2, 0, 0.2, 0])
    assert sum(output["loss_masks"][3]) == 0
    assert free(server)


def test_a_frozen_server_ends_a_rollout_by_its_own_deadline(row: dict[str, Any]) -> None:
    with LocalServer(COUNTER, max_sessions=4) as server:
        frozen = together(2, lambda: os.kill(server.pid, signal.SIGSTOP))
        made = generator(
            server.url,
            lambda number: [call("add", n=1), frozen],
            "generator.agent_env.deadline_s=1",
        )
        began = time.monotonic()
        try:
            output = generated(made, batch(row, 2))
        finally:
            os.kill(server.pid, signal.SIGCONT)
        assert time.monotonic() - began < 20
        assert output["rollout_metrics"]["env/unscored"] == 1
        assert totals(output) == [0, 0]
        assert sum(map(sum, output["loss_masks"])) == 0
        eventually(lambda: free(server), 15)


def test_a_model_that_never_answers_ends_by_the_deadline_too(
    server: LocalServer, row: dict[str, Any]
) -> None:
    async def forever() -> str:
        await asyncio.Event().wait()
        return ""

    def script(number: int) -> list[Turn]:
        return [call("add", n=2), forever] if number == 0 else adds(number)

    made = generator(server.url, script, "generator.agent_env.deadline_s=3")
    output = generated(made, batch(row, 3))
    assert advantages(output) == pytest.approx([0, -0.1, 0.1])
    assert free(server)


def test_a_batch_that_is_cancelled_leaves_no_session(
    server: LocalServer, row: dict[str, Any]
) -> None:
    async def run() -> None:
        reached = asyncio.Event()

        async def forever() -> str:
            reached.set()
            await asyncio.Event().wait()
            return ""

        made = generator(server.url, lambda _: [call("add", n=2), forever])
        task = asyncio.create_task(made.generate(batch(row, 6), disable_tqdm=True))
        await reached.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(run())
    assert free(server)


def test_a_run_that_is_started_again_has_its_dead_selfs_sessions(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with LocalServer(COUNTER, max_sessions=2) as server:
        row = rows_of(server.url, "train")[0]
        dead = [AgentEnv(server.url, owner="run/learn").session() for _ in range(2)]
        for session in dead:
            session.reset(split="train", index=0)
        # As in a process that begins later.
        monkeypatch.setattr(_dial, "RUN", _dial.RUN + 1)
        made = generator(server.url, adds, "generator.agent_env.owner=run/learn")
        assert totals(generated(made, batch(row, 2))) == pytest.approx([0.2, 0.4])


def test_a_prompt_without_room_is_refused_before_anything_is_generated(
    server: LocalServer, row: dict[str, Any]
) -> None:
    made = generator(server.url, adds, room=50)
    with pytest.raises(JobFailed, match=r"tokens, generator.max_input_length is 50: raise it"):
        generated(made, batch(row, 4))
    assert made.inference_engine_client.generated == 0


def test_a_run_that_loses_too_much_ends_and_says_why(
    server: LocalServer, row: dict[str, Any]
) -> None:
    limits = ("generator.agent_env.max_unscored=0.5", "generator.agent_env.judged_rollouts=4")
    made = generator(server.url, lambda _: [call("crash")], *limits)
    with pytest.raises(TooManyUnscored, match=r"100% of the last 4 .* limit is 50%: .*blew up"):
        generated(made, batch(row, 4))
    assert free(server)


def test_a_group_that_is_lost_as_a_whole_counts_as_nothing_but_lost(
    server: LocalServer, row: dict[str, Any]
) -> None:
    output = generated(generator(server.url, lambda _: [call("crash")]), batch(row, 2))
    assert totals(output) == [0, 0]
    assert sum(map(sum, output["loss_masks"])) == 0
    assert output["rollout_metrics"]["env/unscored"] == 1
    assert "env/reward_mean" not in output["rollout_metrics"]


def test_a_lost_rollout_doesnt_pull_an_evals_mean_down(
    server: LocalServer, row: dict[str, Any]
) -> None:
    given = batch(row, 2, "eval")
    for number, one in enumerate(given["trajectory_ids"]):
        one.instance_id = str(number)
    script = {0: [call("add", n=8), COMMIT], 1: [call("crash")]}
    output = generated(generator(server.url, lambda n: script[n]), given)
    assert totals(output) == pytest.approx([0.8, 0.8])
