"""What `verl.trainer.main_ppo` is told on its command line: GRPO on our loop.

Every setting here differs from verl's default, or would be filled in by a missing one. The figures
that depend on the machine come from the caller.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agent_env.training.verl.dataset import AGENT_NAME

CPUS_PER_GPU = 3
"""verl's placement group asks for so many beside each GPU, and waits for them without end."""


@dataclass(frozen=True, kw_only=True)
class VerlRun:
    """One run of verl. Lengths in tokens."""

    model: str
    train_file: Path
    val_file: Path
    loop_file: Path
    out: Path
    """Where its checkpoints go."""
    steps: int
    prompts_per_step: int
    rollouts_per_prompt: int
    prompt_tokens: int
    response_tokens: int
    """All of a rollout after its prompt: the model's tokens and the tools'."""
    replies: int | None
    """Replies of the model in one rollout; calls in the last aren't executed. None: no limit."""
    learning_rate: float
    temperature: float = 1.0
    max_grad_norm: float = 1.0
    kl_weight: float = 0.0
    """Weight of the KL term in the loss; 0 keeps no reference model."""
    lora_rank: int | None = None
    lora_alpha: int = 32
    call_format: str = "hermes"
    """How the model writes calls: a name of verl's `multi_turn.format`."""
    gpus: int = 1
    """A node's."""
    nodes: int = 1
    workers: int = 4
    """Processes that play rollouts, on all nodes together."""
    gpu_memory_share: float = 0.4
    """What vLLM may take of a GPU; the trainer needs the rest."""
    loss: str = "token-mean"
    """How tokens are averaged: verl's `loss_agg_mode`."""
    scaled: bool = True
    """Whether advantages are divided by their group's standard deviation."""
    save_steps: int = 10
    keep_checkpoints: int = 2
    eval_steps: int | None = None
    eval_samples: int = 1
    eval_first: bool = True
    """Whether it begins with an eval, of the checkpoint that it goes on from if there is one."""
    seed: int = 0
    reporters: tuple[str, ...] = ()
    """Besides the console and the metrics file: wandb, trackio."""
    thinking: bool | None = None
    own_ray: bool = True
    """Whether verl starts a Ray of its own on this machine, rather than joining one."""

    @property
    def cpus(self) -> int:
        """What Ray must count on the head for all to be placed: TransferQueue 3, each GPU 3, and
        one for each process that is being started."""
        return 5 + CPUS_PER_GPU * self.gpus + self.workers


def overrides(run: VerlRun) -> list[str]:
    """The command line's words, `key=value` in Hydra's grammar."""
    parts = (_data(run), _rollout(run), _actor(run), _trainer(run))
    return [word(key, value) for part in parts for key, value in part]


def word(key: str, value: Any) -> str:
    """One setting in Hydra's grammar. Raises ValueError for a text that it can't hold."""
    return f"{key}={_value(value)}"


Settings = Iterator[tuple[str, Any]]


def _data(run: VerlRun) -> Settings:
    yield "data.train_files", [str(run.train_file)]
    yield "data.val_files", [str(run.val_file)]
    yield "data.train_batch_size", run.prompts_per_step
    yield "data.max_prompt_length", run.prompt_tokens
    yield "data.max_response_length", run.response_tokens
    # It would measure prompts without their tools, and drop rows in silence.
    yield "data.filter_overlong_prompts", False
    yield "data.return_raw_chat", True
    yield "data.seed", run.seed
    yield "data.dataloader_num_workers", 0
    if run.thinking is not None:
        yield "+data.apply_chat_template_kwargs.enable_thinking", run.thinking


def _rollout(run: VerlRun) -> Settings:
    here = "actor_rollout_ref.rollout"
    yield f"{here}.name", "vllm"
    yield f"{here}.n", run.rollouts_per_prompt
    yield f"{here}.temperature", run.temperature
    yield f"{here}.tensor_model_parallel_size", 1
    yield f"{here}.gpu_memory_utilization", run.gpu_memory_share
    yield f"{here}.max_model_len", run.prompt_tokens + run.response_tokens
    yield f"{here}.log_prob_use_dynamic_bsz", True
    yield f"{here}.load_format", "safetensors" if run.lora_rank else "dummy"
    yield f"{here}.agent.num_workers", run.workers
    yield f"{here}.agent.default_agent_loop", AGENT_NAME
    yield f"{here}.agent.agent_loop_config_path", str(run.loop_file)
    yield f"{here}.multi_turn.format", run.call_format
    yield f"{here}.multi_turn.max_assistant_turns", run.replies
    yield f"{here}.val_kwargs.n", run.eval_samples
    yield f"{here}.val_kwargs.do_sample", True
    yield f"{here}.val_kwargs.temperature", run.temperature


