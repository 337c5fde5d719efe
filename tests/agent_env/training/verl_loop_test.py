"""A rollout under verl's own worker: its tokens, its reward, and what it is refused for."""

from __future__ import annotations

import asyncio
import json
import math
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar
from urllib.request import urlopen

import pytest

from agent_env.client import AgentEnv
from agent_env.client.local import LocalServer
from agent_env.training._calls import BadCall
from agent_env.training.verl import PromptTooLong, RolloutLost, TooManyUnscored, rows
from agent_env.training.verl.peer import REFUSED
from agent_env.training.verl.progress import rollouts
from agent_env.training.verl.reading import Reader
from tests.agent_env.conftest import COUNTER, eventually

pytestmark = [pytest.mark.verl, pytest.mark.filterwarnings("ignore")]


@pytest.fixture(scope="module")
def server() -> Iterator[LocalServer]:
    with LocalServer(COUNTER, max_sessions=8) as running:
        yield running


@pytest.fixture(scope="module")
def env(server: LocalServer) -> AgentEnv:
    return AgentEnv(server.url)


@pytest.fixture(scope="module")
def harness() -> Any:
    """Takes ten seconds to import: verl does."""
    from tests.agent_env.training import verl_harness  # noqa: PLC0415

    return verl_harness


def active(server: LocalServer) -> int:
    with urlopen(f"{server.url}/capacity") as reply:
        return int(json.load(reply)["active_sessions"])


def played(worker: Any, row: dict[str, Any]) -> Any:
    """The rollout's output before it is padded."""
    asyncio.run(worker.play(row))
    return worker.outputs[-1]


def test_calls_reach_the_task_and_the_reward_is_its_own(
    tmp_path: Path, server: LocalServer, env: AgentEnv, harness: Any
) -> None:
    script = harness.Script(harness.call("add", n=6), harness.call("commit"))
    output = played(harness.made_worker(tmp_path, server.url, script), rows(env, "train")[0])
    assert output.reward_score == pytest.approx(0.6)
    facts = output.extra_fields["reward_extra_info"]
    assert (facts["env/tool_calls"], facts["env/unscored"]) == (2.0, 0.0)
    assert facts["score/near"] == pytest.approx(0.6)
    assert (output.extra_fields["min_global_steps"], output.extra_fields["max_global_steps"]) == (
        7,
        8,
    )
    eventually(lambda: active(server) == 0)


def test_what_was_sampled_is_fed_back_as_it_was_and_only_that_is_trained_on(
    tmp_path: Path, server: LocalServer, env: AgentEnv, harness: Any
) -> None:
    note = "é🙂 <think></think></tool_call><|im_end|>"
    odd = "Fine… then" + harness.call("add", n=4) + harness.call("add", n=1, note=note)
    script = harness.Script(odd, "no call, in plain words", harness.call("commit"))
    worker = harness.made_worker(tmp_path, server.url, script)
    output = played(worker, rows(env, "turns")[0])
    (turns,) = script.asked.values()
    assert len(turns) == 3
    assert f"5 {note}" in worker.tokenizer.decode(turns[1][0])
    for (prompt, sampled), (next_prompt, _) in pairwise(turns):
        assert next_prompt[: len(prompt) + len(sampled)] == prompt + sampled
    mine = [id_ for id_, own in zip(output.response_ids, output.response_mask, strict=True) if own]
    assert mine == [id_ for _, sampled in turns for id_ in sampled]
    assert output.response_mask[-1] == 1
    own = [logprob == -0.5 for logprob in output.response_logprobs]
    assert own == [bool(mark) for mark in output.response_mask]


def test_plain_text_ends_a_turn_and_the_next_prompt_is_told(
    tmp_path: Path, server: LocalServer, env: AgentEnv, harness: Any
) -> None:
    script = harness.Script(harness.call("add", n=10), "Ten.", "Yes, ten.")
    worker = harness.made_worker(tmp_path, server.url, script)
    output = played(worker, rows(env, "turns")[0])
    assert "Are you sure?" in worker.tokenizer.decode(output.response_ids)
    assert "end_turn" not in worker.tokenizer.decode(output.prompt_ids)
    assert output.reward_score == 1.0
    assert output.extra_fields["reward_extra_info"]["env/turns"] == 2.0


