"""An attempt ends with a score, or without one for a reason; nothing that goes wrong is a 0."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from agent_env import AgentEnv
from agent_env.client.local import LocalServer
from agent_env.evaluation.history import Call, History, Move, Policy
from agent_env.evaluation.play import MAX_TURNS, play
from agent_env.evaluation.results import Row
from agent_env.evaluation.run import missing, play_all
from agent_env.types import END_TURN, Observation

COUNTER = Path(__file__).parents[1] / "counter"

Said = str | tuple[str, dict[str, Any]] | Call

PlaysOut = Callable[..., Row]


def says(*moves: Said) -> Policy:
    """A policy that makes these moves in turn, whatever it is told."""

    def policy(history: History) -> Move:
        said = moves[sum(each["role"] == "assistant" for each in history.messages)]
        if isinstance(said, str):
            return Move(text=said)
        call = said if isinstance(said, Call) else Call(name=said[0], arguments=said[1])
        return Move(calls=(call,))

    return policy


@pytest.fixture
def env(server: LocalServer) -> Iterator[AgentEnv]:
    with AgentEnv(server.url) as opened:
        yield opened


@pytest.fixture
def played(env: AgentEnv) -> PlaysOut:
    def one(policy: Policy, *, split: str = "eval", index: int = 0, max_calls: int = 20) -> Row:
        (attempt,) = missing(env.tasks(split)[index : index + 1], 1, 0, ())
        tools = tuple(env.tools(split))
        attempt = replace(attempt, seed=7)
        return play(env.session(), attempt, policy, tools=tools, max_calls=max_calls)

    return one


def test_calls_are_scored_and_the_conversation_is_kept(played: PlaysOut) -> None:
    row = played(says(("add", {"n": 9}), ("commit", {})))
    assert (row.status, row.reward, row.scores) == ("scored", 0.9, {"near": 0.9})
    assert (row.turns, row.tool_calls, row.tool_failures, len(row.hashes)) == (0, 2, 0, 3)
    assert [message["role"] for message in row.messages] == [
        "system",
        "user",
        "assistant",
        "tool",
        "assistant",
        "tool",
    ]
    assert row.messages[1]["content"] == "Count to 10. Seed 7."
    assert row.messages[3] == {"role": "tool", "name": "add", "content": "9"}


def test_plain_text_ends_a_turn_and_the_next_prompt_is_the_users(played: PlaysOut) -> None:
    row = played(says(("add", {"n": 10}), "ten", "yes"), split="turns")
    assert (row.reward, row.turns, row.tool_calls) == (1.0, 2, 1)
    assert [message["content"] for message in row.messages[-3:]] == ["ten", "Are you sure?", "yes"]


def test_what_the_policy_did_wrong_is_told_to_it_and_scored(played: PlaysOut) -> None:
    fault = Call(name="add", arguments={}, fault="error: add: no JSON")
    row = played(says(("ad", {}), ("add", {"n": "x"}), ("add", {"n": 5000}), fault, "?"))
    assert (row.status, row.reward, row.tool_calls, row.tool_failures) == ("scored", 0.0, 4, 4)
    told = [message["content"] for message in row.messages if message["role"] == "tool"]
    assert told[0] == "error: there is no tool 'ad'; did you mean 'add'?"
    assert told[1].startswith("error: add: n: ")
    assert told[2:] == ["error: at most 1000 at a time", "error: add: no JSON"]


def test_calls_after_the_end_of_the_episode_are_not_made(played: PlaysOut) -> None:
    two = Move(calls=(Call(name="commit", arguments={}), Call(name="crash", arguments={})))
    row = played(lambda _: two)
    assert (row.status, row.tool_calls, row.reward) == ("scored", 1, 0.0)


def test_an_environment_that_breaks_leaves_the_attempt_unscored(played: PlaysOut) -> None:
    row = played(says(("add", {"n": 10}), ("crash", {})))
    assert (row.status, row.reward, row.scores) == ("unscored", None, {})
    assert (row.code, "RuntimeError" in str(row.error)) == ("EnvError", True)


def test_a_policy_that_breaks_leaves_the_attempt_unscored(played: PlaysOut) -> None:
    row = played(says(("add", {"n": 10})))  # it has no second move
    assert (row.reward, row.code, row.error) == (None, "IndexError", "tuple index out of range")
    assert row.messages[-1]["content"] == "10"


class Scalar:
    """A number as NumPy and torch have it."""

    def tolist(self) -> int:
        return 9


def test_the_numbers_of_numpy_are_numbers(played: PlaysOut) -> None:
    numpy = pytest.importorskip("numpy")
    for nine in (numpy.int64(9), numpy.array(9), Scalar()):
        row = played(says(("add", {"n": nine}), (numpy.str_("commit"), {})))
        assert (row.reward, row.error) == (0.9, None)
        call = row.messages[2]["tool_calls"][0]["function"]
        assert (call, type(call["arguments"]["n"])) == (
            {"name": "add", "arguments": {"n": 9}},
            int,
        )


@pytest.mark.parametrize(
    "said, complaint",
    [
        (("add", {"n": object()}), "the arguments of add can't be sent as JSON: <object"),
        (("add", {"n": float("nan")}), "the arguments of add can't be sent as JSON: Out of range"),
        (("add", {"n": {1, 2}}), "{1, 2} is set"),
        (("add", ["n"]), "the arguments of add are ['n'], not a dict"),
        ((3, {}), "a tool's name is 3, not a str"),
        ("half \ud800", "the text can't be sent as JSON"),
    ],
)
def test_what_can_not_be_sent_leaves_the_attempt_unscored(
    played: PlaysOut, said: Any, complaint: str
) -> None:
    row = played(says(said))
    assert (row.reward, row.code, complaint in str(row.error)) == (None, "PolicyError", True)
    assert row.messages[-1]["role"] == "user"
    assert row.model_dump_json()


def _exits(_: History) -> Move:
    sys.exit(3)


def _spoils(history: History) -> Move:
    history.messages.append({"role": "user", "content": object()})
    return Move()


def _spoils_and_raises(history: History) -> Move:
    history.hashes = [object()]  # type: ignore[list-item]
    raise ValueError("half \ud800")


@pytest.mark.parametrize(
    "policy, code, complaint",
    [
        (_exits, "PolicyError", "the policy raised SystemExit(3)"),
        (lambda _: None, "PolicyError", "the policy returned None, which is no Move"),
        (_spoils, "PydanticSerializationError", "Unable to serialize"),
        (_spoils_and_raises, "ValueError", "half \\ud800"),
    ],
)
def test_no_policy_ends_the_eval(env: AgentEnv, policy: Policy, code: str, complaint: str) -> None:
    todo = missing(env.tasks("eval")[:2], 1, 0, ())
    tools = tuple(env.tools("eval"))
    options: Any = {"tools": tools, "max_calls": 5, "concurrency": 1}
    rows = list(play_all(todo, env.session, policy, **options))
    assert [(row.reward, row.code) for row in rows] == [(None, code)] * 2
    assert complaint in str(rows[0].error)
    assert all(row.model_dump_json() for row in rows)


def test_a_policy_that_never_ends_is_stopped_and_scored(played: PlaysOut) -> None:
    row = played(lambda _: Move(calls=(Call(name="add", arguments={"n": 1}),)), max_calls=3)
    assert (row.cut, row.tool_calls, row.turns) == (True, 3, 1)
    assert row.reward == pytest.approx(0.3)


class Endless:
    """A session whose task never stops asking."""

    def reset(self, **_: Any) -> Observation:
        return Observation()

    def call_tool(self, name: str, arguments: dict[str, Any]) -> Observation:
        assert (name, arguments) == (END_TURN, {"response": ""})
        return Observation.model_validate({"result": {"prompt": "And now?"}})

    def close(self) -> None:
        """It holds nothing."""


def test_a_task_that_never_ends_is_left_unscored(env: AgentEnv) -> None:
    (attempt,) = missing(env.tasks("eval")[:1], 1, 0, ())
    tools = tuple(env.tools("eval"))
    row = play(Endless(), attempt, lambda _: Move(), tools=tools, max_calls=5)
    assert (row.code, row.turns) == ("PolicyError", MAX_TURNS)


def test_an_answer_where_nothing_takes_one_is_no_score(env: AgentEnv) -> None:
    (attempt,) = missing(env.tasks("eval")[:1], 1, 0, ())
    row = play(Endless(), attempt, lambda _: Move(text="10"), tools=(), max_calls=5)
    assert (row.reward, row.code) == (None, "PolicyError")
    assert "the server has no end_turn" in str(row.error)


def test_a_dead_server_leaves_everything_unscored() -> None:
    with LocalServer(COUNTER) as server:
        env = AgentEnv(server.url, waits_for_server=False)
        tasks, tools = env.tasks("eval"), tuple(env.tools("eval"))
        server.kill()
        rows = list(
            play_all(
                missing(tasks, 1, 0, ()),
                env.session,
                says("?"),
                tools=tools,
                max_calls=5,
                concurrency=2,
            )
        )
    assert {(row.reward, row.code) for row in rows} == {(None, "ServerDown")}
    assert len(rows) == 4


def test_one_bad_task_keeps_the_others(env: AgentEnv) -> None:
    tools = tuple(env.tools("eval"))

    def policy(history: History) -> Move:
        name = "crash" if history.task.index == 2 else "commit"
        return Move(calls=(Call(name=name, arguments={}),))

    todo = missing(env.tasks("eval"), 3, 0, ())
    rows = list(play_all(todo, env.session, policy, tools=tools, max_calls=5, concurrency=4))
    assert sorted((row.index, row.attempt) for row in rows) == [
        (index, attempt) for index in range(4) for attempt in range(3)
    ]
    assert {row.index for row in rows if row.reward is None} == {2}


def test_what_is_missing_is_what_has_no_score(env: AgentEnv) -> None:
    tasks, tools = env.tasks("eval"), tuple(env.tools("eval"))
    todo = missing(tasks, 2, 0, ())
    assert [(each.task.index, each.attempt) for each in todo[:5]] == [
        (0, 0),
        (1, 0),
        (2, 0),
        (3, 0),
        (0, 1),
    ]
    assert len({each.seed for each in todo}) == 8
    crashed = play(env.session(), todo[0], says(("crash", {})), tools=tools, max_calls=5)
    scored = play(env.session(), todo[1], says("?"), tools=tools, max_calls=5)
    left = missing(tasks, 2, 0, [crashed, scored])
    assert [(each.task.index, each.attempt, each.tries) for each in left[:2]] == [
        (0, 0, 2),
        (2, 0, 1),
    ]
    assert len(left) == 7
