"""SkyRL's own generator and baseline, a scripted model, and a real env server with bad luck."""

from __future__ import annotations

import asyncio
import json
import math
import os
import signal
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest

from agent_env import AgentEnv
from agent_env.client import _dial
from agent_env.client.local import LocalServer
from agent_env.errors import TooManyUnscored
from agent_env.training.job import JobFailed
from tests.agent_env.conftest import COUNTER, eventually
from tests.agent_env.training.skyrl_support import (
    Turn,
    advantages,
    batch,
    call,
    generated,
    generator,
    rows_of,
    totals,
)

pytestmark = pytest.mark.skyrl

COMMIT = call("commit")


@pytest.fixture(scope="module")
def server() -> Iterator[LocalServer]:
    with LocalServer(COUNTER, max_sessions=4) as running:
        yield running


@pytest.fixture
def row(server: LocalServer) -> dict[str, Any]:
    return rows_of(server.url, "train")[0]


def adds(number: int) -> list[Turn]:
    """Rollout k adds 2k + 2 of the 10 that are asked for."""
    return [call("add", n=2 * number + 2), COMMIT]


def sessions(server: LocalServer) -> int:
    with urlopen(f"{server.url}/capacity", timeout=5) as reply:
        return int(json.load(reply)["active_sessions"])


def free(server: LocalServer) -> bool:
    return sessions(server) == 0


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


def test_rewards_and_scores_are_the_environments_own(
    server: LocalServer, row: dict[str, Any]
) -> None:
    output = generated(generator(server.url, adds), batch(row, 4))
    assert totals(output) == pytest.approx([0.2, 0.4, 0.6, 0.8])
    assert output["rollout_metrics"]["score/near"] == pytest.approx(0.5)
    assert output["rollout_metrics"]["environment/tool_calls"] == 2
    assert output["rollout_metrics"]["env/unscored"] == 0
    assert free(server)


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


def test_a_plain_answer_ends_the_turn_and_the_next_prompt_is_a_users(server: LocalServer) -> None:
    made = generator(server.url, lambda _: [call("add", n=10), "Ten.", "Yes."])
    output = generated(made, batch(rows_of(server.url, "turns")[0], 1))
    assert "Are you sure?<|im_end|>\n<|im_start|>assistant" in made.inference_engine_client.seen[2]
    assert totals(output) == [1.0]
    assert output["rollout_metrics"]["env/turns"] == 2


def test_a_plain_answer_may_end_the_rollout_instead(server: LocalServer) -> None:
    made = generator(
        server.url,
        lambda _: [call("add", n=10), "Ten."],
        "generator.agent_env.answers_end_turns=false",
    )
    output = generated(made, batch(rows_of(server.url, "turns")[0], 1))
    assert totals(output) == [1.0]
    assert made.inference_engine_client.generated == 2


def test_calls_of_one_turn_are_carried_out_in_order_and_a_bad_one_is_the_models_fault(
    server: LocalServer, row: dict[str, Any]
) -> None:
    first = call("add", n=3) + "<tool_call>{add}</tool_call>" + call("sub") + call("add", n=4)
    made = generator(server.url, lambda _: [first, COMMIT])
    output = generated(made, batch(row, 1))
    assert totals(output) == pytest.approx([0.7])
    assert output["rollout_metrics"]["environment/tool_calls"] == 5
    assert output["rollout_metrics"]["environment/tool_failures"] == 2
    seen = made.inference_engine_client.seen[1]
    assert "isn't valid JSON" in seen
    assert seen.index("\n3\n") < seen.index("isn't valid JSON") < seen.index("\n7\n")


def test_calls_in_tags_are_typed_by_the_servers_own_tools(
    server: LocalServer, row: dict[str, Any]
) -> None:
    text = "<tool_call><function=add>\n<parameter=n>\n10\n</parameter></function></tool_call>"
    tags = {**row, "task": json.dumps(json.loads(row["task"]) | {"form": "xml"})}
    output = generated(generator(server.url, lambda _: [text, "Done."]), batch(tags, 1))
    assert totals(output) == [1.0]
    assert output["rollout_metrics"]["env/tool_failures"] == 0


def test_a_rollout_that_runs_out_of_turns_or_room_is_scored_as_it_stands(
    server: LocalServer, row: dict[str, Any]
) -> None:
    def script(_: int) -> list[Turn]:
        return [call("add", n=2, note="x" * 30)] * 4

    turns = generated(generator(server.url, script), batch(row, 1))
    room = len(turns["prompt_token_ids"][0]) + 10
    length = generated(generator(server.url, script, room=room), batch(row, 1))
    assert totals(turns) == pytest.approx([0.8])
    assert totals(length) == pytest.approx([0.2])
    assert length["rollout_metrics"]["environment/score/near"] == pytest.approx(0.2)
    assert free(server)


@pytest.mark.parametrize("option", ["batched=true", "step_wise_trajectories=true"])
def test_options_that_break_a_promise_are_refused(server: LocalServer, option: str) -> None:
    with pytest.raises(ValueError, match=option.partition("=")[0]):
        generator(server.url, adds, f"generator.{option}")
