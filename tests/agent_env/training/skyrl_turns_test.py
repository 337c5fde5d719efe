"""A model under SkyRL: what it says reaches the environment, whose words come back to it."""

from __future__ import annotations

import json
from typing import Any

import pytest

from agent_env.client.local import LocalServer
from tests.agent_env.training.skyrl_support import (
    COMMIT,
    Turn,
    adds,
    batch,
    call,
    free,
    generated,
    generator,
    rows_of,
    totals,
)

pytestmark = pytest.mark.skyrl


def test_rewards_and_scores_are_the_environments_own(
    server: LocalServer, row: dict[str, Any]
) -> None:
    output = generated(generator(server.url, adds), batch(row, 4))
    assert totals(output) == pytest.approx([0.2, 0.4, 0.6, 0.8])
    assert output["rollout_metrics"]["score/near"] == pytest.approx(0.5)
    assert output["rollout_metrics"]["environment/tool_calls"] == 2
    assert output["rollout_metrics"]["env/unscored"] == 0
    assert free(server)


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