def _actor(run: VerlRun) -> Settings:
    here = "actor_rollout_ref.actor"
    yield "actor_rollout_ref.model.path", run.model
    # Both need flash-attn, which is no wheel.
    yield "actor_rollout_ref.model.use_remove_padding", False
    yield "+actor_rollout_ref.model.override_config.attn_implementation", "sdpa"
    if run.lora_rank:
        yield "actor_rollout_ref.model.lora_rank", run.lora_rank
        yield "actor_rollout_ref.model.lora_alpha", run.lora_alpha
    yield f"{here}.ppo_mini_batch_size", run.prompts_per_step
    yield f"{here}.use_dynamic_bsz", True
    yield f"{here}.ppo_max_token_len_per_gpu", 2 * (run.prompt_tokens + run.response_tokens)
    yield f"{here}.optim.lr", run.learning_rate
    yield f"{here}.grad_clip", run.max_grad_norm
    yield f"{here}.loss_agg_mode", run.loss
    # The last one is what `transformers` loads; verl resumes from the others.
    yield f"{here}.checkpoint.save_contents", ["model", "optimizer", "extra", "hf_model"]
    yield f"{here}.checkpoint.load_contents", ["model", "optimizer", "extra"]
    yield f"{here}.use_kl_loss", run.kl_weight > 0
    yield f"{here}.kl_loss_coef", run.kl_weight
    yield f"{here}.data_loader_seed", run.seed


def _trainer(run: VerlRun) -> Settings:
    yield "algorithm.adv_estimator", "grpo"
    yield "algorithm.norm_adv_by_std_in_grpo", run.scaled
    yield "algorithm.use_kl_in_reward", False
    yield "trainer.use_v1", True
    yield "trainer.v1.trainer_mode", "sync"
    # It would ask a dead server again and again until the dataset is used up.
    yield "trainer.v1.sampler.sync_refill_failed_groups", False
    if run.own_ray:
        # Ray's count, not the machine's: on a small box the parts would wait for each other.
        yield "ray_kwargs.ray_init.num_cpus", run.cpus
    # Actors that wait without end for a CPU each; the default of 8 fits no small box.
    yield "transfer_queue.backend.SimpleStorage.num_data_storage_units", 2 * run.nodes
    # The rewards come from the loop: these actors would idle, with a CPU each.
    yield "reward.num_workers", 1
    yield "trainer.nnodes", run.nodes
    yield "trainer.n_gpus_per_node", run.gpus
    yield "trainer.total_training_steps", run.steps
    yield "trainer.total_epochs", run.steps
    yield "trainer.save_freq", run.save_steps
    yield "trainer.max_actor_ckpt_to_keep", run.keep_checkpoints
    yield "trainer.resume_mode", "auto"
    yield "trainer.default_local_dir", str(run.out)
    # The last step is one that is evaluated only where any is.
    yield "trainer.test_freq", run.eval_steps or run.steps
    yield "trainer.val_before_train", run.eval_first
    yield "trainer.logger", ["console", "file", *run.reporters]


_PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def _value(value: Any) -> str:
    """In Hydra's grammar; a string is quoted unless it is a bare word."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        return value if _PLAIN.fullmatch(value) else _quoted(value)
    if isinstance(value, list):
        return f"[{','.join(map(_value, value))}]"
    return repr(value)


def _quoted(text: str) -> str:
    """A string in quotes; backslashes count only before a quote. Raises ValueError."""
    if "\\" in text or "${" in text:
        raise ValueError(
            f"{text!r}: Hydra reads backslashes and ${{…}} by rules of its own; rename it"
        )
    return "'" + text.replace("'", "\\'") + "'"
