"""Bundles are found by name, and their content has a name of its own."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from agent_env import Bundle, Task, TaskData
from agent_env.bundle import load_bundle
from agent_env.errors import BundleError, RewardUndefined
from agent_env.server.served import Reward, serve

COUNTER = Path(__file__).parent / "counter"


class One(Bundle):
    name = "one"
    splits = ("all",)

    def __init__(self, prompt: str = "p") -> None:
        self._prompt = prompt

    def tasks(self, split: str) -> Sequence[TaskData]:
        return [TaskData(id="t", name="t", split=split, index=0, prompt=self._prompt)]

    def open(self, data: TaskData) -> Task:
        return Task(data)


def test_a_bundle_is_loaded_from_a_folder_or_a_module() -> None:
    assert load_bundle(COUNTER).splits == ("train", "eval", "turns")
    assert load_bundle(str(COUNTER)) is load_bundle(COUNTER)
    module = type(load_bundle(COUNTER)).__module__
    assert load_bundle(f"{module}:bundle") is load_bundle(COUNTER)
    given = One()
    assert load_bundle(given) is given


@pytest.mark.parametrize(
    "ref, complaint",
    [
        ("no-such-bundle", "no bundle 'no-such-bundle'; installed:"),
        ("no_such_module:bundle", "no module 'no_such_module'"),
        ("agent_env.bundle:GROUP", "is not a Bundle"),
        ("agent_env.bundle:missing", r"bundle\.py defines no `missing`: write `missing = MyB"),
        ("agent_env.bundle:Bundle", "it is the class: write `Bundle = Bundle\\(\\)`"),
    ],
)
def test_a_reference_that_names_no_bundle_says_so(ref: str, complaint: str) -> None:
    with pytest.raises(BundleError, match=complaint):
        load_bundle(ref)


def test_the_content_hash_follows_the_tasks_and_not_the_process() -> None:
    assert One().content_hash == One().content_hash
    assert One().content_hash != One("other").content_hash
    load = f"load_bundle({str(COUNTER)!r}).content_hash"
    program = f"from agent_env.bundle import load_bundle; print({load})"
    elsewhere = {
        subprocess.run(
            [sys.executable, "-c", program],
            env={"PYTHONHASHSEED": seed, "PYTHONPATH": str(Path(__file__).parents[2])},
            capture_output=True,
            text=True,
            check=True,
        ).stdout.strip()
        for seed in ("1", "2")
    }
    assert elsewhere == {load_bundle(COUNTER).content_hash}


def test_one_score_is_the_reward_and_several_need_a_rule() -> None:
    assert One().reward({"near": 0.5}) == 0.5
    with pytest.raises(RewardUndefined, match=r"fast, near; set rewarded to one of them"):
        One().reward({"near": 0.5, "fast": 1.0})


def test_a_bundle_names_the_score_that_is_its_reward_or_takes_the_mean() -> None:
    class Named(One):
        rewarded = "fast"

    class Mean(One):
        rewarded = "mean"

    scores = {"near": 0.5, "fast": 1.0, "neat": 0.0}
    assert Named().reward(scores) == 1.0
    assert Mean().reward(scores) == 0.5
    assert Mean().reward({**scores, "mean": 0.9}) == 0.9, "a score of that name comes first"
    with pytest.raises(RewardUndefined, match="the reward is 'fast', the task recorded: near"):
        Named().reward({"near": 0.5})
    with pytest.raises(RewardUndefined, match="recorded: none"):
        Mean().reward({})


def test_a_score_or_the_mean_can_be_chosen_when_a_bundle_is_served() -> None:
    scores = {"near": 0.5, "fast": 1.0}
    rules: list[tuple[Reward, float]] = [("near", 0.5), ("mean", 0.75), (lambda _: 0.25, 0.25)]
    for rule, worth in rules:
        served = serve(One(), rule)
        assert served.reward_of(served.split("all"), scores) == worth
    served = serve(One(), "neat")
    with pytest.raises(RewardUndefined, match="recorded: fast, near"):
        served.reward_of(served.split("all"), scores)


def test_a_folder_that_cannot_be_imported_says_where(tmp_path: Path) -> None:
    (tmp_path / "__init__.py").write_text("import json\nbundle = nothing_like_it\n")
    with pytest.raises(BundleError, match=r"NameError: .*nothing_like_it.*__init__\.py:2"):
        load_bundle(tmp_path)
    (tmp_path / "__init__.py").write_text("import agent_env.bundles.gridsim\nbundle = (\n")
    with pytest.raises(BundleError, match="SyntaxError"):
        load_bundle(tmp_path)


@pytest.mark.parametrize(
    "text, complaint",
    [
        ("bundl = 3\n", r"__init__\.py defines no `bundle`: write `bundle = MyBundle\(\)` at its"),
        ("import sys\nsys.exit(4)\n", r"SystemExit: 4 \(.*__init__\.py:2\)"),
        (
            "from agent_env import TaskData\n\nTaskData(prompt=None)\n",
            r"(?s)ValidationError: .*\(/.*__init__\.py:3\)",
        ),
    ],
)
def test_a_folder_that_holds_no_bundle_says_why_and_where(
    tmp_path: Path, text: str, complaint: str
) -> None:
    (tmp_path / "__init__.py").write_text(text)
    with pytest.raises(BundleError, match=complaint):
        load_bundle(tmp_path)


def test_a_folder_without_a_bundle_says_what_is_missing(tmp_path: Path) -> None:
    with pytest.raises(BundleError, match=r"has no __init__\.py that defines `bundle`"):
        load_bundle(tmp_path)