def test_text_is_no_answer_where_the_loop_file_says_so(
    tmp_path: Path, server: LocalServer, env: AgentEnv, harness: Any
) -> None:
    script = harness.Script("Ten.")
    worker = harness.made_worker(tmp_path, server.url, script, text_ends_turn=False)
    output = played(worker, rows(env, "turns")[0])
    assert "Are you sure?" not in worker.tokenizer.decode(output.response_ids)
    assert "end_turn" in worker.tokenizer.decode(output.prompt_ids)
    assert output.reward_score == 0.0  # nothing was added, and the task says what that is worth
    assert output.extra_fields["reward_extra_info"]["env/turns"] == 0.0


def test_a_call_that_cant_be_read_is_answered_and_the_rollout_goes_on(
    tmp_path: Path, server: LocalServer, env: AgentEnv, harness: Any
) -> None:
    bad = '<tool_call>{"name": "add", "arguments": {"n": </tool_call>'
    half = harness.call("add", n=1, note="\ud83d")  # no tokenizer takes half a character back
    script = harness.Script(bad, harness.call("nosuch"), half, harness.call("add", n=10), "done")
    worker = harness.made_worker(tmp_path, server.url, script)
    output = played(worker, rows(env, "train")[0])
    text = worker.tokenizer.decode(output.response_ids)
    assert "the tool call isn't valid JSON" in text
    assert "nosuch" in text.split("</tool_response>")[1]
    assert "half of a surrogate pair" in text
    assert output.reward_score == 1.0
    assert output.extra_fields["reward_extra_info"]["env/tool_failures"] == 3.0


def test_a_tools_text_arrives_uncut(
    tmp_path: Path, server: LocalServer, env: AgentEnv, harness: Any
) -> None:
    long = "\n".join(f"{line:>4} words of a long note" for line in range(100))
    script = harness.Script(harness.call("add", n=10, note=long), "done")
    run = {"response_tokens": 20_000}
    worker = harness.made_worker(tmp_path, server.url, script, run)
    output = played(worker, rows(env, "train")[0])
    assert f"10 {long}\n</tool_response>" in worker.tokenizer.decode(output.response_ids)


def test_a_rollout_stops_where_the_next_text_has_no_room_and_is_scored(
    tmp_path: Path, server: LocalServer, env: AgentEnv, harness: Any
) -> None:
    script = harness.Script(harness.call("add", n=10, note="x" * 300), "done")
    worker = harness.made_worker(tmp_path, server.url, script, {"response_tokens": 500})
    output = played(worker, rows(env, "train")[0])
    assert len(output.response_ids) <= 500
    assert set(output.response_mask) == {1}
    assert output.reward_score == 1.0


def test_text_that_was_cut_by_the_room_is_no_answer(
    tmp_path: Path, server: LocalServer, env: AgentEnv, harness: Any
) -> None:
    script = harness.Script("I think that the answer is surely ten.")
    worker = harness.made_worker(tmp_path, server.url, script, {"response_tokens": 12})
    output = played(worker, rows(env, "turns")[0])
    assert len(output.response_ids) == 12
    assert output.extra_fields["reward_extra_info"]["env/turns"] == 0.0


def test_calls_after_the_last_reply_arent_executed(
    tmp_path: Path, server: LocalServer, env: AgentEnv, harness: Any
) -> None:
    script = harness.Script(harness.call("add", n=4))
    worker = harness.made_worker(tmp_path, server.url, script, {"replies": 3})
    output = played(worker, rows(env, "train")[0])
    assert output.extra_fields["reward_extra_info"]["env/tool_calls"] == 2.0
    assert output.reward_score == pytest.approx(0.8)


def test_a_prompt_over_the_limit_is_refused_not_cut(
    tmp_path: Path, server: LocalServer, env: AgentEnv, harness: Any
) -> None:
    worker = harness.made_worker(tmp_path, server.url, harness.Script("x"), {"prompt_tokens": 300})
    with pytest.raises(PromptTooLong, match=r"over data\.max_prompt_length=300"):
        played(worker, rows(env, "train")[0])
    eventually(lambda: active(server) == 0)


def test_a_reply_without_a_token_is_a_lost_rollout_not_an_empty_one(
    tmp_path: Path, server: LocalServer, env: AgentEnv, harness: Any
) -> None:
    worker = harness.made_worker(tmp_path, server.url, harness.Script(""))
    with pytest.raises(RolloutLost, match="no token"):
        played(worker, rows(env, "train")[0])
    assert worker.outputs == []


