"""The classes a factory builds, as TRL reads them; without TRL."""

from __future__ import annotations

import inspect
import pickle
import typing
from collections.abc import Iterator
from pathlib import Path

import pytest

from agent_env import AgentEnv
from agent_env.client.local import LocalServer
from agent_env.errors import (
    BundleError,
    EpisodeFailed,
    TaskNotFound,
    ToolError,
    TooManyUnscored,
    WrongSplit,
)
from agent_env.training._functions import annotation, tool_function
from agent_env.training.trl import Environment, UnscoredLimit, metrics
from agent_env.types import ToolSpec

from .conftest import COUNTER

SECOND = """
from agent_env import Bundle, Task, TaskData

class Easy(Task):
    def score(self):
        return {"any": 1.0}

class Second(Bundle):
    name = "second"
    splits = ("all",)

    def tasks(self, split):
        return [TaskData(id="t", name="t", split=split, index=0, prompt="p")]

    def open(self, data):
        return Easy(data)

bundle = Second()
"""


@pytest.fixture(scope="module")
def env() -> Iterator[AgentEnv]:
    with LocalServer(COUNTER, max_sessions=32) as server, AgentEnv(server.url) as client:
        yield client


@pytest.fixture
def fresh(env: AgentEnv) -> Iterator[AgentEnv]:
    """A client that hasn't given out any rows."""
    with AgentEnv(env.url) as client:
        yield client


def public(environment: Environment) -> list[str]:
    """What TRL would offer, the way it looks."""
    functions = inspect.getmembers(type(environment), inspect.isfunction)
    return [name for name, _ in functions if not name.startswith("_")]


def test_a_factory_opens_nothing_until_the_first_reset(env: AgentEnv) -> None:
    one = env.factory_for("train", "eval")()
    assert one._session.id is None
    one.reset(split="eval", index=0, prompt=[{"role": "user", "content": "x"}], other=1)
    assert one._session.id is not None


def test_only_the_tools_are_public_and_the_class_has_the_bundles_name(env: AgentEnv) -> None:
    one = env.factory_for("eval")()
    assert public(one) == ["add", "commit", "crash", "end_turn", "get_reward", "reset", "wait"]
    assert type(one).__name__ == "counter"
    assert "add_word" in public(env.factory_for("turns")())


def test_a_tool_has_the_signature_types_and_docstring_of_its_original(env: AgentEnv) -> None:
    kind = type(env.factory_for("turns")())
    add, add_word = kind.add, kind.add_word
    assert add.__name__ == "add"
    assert str(inspect.signature(add)) == "(self, n: int, note: str = '') -> str"
    assert typing.get_type_hints(add) == {"n": int, "note": str, "return": str}
    assert typing.get_type_hints(add_word)["times"] == int | None
    assert inspect.getdoc(add) is not None
    assert "    n: What to add." in str(inspect.getdoc(add))


def test_a_factory_has_the_tools_of_the_rows_that_were_given_out(fresh: AgentEnv) -> None:
    row = fresh.rows("turns")[0]
    one = fresh.factory()
    assert "add_word" in public(one)
    one.reset(**row)
    assert one.add_word("two") == "2"


def test_a_factory_takes_the_rows_of_every_split_with_the_same_tools(fresh: AgentEnv) -> None:
    fresh.rows("eval")
    factory = pickle.loads(pickle.dumps(fresh.factory))
    factory().reset(**fresh.rows("train")[1])
    assert factory.splits == ("train", "eval")


def test_before_any_row_was_given_out_a_factory_is_for_the_first_split(fresh: AgentEnv) -> None:
    with pytest.raises(TaskNotFound):
        fresh.rows("evil")
    assert fresh.factory.splits == ("train", "eval")


def test_rows_with_different_tools_can_not_share_the_factory(fresh: AgentEnv) -> None:
    for split in ("train", "turns"):
        fresh.rows(split)
    with pytest.raises(ValueError, match=r"^counter: .* train, turns .*use factory_for\(split\)"):
        _ = fresh.factory
    with pytest.raises(ValueError, match="train, turns differ"):
        fresh.factory_for("train", "turns")
    with pytest.raises(TaskNotFound, match="no split 'evil'"):
        fresh.factory_for("evil")


