"""What a model was trained on is written down, and compared with what a server has now."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from agent_env import AgentEnv
from agent_env.training import trained_on
from agent_env.training.config import ConfigError
from agent_env.training.trained_on import RECORD, Served, TrainedOn, now_served
from tests.agent_env.training.checkpoints_test import checkpoint

NAMED = "config.model"
TOOLS = {"coarse": {"choose": "1", "end_turn": "2"}}
GRID = TrainedOn(reward=None, bundles={"grid": Served(content="a", tools=TOOLS)})


def grid(
    *, content: str = "a", reward: str | None = None, split: str = "coarse", **tools: str
) -> TrainedOn:
    served = Served(content=content, tools={split: {**TOOLS["coarse"], **tools}})
    return TrainedOn(reward=reward, bundles={"grid": served})


@pytest.fixture
def resumed(tmp_path: Path) -> Callable[[TrainedOn], list[str]]:
    """The faults of going on in a folder with a checkpoint that was trained on GRID."""
    checkpoint(tmp_path, 40)
    trained_on.write(tmp_path, GRID)
    return lambda now: list(trained_on.resume_faults(tmp_path, now))


def test_a_record_is_read_as_it_was_written_and_leaves_nothing_beside(tmp_path: Path) -> None:
    trained_on.write(tmp_path / "out", GRID)
    assert trained_on.read(tmp_path / "out") == GRID
    assert [path.name for path in (tmp_path / "out").iterdir()] == [RECORD]


def test_a_folder_without_a_record_has_none_and_a_spoiled_one_is_told(tmp_path: Path) -> None:
    assert trained_on.read(tmp_path) is None
    (tmp_path / RECORD).write_text("{")
    with pytest.raises(ConfigError, match=r"environment\.json can't be read; delete it if"):
        trained_on.read(tmp_path)


@pytest.mark.parametrize(
    ("now", "said"),
    [
        (grid(choose="9"), "tools of grid, split coarse: choose has changed"),
        (grid(look="3"), "tools of grid, split coarse: look is new"),
        (grid(content="b"), "the tasks of grid have changed"),
        (grid(reward="mean"), "the server's --reward was None, now mean"),
        (grid(split="fine"), "its splits were grid:coarse, now grid:fine"),
        (TrainedOn(reward=None, bundles={}), "its splits were grid:coarse, now "),
    ],
)
def test_a_checkpoint_isnt_gone_on_with_on_another_environment(
    resumed: Callable[[TrainedOn], list[str]], now: TrainedOn, said: str
) -> None:
    (fault,) = resumed(now)
    assert f"checkpoint-40 was trained on another environment: {said}" in fault
    assert fault.endswith(
        "Start anew in an empty out folder, or serve the version it was trained on"
    )


def test_a_checkpoint_that_came_back_alone_knows_what_it_was_trained_on(tmp_path: Path) -> None:
    trained_on.write(tmp_path, GRID)
    trained_on.carry_to_checkpoint(tmp_path, 39)
    assert (tmp_path / "checkpoint-39" / RECORD).is_file()
    checkpoint(tmp_path, 40)
    trained_on.carry_to_checkpoint(tmp_path, 40)
    (tmp_path / RECORD).unlink()
    assert list(trained_on.resume_faults(tmp_path, GRID)) == []
    (fault,) = trained_on.resume_faults(tmp_path, grid(content="b"))
    assert "the tasks of grid have changed" in fault


def test_a_folder_is_of_an_environment_only_if_its_record_says_so(tmp_path: Path) -> None:
    assert not trained_on.is_of(tmp_path, GRID)
    trained_on.write(tmp_path, GRID)
    assert trained_on.is_of(tmp_path, GRID)
    assert not trained_on.is_of(tmp_path, grid(content="b"))
    (tmp_path / RECORD).write_text("{")
    assert not trained_on.is_of(tmp_path, GRID)


def test_on_the_same_environment_it_is(resumed: Callable[[TrainedOn], list[str]]) -> None:
    assert resumed(GRID) == []


def test_without_a_checkpoint_there_is_nothing_to_compare(tmp_path: Path) -> None:
    trained_on.write(tmp_path, GRID)
    assert list(trained_on.resume_faults(tmp_path, grid(choose="9"))) == []


def test_a_checkpoint_of_unknown_origin_is_gone_on_with_and_said_so(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    checkpoint(tmp_path, 40)
    assert list(trained_on.resume_faults(tmp_path, GRID)) == []
    assert "checkpoint-40 doesn't say which tools and tasks" in caplog.text


def test_a_model_that_learned_other_tools_is_refused_and_other_tasks_are_warned_of(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    trained_on.write(tmp_path, GRID)
    (fault,) = trained_on.model_faults(tmp_path, grid(choose="9"), NAMED)
    assert fault.startswith(f"config.model: {tmp_path} has learned other tools: tools of grid")
    assert list(trained_on.model_faults(tmp_path, GRID, NAMED)) == []
    assert not caplog.text
    assert list(trained_on.model_faults(tmp_path, grid(content="b"), NAMED)) == []
    assert "config.model: it was trained on other tasks of grid than these" in caplog.text


def test_a_model_may_go_on_to_another_bundle_or_split(tmp_path: Path) -> None:
    trained_on.write(tmp_path, GRID)
    mail = TrainedOn(reward=None, bundles={"mail": Served(content="c", tools={})})
    assert list(trained_on.model_faults(tmp_path, mail, NAMED)) == []
    assert list(trained_on.model_faults(tmp_path, grid(split="fine", look="3"), NAMED)) == []


def test_a_model_takes_the_record_of_its_job_along(tmp_path: Path) -> None:
    (tmp_path / "model").mkdir()
    trained_on.carry(tmp_path, tmp_path / "model")
    assert trained_on.read(tmp_path / "model") is None
    trained_on.write(tmp_path, GRID)
    trained_on.carry(tmp_path, tmp_path / "model")
    assert trained_on.read(tmp_path / "model") == GRID


@contextmanager
def served(folder: Path, *changes: tuple[str, str]) -> Iterator[AgentEnv]:
    """The counter bundle with these changes of its source, from a server."""
    text = (Path(__file__).parents[1] / "counter" / "__init__.py").read_text()
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    folder.mkdir()
    (folder / "__init__.py").write_text(text)
    with AgentEnv.local(folder, max_sessions=2) as env:
        yield env


def test_a_servers_tools_and_tasks_are_told_apart(tmp_path: Path) -> None:
    splits = ("train", "eval")
    with served(tmp_path / "a") as env:
        before = now_served(env, splits)
        assert now_served(env, splits) == before
    with served(tmp_path / "b", ("n: What to add.", "n: How much.")) as env:
        tools = now_served(env, splits)
    with served(tmp_path / "c", ("Count to", "Go to")) as env:
        tasks = now_served(env, splits)
    trained_on.write(tmp_path, before)
    (fault,) = trained_on.model_faults(tmp_path, tools, NAMED)
    assert "tools of counter, split eval: add has changed; tools of counter, split train" in fault
    assert list(trained_on.model_faults(tmp_path, tasks, NAMED)) == []
    assert tasks != before
