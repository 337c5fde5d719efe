"""The cases through TRL's own rollout code; only what the model says is from the script."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from trl import GRPOConfig, GRPOTrainer

from agent_env import AgentEnv
from agent_env.training import tiny
from agent_env.training.trl import metrics

from . import speech
from .cases import Outcome, Script, rows


class Scripted(GRPOTrainer):  # type: ignore[misc]
    """Says what the script says."""

    script: Script

    def _generate_single_turn(self, prompt_ids: Any, *_: Any, **__: Any) -> Any:
        texts = [self.processing_class.decode(ids) for ids in prompt_ids]
        said = [self.processing_class.encode(self.script.reply(text)) for text in texts]
        return said, None


def play(
    url: str,
    script: Script,
    folder: Path,
    *,
    timeout: float,
    config: Callable[..., Any] = GRPOConfig,
) -> Sequence[Outcome]:
    """One generation batch of all its cases; `config` makes the trainer's arguments."""
    with AgentEnv(url, reset_timeout=timeout, step_timeout=timeout, patience=timeout) as env:
        trainer = _trainer(env, script, folder, config)
        batch = [env.rows(row["split"])[row["index"]] for row in rows(script.cases)]
        made = trainer._generate_and_score_completions(batch)
        return [_outcome(trainer, made, number) for number in range(len(batch))]


def _trainer(env: AgentEnv, script: Script, folder: Path, config: Callable[..., Any]) -> Scripted:
    words = speech.tokenizer()
    trainer = Scripted(
        model=tiny.build_model(words),
        processing_class=words,
        train_dataset=env.dataset("one"),
        environment_factory=env.factory_for("one", "two"),
        reward_funcs=[metrics],
        args=config(
            output_dir=str(folder),
            per_device_train_batch_size=len(script.cases),
            num_generations=len(script.cases),
            max_completion_length=512,
            max_tool_calling_iterations=8,
            use_cpu=True,
            bf16=False,
            report_to="none",
        ),
    )
    trainer.script = script
    return trainer


def _outcome(trainer: Scripted, made: dict[str, Any], number: int) -> Outcome:
    rollout = trainer.environments[number]._settle()
    case = trainer.script.cases[number]
    own = made["completion_mask"][number] * made["tool_mask"][number]
    text = speech.own_text(
        trainer.processing_class, made["completion_ids"][number].tolist(), own.tolist()
    )
    if case.spoken is not None:  # TRL asks for one more message, which nobody reads
        text = text[: len(case.own_text)]
    return Outcome(
        reward=rollout.reward,
        scores=rollout.scores if rollout.reward is not None else {},
        own_text=text,
        counts=bool(made["advantages"][number] != 0),
    )
