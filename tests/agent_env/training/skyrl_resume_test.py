"""A run under SkyRL's own training loop that is ended and goes on: the same rows and metrics."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from agent_env.client.local import LocalServer
from agent_env.training.config import parse_config
from agent_env.training.config.skyrl import SkyrlGrpoConfig
from agent_env.training.job import Job
from agent_env.training.metrics import MetricsFile
from agent_env.training.programs import skyrl_grpo
from agent_env.training.skyrl import checkpoints
from agent_env.training.stopping import Stopped, StopRequest
from tests.agent_env.conftest import COUNTER
from tests.agent_env.training import skyrl_training
from tests.agent_env.training.skyrl_support import TOKENIZER
from tests.agent_env.training.skyrl_training import Killed, Moment

pytestmark = [pytest.mark.skyrl, pytest.mark.filterwarnings("ignore")]

STEPS = 5  # of two tasks each, out of four: two epochs and a half


class Run:
    """A job of the program, with SkyRL's loop in this process in its child's place."""

    def __init__(self, folder: Path, url: str) -> None:
        config = {
            **{"bundle": "counter", "split": "train", "eval_split": "turns", "env_url": url},
            **{"model": str(folder / "given"), "rollouts_per_step": 4, "rollouts_per_task": 2},
            **{"steps": STEPS, "save_steps": 5, "eval_steps": 2, "eval_samples": 1},
            **{"train_batch": 4, "prompt_tokens": 4000},
        }
        TOKENIZER.save_pretrained(folder / "given")
        self.job: Job[SkyrlGrpoConfig] = Job(
            config=parse_config(SkyrlGrpoConfig, config),
            out=folder / "out",
            metrics=folder / "metrics.jsonl",
            inputs={},
        )
        self.rows: dict[int, list[int]] = {}
        self.stop_file = folder / "out" / "skyrl" / "stop"
        self.checkpoints = folder / "out" / "skyrl" / "checkpoints"

    def start(self, monkeypatch: pytest.MonkeyPatch, moment: Moment) -> None:
        """To its end, or until `moment` raises. Raises Stopped."""

        def child(words: list[str], _stop: StopRequest, stop_file: Path) -> int:
            return skyrl_training.child(words, moment, self.rows, stop_file)

        monkeypatch.setattr("agent_env.training.skyrl.child.run", child)
        monkeypatch.setattr(skyrl_grpo, "machine_faults", lambda _: [])
        skyrl_grpo.run(self.job, StopRequest())

    def told(self) -> list[dict[str, Any]]:
        """The metrics, without times."""
        lines = MetricsFile(self.job.metrics, max_steps=STEPS).lines()
        timed = ("t", "seconds", "step_seconds", "eval_seconds", "env/waited_s")
        kept = [{key: line[key] for key in line if key not in timed} for line in lines]
        return sorted(kept, key=lambda line: (line["step"], line["kind"]))


@pytest.fixture(scope="module")
def server() -> Iterator[LocalServer]:
    with LocalServer(COUNTER, max_sessions=8) as running:
        yield running


@pytest.fixture(scope="module")
def undisturbed(server: LocalServer, tmp_path_factory: pytest.TempPathFactory) -> Run:
    run = Run(tmp_path_factory.mktemp("undisturbed"), server.url)
    with pytest.MonkeyPatch.context() as monkeypatch:
        run.start(monkeypatch, lambda _what, _step: None)
    return run


def test_the_loop_is_skyrls_and_trains_on_every_task_in_turn(undisturbed: Run) -> None:
    assert sorted(undisturbed.rows) == [1, 2, 3, 4, 5]
    epochs = [undisturbed.rows[1] + undisturbed.rows[2], undisturbed.rows[3] + undisturbed.rows[4]]
    assert [sorted(rows) for rows in epochs] == [[0, 0, 1, 1, 2, 2, 3, 3]] * 2
    assert epochs[0] != epochs[1]
    kinds = [line["kind"] for line in undisturbed.told()]
    assert (kinds.count("train"), kinds.count("eval"), kinds.count("final")) == (5, 4, 1)
    assert (undisturbed.job.out / "model" / "steps").read_text() == "5"
    assert not list((undisturbed.job.out / "skyrl" / "export").glob("*/policy"))


@pytest.mark.parametrize(
    ("what", "step", "goes_on_from"),
    [
        ("training", 4, 2),  # SkyRL also saves at an epoch's end
        ("saving", 4, 2),
        ("evaluating", 2, 2),
        ("evaluating", 5, 5),
        ("exporting", 5, 5),
    ],
)
def test_a_run_that_is_killed_goes_on_as_if_nothing_had_been(
    server: LocalServer,
    undisturbed: Run,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    what: str,
    step: int,
    goes_on_from: int,
) -> None:
    def kill(at: str, number: int) -> None:
        if (at, number) == (what, step):
            raise Killed

    run = Run(tmp_path, server.url)
    with pytest.raises(Killed):
        run.start(monkeypatch, kill)
    assert checkpoints.settle(run.checkpoints) == goes_on_from
    run.start(monkeypatch, lambda _what, _step: None)
    assert run.rows == undisturbed.rows
    assert run.told() == undisturbed.told()
    assert (run.job.out / "model" / "steps").read_text() == "5"


@pytest.mark.parametrize("step", [1, 2])
def test_a_run_that_is_stopped_goes_on_as_if_nothing_had_been(
    server: LocalServer,
    undisturbed: Run,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    step: int,
) -> None:
    run = Run(tmp_path, server.url)

    def stop(at: str, number: int) -> None:
        if (at, number) == ("training", step):
            run.stop_file.touch()

    with pytest.raises(Stopped):
        run.start(monkeypatch, stop)
    assert checkpoints.settle(run.checkpoints) == step
    run.start(monkeypatch, lambda _what, _step: None)
    assert run.rows == undisturbed.rows
    assert run.told() == undisturbed.told()
