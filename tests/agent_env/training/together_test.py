"""Two bundles in one training, with adapters: the programs run here, on a model small enough."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from agent_env.training import trained_on
from agent_env.training.checkpoints import checkpoint_step, latest_complete_checkpoint
from agent_env.training.config import EvaluateConfig, GrpoConfig, SftConfig
from agent_env.training.job import Job, JobFailed
from agent_env.training.metrics import TIMES, MetricsFile
from agent_env.training.models import load_model
from agent_env.training.programs import evaluate, grpo, sft
from agent_env.training.randomness import seed_everything
from agent_env.training.stopping import Stopped, StopRequest
from tests.agent_env.conftest import COUNTER

pytestmark = [
    pytest.mark.trl,
    pytest.mark.timeout(240),
    # The trainer warns of what has nothing to do with us.
    pytest.mark.filterwarnings("ignore"),
]

BOTH: dict[str, Any] = {"bundle": ("gridsim", str(COUNTER))}
EVALS: dict[str, Any] = BOTH | {"split": ("coarse-eval", "eval"), "tasks": 2, "samples": 2}
GRPO = GrpoConfig(
    **BOTH,
    split=("coarse-train", "eval"),
    eval_split=("coarse-eval", "eval"),
    lora={"rank": 4, "alpha": 8},
    steps=4,
    rollouts_per_step=16,
    rollouts_per_task=4,
    train_batch=8,
    save_steps=1,
    eval_tasks=2,
    eval_samples=2,
    seed=1,
)


class StopAfter(StopRequest):
    """Asked to stop as soon as the metrics tell of a training step."""

    def __init__(self, metrics: Path) -> None:
        self._metrics = metrics
        super().__init__()

    @property
    def asked(self) -> bool:
        return self._metrics.exists() and '"train"' in self._metrics.read_text()

    @asked.setter
    def asked(self, _value: bool) -> None:
        pass


def job(folder: Path, config: Any, model: Path | None = None) -> Any:
    inputs = {"model": model} if model else {}
    return Job(config=config, out=folder / "out", metrics=folder / "metrics.jsonl", inputs=inputs)


def lines(folder: Path) -> list[dict[str, Any]]:
    """The metrics without what differs between any two runs."""
    told = MetricsFile(folder / "metrics.jsonl", max_steps=1).lines()
    return [{key: value for key, value in line.items() if key not in TIMES} for line in told]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """It makes a well-formed call now and then."""
    folder = tmp_path_factory.mktemp("sft")
    config = SftConfig(
        steps=120, batch_rows=8, demonstrations=40, noise=0, eval_tasks=2, eval_samples=2
    )
    sft.run(job(folder, config), StopRequest())
    return folder / "out" / "model"


@pytest.fixture(scope="module")
def undisturbed(model: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("grpo")
    grpo.run(job(folder, GRPO, model), StopRequest())
    return folder


def test_a_run_tells_each_bundles_reward_and_what_its_episodes_were_like(
    undisturbed: Path,
) -> None:
    *_, eval_line, final = lines(undisturbed)
    assert (eval_line["kind"], eval_line["step"], eval_line["rollouts"]) == ("eval", 4, 8)
    mean = (eval_line["reward/gridsim"] + eval_line["reward/counter"]) / 2
    assert eval_line["reward"] == pytest.approx(mean, abs=2e-6)
    assert final["rise/gridsim"] == pytest.approx(
        eval_line["reward/gridsim"] - final["eval_reward_before/gridsim"], abs=2e-6
    )
    assert eval_line["env/unscored"] == 0
    assert eval_line["env/tool_calls"] > 0
    assert 0 <= eval_line["score/near"] <= 1
    assert "env/no_call_truncated" in final


def test_an_interrupted_run_of_two_bundles_with_adapters_ends_as_the_undisturbed_one(
    model: Path, undisturbed: Path, tmp_path: Path
) -> None:
    with pytest.raises(Stopped):
        grpo.run(job(tmp_path, GRPO, model), StopAfter(tmp_path / "metrics.jsonl"))
    newest = latest_complete_checkpoint(tmp_path / "out")
    assert newest is not None
    assert checkpoint_step(newest) == 2
    assert trained_on.read(newest) == trained_on.read(tmp_path / "out") is not None
    seed_everything(99)  # as another process would be
    grpo.run(job(tmp_path, GRPO, model), StopRequest())
    assert lines(tmp_path) == lines(undisturbed)
    assert any(line["loss"] for line in lines(tmp_path) if line["kind"] == "train")


def test_a_trained_adapter_is_all_that_is_saved_and_can_be_evaluated(
    undisturbed: Path, tmp_path: Path
) -> None:
    saved = undisturbed / "out" / "model"
    assert (saved / "adapter_model.safetensors").is_file()
    assert not (saved / "model.safetensors").exists()
    evaluate.run(job(tmp_path, EvaluateConfig(**EVALS), saved), StopRequest())
    final = lines(tmp_path)[-1]
    rows = (tmp_path / "out" / "rollouts.jsonl").read_text().splitlines()
    assert [json.loads(row)["environment"] for row in rows].count("counter") == 4
    assert {"eval_reward", "eval_reward/gridsim", "eval_reward/counter"} <= final.keys()


def test_a_budget_that_ends_episodes_before_any_call_is_told_and_warned_of_once(
    model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = EvaluateConfig(**EVALS, completion_tokens=2, thinking=True)
    evaluate.run(job(tmp_path, config, model), StopRequest())
    assert lines(tmp_path)[-1]["env/no_call_truncated"] == 1
    assert capsys.readouterr().out.count("raise it (now 2), or set thinking: false") == 1


def test_an_eval_that_scores_nothing_ends_the_job_before_it_trains_and_is_made_again(
    model: Path, tmp_path: Path
) -> None:
    broken = tmp_path / "broken"
    broken.mkdir()
    source = (COUNTER / "__init__.py").read_text()
    spoiled = source.replace('target = self.data.data["target"]', 'target = self.data.data["no"]')
    (broken / "__init__.py").write_text(spoiled)
    alone: dict[str, Any] = {"split": "eval", "eval_split": "eval"}
    config = GrpoConfig(**{**GRPO.model_dump(), **alone, "bundle": str(broken)})
    why = "none of the eval's 4 rollouts was scored: .*KeyError"
    for _ in range(2):
        with pytest.raises(JobFailed, match=why):
            grpo.run(job(tmp_path, config, model), StopRequest())
        assert [(line["kind"], line["step"]) for line in lines(tmp_path)] == [("eval", 0)]


def test_a_first_eval_on_another_environment_is_no_start(tmp_path: Path) -> None:
    wanted = job(tmp_path, GRPO)
    assert [grpo._begun(wanted, goes_on) for goes_on in (True, False)] == [0, -1]


def test_a_warm_start_of_adapters_leaves_a_whole_model(model: Path, tmp_path: Path) -> None:
    config = SftConfig(
        model="input",
        lora={"rank": 4},
        steps=3,
        batch_rows=4,
        train_batch=2,
        demonstrations=4,
        eval_tasks=1,
        eval_samples=2,
    )
    left = tmp_path / "out" / "model.adapters"  # of a run that was killed as it saved
    left.mkdir(parents=True)
    sft.run(job(tmp_path, config, model), StopRequest())
    saved = tmp_path / "out" / "model"
    assert {path.name for path in (tmp_path / "out").iterdir()} == {"model", trained_on.RECORD}
    assert not (saved / "adapter_config.json").exists()
    before, after = (load_model(str(source))[0].state_dict() for source in (model, saved))
    moved = {name for name in before if not before[name].equal(after[name])}
    assert before.keys() == after.keys()
    assert any("q_proj" in name for name in moved)
    assert not any("norm" in name or "embed" in name for name in moved)