def test_the_shipped_bundle_trains_on_either_kind_of_its_splits() -> None:
    with AgentEnv.local("gridsim") as env:
        fine = env.factory
        assert fine.splits == ("train", "eval")
        row = env.rows("coarse-train")[0]
        assert env.factory.splits == ("coarse-train", "coarse-eval")
        one = env.factory()
        one.reset(**row)
        one.commit_schedule(plan="evening")
        assert one.get_reward() is not None
        with pytest.raises(WrongSplit, match=r"take `factory` after dataset\('coarse-train'\)"):
            fine().reset(**row)


def test_a_row_with_other_tools_is_heard_at_each_environments_first_reset(
    fresh: AgentEnv,
) -> None:
    fresh.session().reset()  # the server is known to work
    one = fresh.factory_for("turns")()
    with pytest.raises(WrongSplit, match="of split 'eval', the factory of: turns;"):
        one.reset(split="eval", index=0)


def test_a_row_with_other_tools_is_later_one_rollout_unscored(
    fresh: AgentEnv, caplog: pytest.LogCaptureFixture
) -> None:
    one = fresh.factory_for("turns")()
    one.reset(split="turns", index=0)
    assert one.reset(split="eval", index=0) is None
    with pytest.raises(EpisodeFailed):
        one.add(n=10)
    assert one.get_reward() is None
    assert "rollout unscored: the row is of split 'eval'" in caplog.text
    one.reset(split="turns", index=0)
    one.add(n=5)
    assert one.get_reward() == 0.5


def test_a_reset_without_a_row_opens_a_task_that_has_the_factorys_tools(fresh: AgentEnv) -> None:
    one = fresh.factory_for("turns")()
    one.reset()
    assert one.add_word("two") == "2"


def test_a_factory_is_picklable_and_builds_its_class_anew(env: AgentEnv) -> None:
    factory = pickle.loads(pickle.dumps(env.factory_for("eval")))
    one, two = factory(), factory()
    assert type(one) is type(two)
    one.reset(split="eval", index=1)
    assert one.add(n=20) == "20"
    assert one.get_reward() == 1.0
    one._session.close()


def test_one_session_serves_one_environments_rollouts(env: AgentEnv) -> None:
    one = env.factory_for("eval")()
    one.reset(split="eval", index=0)
    connection = one._session._wire._connection
    for n in range(100):
        assert one.reset(split="eval", index=0, seed=n) == f" Seed {n}."
    assert one._session._wire._connection is connection


def test_a_rollout_that_ends_without_a_commit_is_scored_as_it_stands(env: AgentEnv) -> None:
    one = env.factory_for("turns")()
    one.reset(split="turns", index=0)
    one.add_word("two", times=2)
    assert (one.get_reward(), one.get_reward()) == (0.4, 0.4)


def test_turns_are_ended_with_a_tool(env: AgentEnv) -> None:
    one = env.factory_for("turns")()
    one.reset(split="turns", index=0)
    assert one.end_turn(response="four") == "Are you sure?"
    assert one.end_turn(response="yes") == "The episode has ended."
    with pytest.raises(ToolError, match="has ended"):
        one.add(n=1)
    assert one.get_reward() == 0.0


def test_a_wrong_call_is_told_to_the_model_and_costs_nothing(env: AgentEnv) -> None:
    one = env.factory_for("eval")()
    one.reset(split="eval", index=0)
    with pytest.raises(ToolError, match="valid integer"):
        one.add(n="many")
    one.add(n=10)
    assert one.get_reward() == 1.0
    assert (one._rollout.tool_calls, one._rollout.tool_failures) == (2, 1)


def test_a_broken_environment_is_unscored_and_not_zero(env: AgentEnv) -> None:
    one = env.factory_for("eval")()
    one.reset(split="eval", index=0)
    with pytest.raises(EpisodeFailed, match="blew up"):
        one.crash()
    with pytest.raises(EpisodeFailed):
        one.add(n=1)
    assert one.get_reward() is None
    assert one._unscored == 1
    one.reset(split="eval", index=0)
    assert one.get_reward() == 0.0


def test_an_environment_that_was_never_reset_has_no_reward(env: AgentEnv) -> None:
    assert env.factory_for("eval")().get_reward() is None


def test_metrics_are_logged_and_leave_the_reward_alone(env: AgentEnv) -> None:
    factory = env.factory_for("eval")
    good, bad = factory(), factory()
    for one in (good, bad):
        one.reset(split="eval", index=0)
    good.add(n=5)
    with pytest.raises(EpisodeFailed):
        bad.crash()
    logged: dict[str, float] = {}
    given = metrics(environments=[good, bad], log_metric=logged.__setitem__, prompts=[])
    assert given == [None, None]
    assert logged == {
        "env/unscored": 0.5,
        "env/tool_calls": 1.0,
        "env/tool_failures": 0.0,
        "env/turns": 0.0,
        "env/reopened": 0.0,
        "env/continued": 0.0,
        "env/waited_s": 0.0,
        "score/near": 0.5,
    }
    assert (good.get_reward(), bad.get_reward()) == (0.5, None)