def test_every_rollout_tells_the_same_facts_through_verls_own_padding(
    tmp_path: Path, server: LocalServer, env: AgentEnv, harness: Any
) -> None:
    script = harness.Script(harness.call("add", n=10), "done")
    worker = harness.made_worker(tmp_path, server.url, script, scores=("near", "far"))
    given = [rows(env, "train")[0], rows(env, "turns")[1]]
    batch = worker._postprocess(asyncio.run(worker.play_all(given)))
    keys = batch.meta_info["reward_extra_keys"]
    assert {"env/unscored", "env/tool_calls", "env/waited_s", "score/near"} <= set(keys)
    assert "reward" not in keys
    assert all(batch.non_tensor_batch[key].dtype == float for key in keys)
    assert [math.isnan(value) for value in batch.non_tensor_batch["score/far"]] == [True, True]
    assert batch.batch["rm_scores"].sum(-1).tolist() == pytest.approx([1.0, 0.5])


def test_a_rollout_that_is_cancelled_gives_its_session_back(
    tmp_path: Path, server: LocalServer, env: AgentEnv, harness: Any
) -> None:
    tasks: list[asyncio.Task[Any]] = []

    async def cancel() -> None:
        tasks[0].cancel()
        await asyncio.sleep(0)

    async def main() -> None:
        tasks.append(asyncio.ensure_future(worker.play(rows(env, "train")[0])))
        await tasks[0]

    script = harness.Script(harness.call("add", n=1), before={1: cancel})
    worker = harness.made_worker(tmp_path, server.url, script)
    with pytest.raises(asyncio.CancelledError):
        asyncio.run(main())
    assert active(server) == 0


def test_after_too_many_lost_rollouts_no_further_one_is_begun(
    tmp_path: Path, server: LocalServer, env: AgentEnv, harness: Any
) -> None:
    script = harness.Script(harness.call("crash"))
    told = {"unscored_limit": 0.5, "unscored_rollouts": 2}
    record = tmp_path / "rollouts.jsonl"
    worker = harness.made_worker(tmp_path, server.url, script, record=str(record), **told)
    row = rows(env, "train")[0]
    for _ in range(2):
        with pytest.raises(RolloutLost, match=r"EpisodeFailed|EnvError"):
            played(worker, row)
    asked = len(script.asked)
    with pytest.raises(TooManyUnscored, match="100% of the last 2 rollouts are unscored"):
        played(worker, row)
    assert len(script.asked) == asked
    lines = [json.loads(line) for line in record.read_text().splitlines()]
    assert [(line["step"], line["reward"], bool(line["lost"])) for line in lines] == [
        (7, None, True)
    ] * 3
    assert lines[-1]["lost"].startswith(REFUSED)


def test_a_row_that_names_no_task_is_an_unscored_rollout_and_counts(
    tmp_path: Path, server: LocalServer, env: AgentEnv, harness: Any
) -> None:
    record = tmp_path / "rollouts.jsonl"
    told = {"unscored_limit": 0.5, "unscored_rollouts": 1}
    script = harness.Script("x")
    worker = harness.made_worker(tmp_path, server.url, script, record=str(record), **told)
    row = rows(env, "train")[0] | {"extra_info": None}
    with pytest.raises(RolloutLost, match="names no split and index"):
        played(worker, row)
    (lost,) = rollouts(record, "train", 7)
    assert (lost.reward, "names no split" in str(lost.lost)) == (None, True)
    with pytest.raises(TooManyUnscored, match="names no split and index"):
        played(worker, row)
    assert script.asked == {}


def test_a_model_server_that_gave_up_isnt_called_the_rollouts_deadline(
    tmp_path: Path, server: LocalServer, env: AgentEnv, harness: Any
) -> None:
    async def give_up() -> None:
        raise TimeoutError("no engine answered")

    script = harness.Script("x", before={0: give_up})
    with pytest.raises(RolloutLost, match="TimeoutError: no engine answered"):
        played(harness.made_worker(tmp_path, server.url, script), rows(env, "train")[0])


@pytest.mark.parametrize(
    ("found", "said"),
    [
        (ValueError("unexpected end"), "the tool call can't be read: unexpected end"),
        ('{"n": NaN}', "the arguments of add aren't valid JSON"),
    ],
)
def test_what_verls_own_parser_stumbles_over_is_the_models_fault(
    harness: Any, found: Exception | str, said: str
) -> None:
    class Parser:
        stop_token_ids: ClassVar[list[int]] = []

        async def extract_tool_calls(self, _ids: list[int], _tools: None) -> Any:
            if isinstance(found, Exception):
                raise found
            return "", [SimpleNamespace(name="add", arguments=found)]

    reader = Reader("glm", harness.byte_tokenizer(), Parser())
    (call,) = asyncio.run(reader.read([65], [])).calls
    assert isinstance(call, BadCall)
    assert call.why.startswith(said)
