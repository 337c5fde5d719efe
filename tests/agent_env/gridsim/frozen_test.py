"""The data is frozen: the same everywhere, small, and explained by its parameters."""

import gzip
import json
import os
import random
import subprocess
import sys
from pathlib import Path

import pytest

from agent_env.bundle import load_bundle
from agent_env.bundles.gridsim import bundle
from agent_env.bundles.gridsim.coarse import schedule
from agent_env.bundles.gridsim.frozen import (
    COARSE_SPLITS,
    FINE_SPLITS,
    FOLDER,
    coarse_days,
    content,
    fine_days,
)
from agent_env.bundles.gridsim.generate import coarse_day, fine_day, write
from agent_env.bundles.gridsim.parameters import PATH, parameters, site
from agent_env.bundles.gridsim.simulation import NOTHING, simulate

CONTENT_HASH = "e57cc4989213de3bb706860ae440b650bb6b4920f669d29422515caf0aee46df"
"""Changes only together with the days, prompts, tools or parameters: results before and after
such a change can't be compared, so say it in the changelog."""


def test_the_content_is_the_frozen_one() -> None:
    assert bundle.content_hash == CONTENT_HASH


@pytest.mark.parametrize("changed", ["parameters", "fine_prompt", "content"])
def test_the_content_hash_follows_days_prompts_and_parameters(
    changed: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    others = {
        "parameters": lambda: {**parameters(), "battery_power_kw": 101},
        "fine_prompt": lambda: "another",
        "content": lambda split: content(split) + b"{}",
    }
    monkeypatch.setattr(f"agent_env.bundles.gridsim.gridsim.{changed}", others[changed])
    assert bundle.content_hash != CONTENT_HASH


def test_the_content_hash_is_the_same_in_every_process() -> None:
    code = "from agent_env.bundles.gridsim import bundle; print(bundle.content_hash)"
    for seed in ("0", "1"):
        told = subprocess.run(
            [sys.executable, "-c", code],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        )
        assert told.stdout.strip() == CONTENT_HASH


def test_the_splits_have_the_days_they_promise() -> None:
    counts = {split: len(bundle.tasks(split)) for split in bundle.splits}
    assert counts == parameters()["days"]
    assert (counts["train"], counts["eval"]) == (2000, 200)


def test_no_day_is_in_two_splits() -> None:
    inputs = [
        json.dumps([task.data["load_kw"], task.data["price_usd_per_mwh"]])
        for split in bundle.splits
        for task in bundle.tasks(split)
    ]
    assert len(set(inputs)) == len(inputs)


def test_tasks_know_their_place() -> None:
    for split in bundle.splits:
        for index, task in enumerate(bundle.tasks(split)):
            assert (task.split, task.index, task.id) == (split, index, f"gridsim/{split}/{index}")


def test_a_split_that_does_not_exist_is_a_key_error() -> None:
    with pytest.raises(KeyError, match="test"):
        bundle.tasks("test")


def test_no_file_of_the_bundle_reaches_a_megabyte() -> None:
    assert all(path.stat().st_size < 1_000_000 for path in FOLDER.parent.rglob("*.*"))


def test_doing_nothing_costs_what_is_written_and_the_optimum_saves_enough() -> None:
    for split in ("train", "eval"):
        for frozen in fine_days(split):
            nothing_usd = simulate(frozen.day(), NOTHING, site()).cost_usd
            assert frozen.nothing_usd == pytest.approx(nothing_usd, abs=1e-3)
            assert nothing_usd - frozen.optimum_usd >= parameters()["least_saving_usd"] - 1e-3


def test_doing_nothing_is_worth_0_and_the_frozen_schedule_nearly_1_on_every_day() -> None:
    for split in FINE_SPLITS:
        for day in fine_days(split):
            assert day.worth(NOTHING) == 0.0
            assert 0.99 <= day.worth(day.best()) <= 1.0
    for split in COARSE_SPLITS:
        for coarse in coarse_days(split):
            assert coarse.worth(NOTHING) == 0.0
            assert coarse.worth(schedule(coarse.plan)) == pytest.approx(1.0, abs=1e-3)


def test_the_generator_makes_the_frozen_days_again() -> None:
    for index in (0, 57, 199):
        made, kept = fine_day("eval", index), fine_days("eval")[index]
        assert made.day() == kept.day()
        assert made.optimum_usd == pytest.approx(kept.optimum_usd, abs=1e-3)
    for index in (0, 57, 95):
        assert coarse_day("coarse-eval", index).day() == coarse_days("coarse-eval")[index].day()


def test_written_twice_the_files_are_the_same_bytes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    few = {**parameters(), "days": {"eval": 2, "coarse-eval": 2}}
    monkeypatch.setattr("agent_env.bundles.gridsim.generate.parameters", lambda: few)
    for name in ("one", "two"):
        write(tmp_path / name)
    for split in few["days"]:
        file = f"{split}.jsonl.gz"
        packed = (tmp_path / "one" / file).read_bytes()
        assert packed == (tmp_path / "two" / file).read_bytes()
        assert packed[4:8] == bytes(4), "gzip's own time"
        assert len(gzip.decompress(packed).splitlines()) == 2


def test_every_parameter_names_its_unit_and_its_source() -> None:
    table = json.loads(PATH.read_text(encoding="utf-8"))
    for name, entry in table.items():
        assert set(entry) == {"value", "unit", "source"}, name
        assert len(entry["source"]) > 5, name


def test_the_bundle_is_found_by_name_and_by_reference() -> None:
    assert load_bundle("gridsim") is bundle
    assert load_bundle("agent_env.bundles.gridsim:bundle") is bundle


def test_playing_needs_no_scipy() -> None:
    code = (
        "import sys, random; sys.modules['scipy'] = sys.modules['numpy'] = None\n"
        "from agent_env.bundles.gridsim import bundle\n"
        "data = bundle.tasks('eval')[0]; task = bundle.open(data)\n"
        "for name, args in bundle.expert(data, noise=0.0, rng=random.Random(0)):\n"
        "    task.call_tool(name, args)\n"
        "assert bundle.reward(task.score()) > 0.99"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_an_expert_is_the_same_for_the_same_random_numbers() -> None:
    task = bundle.tasks("train")[5]
    made = [bundle.expert(task, noise=0.5, rng=random.Random(3)) for _ in range(2)]
    assert made[0] == made[1]
    assert made[0] != bundle.expert(task, noise=0.5, rng=random.Random(4))
