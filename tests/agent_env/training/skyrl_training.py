"""SkyRL's own training loop on a CPU: a number in a file stands for what needs a GPU."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.agent_env.training.skyrl_support import TOKENIZER, Scripted, adds, registered

from skyrl.train.dataset import PromptDataset  # isort: skip - after the support's shim
from skyrl.train.entrypoints import main_base
from skyrl.train.trainer import RayPPOTrainer
from skyrl.train.utils.trainer_utils import cleanup_old_checkpoints

from agent_env.training.job import EXIT_STOPPED
from agent_env.training.skyrl.callbacks import StoppedHere
from agent_env.training.skyrl.experiment import AgentEnvExp, parsed

WITHOUT_RAY = (
    "trainer.print_example_interval=0",
    "trainer.placement.colocate_all=false",
    "trainer.enable_ray_gpu_monitor=false",
    "generator.inference_engine.enable_ray_prometheus_stats=false",
)
Moment = Callable[[str, int], None]
"""Told what is done at which step; may raise."""


class Killed(BaseException):
    """Stands for a SIGKILL."""


class Model(Scripted):
    """Adds in the first rollout of each task 2 and in the second 4, whenever it is asked."""

    def __init__(self) -> None:
        super().__init__(adds)

    async def generate(self, given: Any, model: str | None = None) -> dict[str, Any]:
        del model  # our experiment names it; there is one
        return await super().generate(given)

    async def finish_session(self, session_id: str) -> None:
        self._turns.pop(session_id, None)


class Weights:
    """Stands for the policy on its GPUs: how many steps it has been trained."""

    def __init__(self, moment: Moment) -> None:
        self.steps = 0
        self._moment = moment

    def save_checkpoint(self, _model: str, folder: str, _tokenizer: Any) -> None:
        Path(folder).mkdir(parents=True)
        (Path(folder) / "steps").write_text(str(self.steps))
        self._moment("saving", self.steps)

    def load_checkpoint(self, _model: str, folder: str, **_: Any) -> None:
        self.steps = int((Path(folder) / "steps").read_text())

    def save_hf_model(self, _model: str, folder: str, _tokenizer: Any) -> None:
        Path(folder).mkdir(parents=True, exist_ok=True)
        (Path(folder) / "half").write_text("")
        self._moment("exporting", self.steps)
        (Path(folder) / "steps").write_text(str(self.steps))

    def init_weight_sync_state(self, _client: Any) -> None: ...

    async def save_weights_for_sampler(self) -> None: ...

    def get_lcm_dp_size(self) -> int:
        return 1


class OnCpu(RayPPOTrainer):  # type: ignore[misc]
    """SkyRL's, without the passes through a model."""

    moment: Moment
    rows: dict[int, list[int]]

    async def generate(self, input_batch: Any) -> Any:
        if input_batch["batch_metadata"].training_phase == "train":
            tasks = [json.loads(extras["task"]) for extras in input_batch["env_extras"]]
            self.rows[self.global_step] = [task["index"] for task in tasks]
        return await super().generate(input_batch)

    def fwd_logprobs_values_reward(self, training_input: Any) -> Any:
        return training_input

    def compute_advantages_and_returns(self, data: Any) -> Any:
        return data

    def train_critic_and_policy(self, _data: Any) -> dict[str, float]:
        self.moment("training", self.global_step)
        self.dispatch.steps += 1
        self.all_metrics["policy/policy_loss"] = float(self.dispatch.steps)
        return {}

    async def eval(self, **named: Any) -> Any:
        self.moment("evaluating", self.global_step)
        return await super().eval(**named)

    def _cleanup_old_checkpoints(self) -> None:
        cleanup_old_checkpoints(self.cfg.trainer.ckpt_path, self.cfg.trainer.max_ckpts_to_keep)


def child(words: list[str], moment: Moment, rows: dict[int, list[int]], stop_file: Path) -> int:
    """Train as our entry point does, in this process; `rows` are told by step. The exit status."""
    stop_file.unlink(missing_ok=True)
    cfg = parsed([*words, *WITHOUT_RAY])
    registered(cfg)
    exp: Any = object.__new__(AgentEnvExp)
    exp.cfg = cfg
    client = Model()
    data = [
        PromptDataset(files, TOKENIZER, cfg.trainer.max_prompt_length, num_workers=1)
        for files in (cfg.data.train_data, cfg.data.val_data)
    ]
    generator = exp.get_generator(cfg, TOKENIZER, client)
    theirs, main_base.RayPPOTrainer = main_base.RayPPOTrainer, OnCpu
    try:
        tracker = exp.get_tracker()
        trainer = exp.get_trainer(cfg, tracker, TOKENIZER, *data, client, generator, None)
    finally:
        main_base.RayPPOTrainer = theirs
    trainer.dispatch, trainer.moment, trainer.rows = Weights(moment), moment, rows
    try:
        asyncio.run(trainer.train())
    except StoppedHere:
        return EXIT_STOPPED
    return 0
