"""GRPO of the tiny model through `AgentEnv.factory`, and what it must show.

Import it only when the process is settled: unsloth rewrites what is imported here.
"""

from __future__ import annotations

import math
import traceback
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any

import torch
from trl import GRPOConfig, GRPOTrainer
from trl.chat_template_utils import qwen3_template

from agent_env import AgentEnv
from agent_env.client.local import LocalServer
from agent_env.training import models, tiny, unsloth
from agent_env.training.config import UnslothConfig
from agent_env.training.demonstrations import tools_of
from agent_env.training.job import JobFailed
from agent_env.training.trl import metrics
from tools.gpu_check.outage import Outage, open_sessions
from tools.gpu_check.told import Told

BUNDLE = "agent_env.bundles.gridsim:bundle"
"""By its module: the packages are pinned ones, and ours isn't installed among them."""
NOT_COMPARED = {"output_dir", "gradient_checkpointing_kwargs"}
"""They don't change what is computed."""
STEPS, KILLED_IN = 3, 2
ROLLOUTS, GROUP = 8, 4
EVAL_TASKS = 4


def check(how: str, source: Path, tell: Told) -> None:
    """The whole of one training, in the current folder."""
    _check_config(how, tell)
    server = LocalServer(
        BUNDLE, max_sessions=ROLLOUTS, journal=Path(f"journal-{how}"), log=Path(f"env-{how}.log")
    )
    with server:
        outage = Outage(server, step=KILLED_IN, rollouts=ROLLOUTS)
        with AgentEnv(server.url) as env:
            model, tokenizer = _load(how, source if source.is_dir() else _untrained(env), tell)
            _train(_trainer(env, model, tokenizer, outage), outage, tell)
        left = open_sessions(server.url)
        tell("sessions", f"{left} of {ROLLOUTS} left open on the env server", left == 0)


def _check_config(how: str, tell: Told) -> None:
    """Field by field against TRL's own class; under Unsloth the bare config must differ."""
    device = _device()
    config = _config(output_dir="out", **device)
    plain = next(kind for kind in type(config).__mro__ if not kind.__name__.startswith("Unsloth"))
    own, bare = plain(output_dir="out", **device), GRPOConfig(output_dir="out", **device)
    ours, theirs = list(_differences(config, own)), list(_differences(bare, own))
    seen = (
        f"{type(config).__name__}: {'; '.join(ours) or 'none'} of {len(fields(plain))} fields"
        f" differ from TRL's; {len(theirs)} would if left out"
    )
    tell("config", seen, not ours and bool(theirs) == (how != "cpu"))


def _config(**arguments: Any) -> Any:
    """What `grpo_config` makes, also where it would refuse: that is for one check to say."""
    try:
        return unsloth.grpo_config(**arguments)
    except JobFailed:
        traceback.print_exc()
        return GRPOConfig(**unsloth.spelled_out(arguments))


def _differences(config: Any, own: Any) -> Iterator[str]:
    for name in sorted({field.name for field in fields(own)} - NOT_COMPARED):
        has, wanted = _of(config, name), _of(own, name)
        if has != wanted:
            yield f"{name} is {has!r}, not {wanted!r}"


def _of(config: Any, name: str) -> Any:
    """TRL reads an upper bound that isn't given as the lower one's."""
    value = getattr(config, name, None)
    return config.epsilon if name == "epsilon_high" and value is None else value


def _load(how: str, source: Path, tell: Told) -> tuple[Any, Any]:
    if how == "cpu":
        models.settle_torch()
        model, tokenizer = models.load_model(str(source))
    else:
        # More tokens than the model has positions would have Unsloth stretch them.
        told = {"four_bit": how == "qlora", "lora_rank": 8, "max_seq_tokens": tiny.CONTEXT_TOKENS}
        settings = UnslothConfig.model_validate(told)
        model, tokenizer = unsloth.load_model(str(source), settings, seed=0)
    trained = sum(each.numel() for each in _trained(model))
    every = sum(each.numel() for each in model.parameters())
    packed = sum(type(part).__name__ == "Linear4bit" for part in model.modules())
    seen = f"{trained} of {every} numbers are trained, {packed} layers in 4 bits, {model.dtype}"
    adapted = trained < every and bool(packed) == (how == "qlora")
    if parses := bool(getattr(tokenizer, "response_template", None)):
        tell("model", seen, trained > 0 and (how == "cpu" or adapted))
    else:
        tell("model", f"{seen}; the tokenizer has lost its response template", parses)
        tokenizer.response_template = qwen3_template
    return model, tokenizer


def _untrained(env: AgentEnv) -> Path:
    """A model that only has the vocabulary, for when the warm start failed."""
    rows = env.rows("coarse-train")[:8]
    tokenizer = tiny.build_tokenizer([row["prompt"] for row in rows], tools_of(env.factory()))
    models.save_model(tiny.build_model(tokenizer), tokenizer, Path("untrained"))
    return Path("untrained").resolve()


