"""Policies are found by name, and the random one is the same wherever it plays."""

from __future__ import annotations

import random
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from agent_env.bundle import Bundle, load_bundle
from agent_env.errors import BundleError, PolicyError
from agent_env.evaluation.history import Call, History, Move, observation_hash
from agent_env.evaluation.policies import Means, load_policy
from agent_env.evaluation.policies.arguments import Guess
from agent_env.evaluation.policies.randomly import LONGEST, Randomly
from agent_env.task import Task
from agent_env.types import END_TURN, Observation, TaskData, ToolSpec

ROOT = Path(__file__).parents[3]
COUNTER = ROOT / "tests" / "agent_env" / "counter"


def nothing() -> Bundle:
    raise BundleError("not needed")


def history(bundle: str | Path = COUNTER, split: str = "eval", index: int = 0) -> History:
    loaded = load_bundle(bundle)
    task = loaded.tasks(split)[index]
    end = ToolSpec(name=END_TURN, description="", input_schema={})
    return History(
        task=task,
        attempt=0,
        seed=1,
        tools=(*loaded.tools(split), end),
        messages=[{"role": "user", "content": task.prompt}],
    )


@pytest.mark.parametrize(
    "spec, complaint",
    [
        ("", "no policy ''; there are: expert, random:SEED"),
        ("exprt", "no policy 'exprt'"),
        ("expert:1", "is called expert"),
        ("random", "random takes a seed, as in random:0"),
        ("random:x", "random takes a seed"),
        ("scripted:", "takes module:function"),
        ("scripted:json", "takes module:function"),
        ("scripted:no_such_module:f", "no module 'no_such_module'"),
        ("scripted:json:nothing", "json has no function 'nothing'"),
        ("openai:m", "needs --base-url"),
        ("transformers:", "transformers:PATH"),
    ],
)
def test_a_policy_that_is_none_is_refused(spec: str, complaint: str) -> None:
    with pytest.raises(PolicyError, match=complaint):
        load_policy(spec, Means(bundle=nothing))


def test_sampling_is_for_models() -> None:
    with pytest.raises(PolicyError, match="for a model's policy, not for random"):
        load_policy("random:0", Means(bundle=nothing, sampling={"temperature": 1}))


def test_a_bundle_without_an_expert_has_none_to_play() -> None:
    with pytest.raises(PolicyError, match="the bundle counter has no expert"):
        load_policy("expert", Means(bundle=lambda: load_bundle(COUNTER)))


def test_the_expert_makes_its_calls_and_then_ends_its_turns() -> None:
    bundle = load_bundle("gridsim")
    policy = load_policy("expert", Means(bundle=lambda: bundle))
    here = history("gridsim", "coarse-eval", 3)
    made = []
    for here.calls in range(3):
        made.append(policy(here))
    expected = bundle.expert(here.task, noise=0.0, rng=random.Random(0))
    assert [call.name for move in made for call in move.calls] == [name for name, _ in expected]
    assert made[2] == Move()


class Single(type(load_bundle("gridsim"))):  # type: ignore[misc]
    splits = ("coarse-eval",)


@pytest.mark.parametrize(
    "bundle, served",
    [
        (load_bundle("gridsim"), "gridsim/coarse-eval"),
        (Single(), "single"),  # a bundle of one split is served under its own name alone
    ],
)
def test_the_expert_knows_a_split_by_the_name_that_a_server_gives_it(
    bundle: Bundle, served: str
) -> None:
    policy = load_policy("expert", Means(bundle=lambda: bundle))
    here = history("gridsim", "coarse-eval", 3)
    own = policy(here)
    here.task = here.task.model_copy(update={"split": served})
    assert policy(here) == own


def test_a_split_that_the_experts_bundle_has_not_is_named() -> None:
    policy = load_policy("expert", Means(bundle=lambda: load_bundle("gridsim")))
    here = history("gridsim", "coarse-eval", 3)
    here.task = here.task.model_copy(update={"split": "other/nowhere"})
    with pytest.raises(PolicyError, match="gridsim has no split 'other/nowhere'"):
        policy(here)