def test_a_limit_logs_like_metrics_and_ends_a_run_that_would_train_on_nothing(
    env: AgentEnv,
) -> None:
    factory = env.factory_for("eval")
    one, limit = factory(), UnscoredLimit(0.5, rollouts=4)
    logged: dict[str, float] = {}
    for ends in ("well", "badly", "badly"):
        one.reset(split="eval", index=0)
        if ends == "badly":
            with pytest.raises(EpisodeFailed):
                one.crash()
        assert limit([one], logged.__setitem__, completions=[""]) == [None]
    assert logged["env/unscored"] == 1.0
    one.reset(split="eval", index=0)
    with pytest.raises(EpisodeFailed):
        one.crash()
    with pytest.raises(TooManyUnscored, match=r"75% of the last 4 .* blew up .*3 times"):
        limit([one], logged.__setitem__, completions=[""])


def test_rows_have_one_set_of_columns_and_the_prompt(env: AgentEnv) -> None:
    rows = env.rows("eval")
    assert rows[1] == {
        "prompt": [
            {"role": "system", "content": "You count."},
            {"role": "user", "content": "Count to 20."},
        ],
        "task_id": "eval-1",
        "split": "eval",
        "index": 1,
    }
    assert {tuple(row) for row in rows} == {("prompt", "task_id", "split", "index")}
    assert env.splits == ("train", "eval", "turns")
    assert env.tasks("eval")[1].data == {}
    with pytest.raises(TaskNotFound, match="mean 'eval'"):
        env.tasks("evel")


def test_several_bundles_give_a_factory_each_and_rows_that_name_it(tmp_path: Path) -> None:
    folder = tmp_path / "second"
    folder.mkdir()
    (folder / "__init__.py").write_text(SECOND)
    with AgentEnv.local([folder, COUNTER]) as env:
        assert env.splits == ("second", "counter/train", "counter/eval", "counter/turns")
        (row,) = env.rows("second")
        assert row["environment"] == "second"
        both = env.rows("second", "counter/eval")
        assert [r["environment"] for r in both] == ["second", *["counter"] * 4]
        assert {tuple(sorted(r)) for r in both} == {tuple(sorted(row))}
        one = env.factory_for("second")()
        one.reset(**row)
        assert one.get_reward() == 1.0
        two = env.factory_for("counter/eval")()
        assert two.reset(**env.rows("counter/eval")[0]) is None
        assert type(two).__name__ == "counter"
        env.rows("counter/turns")
        with pytest.raises(ValueError, match=r"^counter: .* counter/eval, counter/turns"):
            _ = env.factory
    with AgentEnv.local([folder, COUNTER]) as env:
        turns = env.rows("counter/turns")[0]
        factories = env.factory
        assert list(factories) == ["second", "counter"]
        factories[turns["environment"]]().reset(**turns)
    with AgentEnv.local([folder]) as env:
        assert "environment" not in env.rows("all")[0]
        assert env.factory().reset(**env.rows("all")[0]) is None


@pytest.mark.parametrize(
    "schema, expected",
    [
        ({"type": "array", "items": {"type": "number"}}, list[float]),
        ({"type": "array"}, list),
        ({"anyOf": [{"type": "string"}, {"type": "null"}]}, str | None),
        ({"type": ["integer", "string"]}, int | str),
        ({"enum": ["low", "high"], "type": "string"}, typing.Literal["low", "high"]),
        ({"const": "x"}, typing.Literal["x"]),
        ({"type": "object"}, dict),
        ({}, typing.Any),
    ],
)
def test_a_schema_becomes_the_type_it_means(schema: dict[str, object], expected: object) -> None:
    assert annotation(schema) == expected


@pytest.mark.parametrize("name", ["class", "a b", "_hidden", "reset", "get_reward"])
def test_a_tool_whose_name_a_trainer_can_not_take_is_refused(name: str) -> None:
    spec = ToolSpec(name=name, description="d", input_schema={"type": "object", "properties": {}})
    with pytest.raises(BundleError):
        tool_function(spec, lambda *_: "")
