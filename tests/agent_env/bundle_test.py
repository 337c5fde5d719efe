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
        ("agent_env.bundle:missing", "is not a Bundle"),
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
    with pytest.raises(RewardUndefined, match="fast, near"):
        One().reward({"near": 0.5, "fast": 1.0})