def test_a_scripted_policy_is_a_function_in_a_file_of_this_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "my_script_for_the_test.py").write_text(
        "def play(history):\n"
        "    if history.calls == 0:\n"
        "        return 'add', {'n': len(history.last)}\n"
        "    return 'done' if history.calls == 1 else 3\n"
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    policy = load_policy("scripted:my_script_for_the_test:play", Means(bundle=nothing))
    here = history()
    assert policy(here) == Move(calls=(Call(name="add", arguments={"n": len("Count to 10.")}),))
    here.calls = 1
    assert policy(here) == Move(text="done")
    here.calls = 2
    with pytest.raises(PolicyError, match="returned 3: neither a str nor"):
        policy(here)


def test_a_script_that_can_not_be_imported_says_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "my_broken_script.py").write_text("1 / 0\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    with pytest.raises(PolicyError, match="can't be imported: ZeroDivisionError"):
        load_policy("scripted:my_broken_script:play", Means(bundle=nothing))
    (tmp_path / "my_ending_script.py").write_text("import sys; sys.exit(4)\n")
    with pytest.raises(PolicyError, match="can't be imported: SystemExit: 4"):
        load_policy("scripted:my_ending_script:play", Means(bundle=nothing))


def moves(bundle: str | Path, split: str, tasks: int, seed: int = 0) -> list[Move]:
    """The first moves of the random policy at some tasks."""
    return [Randomly(seed)(history(bundle, split, index)) for index in range(tasks)]


def test_random_moves_depend_on_what_was_seen_and_on_nothing_else() -> None:
    program = (
        "from tests.agent_env.evaluation.policies_test import moves, COUNTER;"
        "print(moves(COUNTER, 'turns', 4))"
    )
    elsewhere = subprocess.run(
        [sys.executable, "-c", program],
        env={"PYTHONPATH": str(ROOT), "PYTHONHASHSEED": "3"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert elsewhere.stdout.strip() == str(moves(COUNTER, "turns", 4))
    assert moves(COUNTER, "turns", 4, seed=1) != moves(COUNTER, "turns", 4)


def test_random_moves_follow_the_attempt_and_each_observation() -> None:
    seen, attempts = [history() for _ in range(20)], [history() for _ in range(20)]
    for number in range(20):
        seen[number].saw(Observation(metadata={"number": number}))
        attempts[number].attempt = number
    for drawn in (seen, attempts):
        assert len({str(Randomly(0)(each)) for each in drawn}) > 10


def test_a_random_policy_ends(played_out: Callable[[str | Path, str], History]) -> None:
    assert played_out("gridsim", "eval").calls <= LONGEST + 1


@pytest.fixture
def played_out() -> Callable[[str | Path, str], History]:
    """Plays without ever being answered by anything new."""

    def play(bundle: str | Path, split: str) -> History:
        here = history(bundle, split)
        while True:
            (call,) = Randomly(0)(here).calls
            here.calls += 1
            if call.name == END_TURN:
                return here

    return play


@pytest.mark.parametrize(
    "bundle, split", [("gridsim", "eval"), ("gridsim", "coarse-eval"), ("inbox", "eval")]
)
def test_most_random_calls_are_ones_that_the_tools_take(bundle: str, split: str) -> None:
    loaded = load_bundle(bundle)
    fits = 0
    for seed in range(200):
        rng = random.Random(seed)
        tool = rng.choice(loaded.tools(split))
        arguments = Guess(rng, ["m7", "d1", "Anna", "2024-03-01"]).value(tool.input_schema)
        fits += takes(loaded, loaded.tasks(split)[0], tool.name, arguments)
    assert fits == 200


def takes(bundle: Bundle, task: TaskData, name: str, arguments: dict[str, Any]) -> bool:
    """Whether the arguments fit the tool, wherever the call itself leads."""
    tool = type(bundle.open(task))._tools[name]
    tool.arguments.model_validate(arguments)
    return all(len(value) == 24 for value in arguments.values() if isinstance(value, list))


@pytest.mark.parametrize(
    "schema, fits",
    [
        ({"type": "integer", "minimum": 3, "maximum": 5}, lambda v: v in (3, 4, 5)),
        ({"type": "number", "description": "never below 0"}, lambda v: v >= 0),
        ({"type": "array", "items": {"type": "boolean"}, "minItems": 2, "maxItems": 2}, len),
        ({"anyOf": [{"type": "null"}, {"type": "integer"}]}, lambda v: v is None or int(v) == v),
        ({"enum": ["a", "b"]}, lambda v: v in ("a", "b")),
        ({"const": 7}, lambda v: v == 7),
        ({"$ref": "#/$defs/X", "$defs": {"X": {"type": "boolean"}}}, lambda v: v in (True, False)),
        ({"type": "string", "description": "the id of a mail"}, lambda v: v == "m7"),
    ],
)
def test_a_guess_fits_its_schema(schema: dict[str, Any], fits: Callable[[Any], Any]) -> None:
    for seed in range(30):
        value = Guess(random.Random(seed), ["m7", "word"]).value(schema)
        assert fits(value) or value == []


def test_an_observations_hash_leaves_out_whose_it_is() -> None:
    one = Observation(metadata={"task": 1, "session": {"id": "a"}, "episode_id": "x"})
    other = Observation(metadata={"task": 1, "session": {"id": "b"}})
    assert observation_hash(one) == observation_hash(other)
    assert observation_hash(one) != observation_hash(Observation(metadata={"task": 2}))


def test_a_task_of_the_counter_is_what_these_tests_think() -> None:
    assert issubclass(type(load_bundle(COUNTER).open(history().task)), Task)