def _trainer(env: AgentEnv, model: Any, tokenizer: Any, outage: Outage) -> Any:
    rows = env.dataset("coarse-train")
    return GRPOTrainer(
        model=model,
        processing_class=tokenizer,
        train_dataset=rows,
        eval_dataset=env.dataset("coarse-eval").select(range(EVAL_TASKS)),
        environment_factory=outage.watched(env.factory),
        reward_funcs=[metrics],
        callbacks=[outage],
        args=_config(**_arguments(), **_device()),
    )


def _arguments() -> dict[str, Any]:
    return {
        "output_dir": "out",
        "save_strategy": "no",
        "report_to": "none",
        "logging_steps": 1,
        "disable_tqdm": True,
        "max_steps": STEPS,
        "per_device_train_batch_size": ROLLOUTS,
        "num_generations": GROUP,
        "per_device_eval_batch_size": ROLLOUTS,
        "num_generations_eval": 2,
        "learning_rate": 1e-4,
        "seed": 3,
        "max_completion_length": 64,
        "max_tool_calling_iterations": 3,
    }


def _device() -> dict[str, Any]:
    if not torch.cuda.is_available():
        cpu = {"use_cpu": True, "gradient_checkpointing": False, "dataloader_pin_memory": False}
        return {**cpu, "bf16": False}
    bf16 = torch.cuda.is_bf16_supported()
    return {"bf16": bf16, "fp16": not bf16}


def _train(trainer: Any, outage: Outage, tell: Told) -> None:
    """Eval, train, eval: three checks."""
    before = [each.detach().float().cpu().clone() for each in _trained(trainer.model)]
    first = _evaluated(trainer)
    trainer.train()
    _check_evals(first, _evaluated(trainer), tell)
    lines = [line for line in trainer.state.log_history if "env/continued" in line]
    after = [each.detach().float().cpu() for each in _trained(trainer.model)]
    _check_training(type(trainer).__name__, lines, before, after, tell)
    _check_restart(lines, outage, tell)


def _evaluated(trainer: Any) -> dict[str, Any]:
    """An eval's numbers; none where it fails, so that the training still is tried."""
    try:
        numbers: dict[str, Any] = trainer.evaluate()
    except Exception as error:
        traceback.print_exc()
        return {"failed": f"{type(error).__name__}: {error}"}
    return numbers


def _check_evals(first: dict[str, Any], second: dict[str, Any], tell: Told) -> None:
    """Every rollout is scored; how high is left to chance, after so few steps."""
    rewards = [numbers.get("eval_reward") for numbers in (first, second)]
    lost = [numbers.get("eval_env/unscored") for numbers in (first, second)]
    before, after = map(_shown, rewards)
    seen = f"sampled reward {before} before, {after} after; unscored share {lost[0]}, {lost[1]}"
    seen += "".join(f"; {each['failed']}" for each in (first, second) if "failed" in each)
    tell("evals", seen, all(map(_is_finite, rewards)) and lost == [0, 0])


def _check_training(
    trainer: str, lines: list[dict[str, Any]], before: list[Any], after: list[Any], tell: Told
) -> None:
    moved = max(float((new - old).abs().max()) for old, new in zip(before, after, strict=True))
    rewards = ", ".join(_shown(line.get("reward")) for line in lines)
    flat = [line.get("frac_reward_zero_std") for line in lines]
    finite = all(_is_finite(line.get(name)) for line in lines for name in ("loss", "grad_norm"))
    peak = f", {torch.cuda.max_memory_allocated() / 2**30:.2f} GiB" if _on_gpu() else ""
    seen = (
        f"{trainer}: {len(lines)} of {STEPS} steps, rewards {rewards}, weights moved {moved:.1g}"
        f"{'' if finite else ', a loss or gradient is no number'}{peak}"
    )
    if not moved:
        seen += f"; groups with equal rewards, which teach nothing: {flat}"
    tell("training", seen, len(lines) == STEPS and finite and moved > 0)


def _check_restart(lines: list[dict[str, Any]], outage: Outage, tell: Told) -> None:
    """The rollouts of the step whose server died went on, and none of any step was lost."""
    killed = next((line for line in lines if line["step"] == KILLED_IN), {})
    continued, lost = killed.get("env/continued", 0), sum(line["env/unscored"] for line in lines)
    scored = ROLLOUTS * (1 - killed.get("env/unscored", 1.0))
    seen = (
        f"killed in step {KILLED_IN}, {outage.told}: {continued:.0f} of {ROLLOUTS} rollouts went"
        f" on, {scored:.0f} scored, waited {killed.get('env/waited_s', 0):.1f} s together"
    )
    tell(
        "restart", seen, outage.over and continued >= ROLLOUTS and scored == ROLLOUTS and not lost
    )


def _trained(model: Any) -> list[Any]:
    return [each for each in model.parameters() if each.requires_grad]


def _shown(reward: Any) -> str:
    """An unscored step has no reward, which is not 0."""
    return f"{reward:.3f}" if _is_finite(reward) else "none"


def _is_finite(value: Any) -> bool:
    return isinstance(value, float | int) and math.isfinite(value)


def _on_gpu() -> bool:
    return bool(torch.cuda.is_available())
