"""Trains a model on the bundle's expert, spoiled by `noise`, until its sampled reward on the eval
split passes `gate`; leaves it whole in `out/model`, also where only adapters were trained: so it
loads in 16 or in 4 bits, and in vLLM. Starts over when it is started again: it is short.
"""

from __future__ import annotations

import random
from datetime import UTC, datetime
from typing import Any

from agent_env.bundle import load_bundle
from agent_env.client import AgentEnv
from agent_env.training import learner, merging, models, preflight, tiny, unsloth
from agent_env.training.config import SftConfig
from agent_env.training.demonstrations import Conversation, play_expert, tools_of
from agent_env.training.gpu_memory import GpuMemory
from agent_env.training.job import Job, JobFailed
from agent_env.training.metrics import MetricsFile
from agent_env.training.randomness import seed_everything
from agent_env.training.rollouts import Tally
from agent_env.training.serving import environments, open_env, served_splits, task_rows
from agent_env.training.stopping import StopRequest
from agent_env.training.summary import memory_numbers
from agent_env.training.trainer import Trainer, evaluator
from agent_env.training.warmstart import Example, to_example, warm_start

LOG_EACH_STEPS = 50


def run(job: Job[SftConfig], stop: StopRequest) -> None:
    """Play, train, judge, save. Raises JobFailed under the gate."""
    config = job.config
    models.settle_torch()
    seed_everything(config.seed)
    metrics = MetricsFile(job.metrics, max_steps=config.steps)
    metrics.cut_back(-1)
    # One more than the eval needs: the expert's environment stays open beside it.
    sessions = 1 + config.eval_rollouts(config.eval_samples, config.eval_tasks)
    with open_env(config, sessions=sessions) as env:
        preflight.check_job(job, env, sessions=sessions)
        talks, tools = _play(config, env)
        model, tokenizer = _student(job, talks, tools)
        examples = _examples(config, tokenizer, tools, talks)
        judge = _judge(job, env, model, tokenizer, metrics, stop)
        judged = _teach(config, model, examples, judge, metrics)
    _save(job, model, tokenizer)
    numbers: dict[str, Any] = {"eval_reward": judged.reward, "unscored": judged.unscored}
    numbers |= memory_numbers(metrics.lines())
    metrics.append("final", config.steps, numbers, datetime.now(UTC))


def _play(config: SftConfig, env: AgentEnv) -> tuple[list[Conversation], list[Any]]:
    environment = environments(env, config, config.split)()
    talks = play_expert(
        load_bundle(config.bundles[0]),
        list(task_rows(env, served_splits(env, config, config.split))),
        environment,
        split=config.split,
        noise=config.noise,
        count=config.demonstrations,
        rng=random.Random(config.seed),  # noqa: S311 - a draw, not a secret
    )
    return talks, tools_of(environment)


def _student(job: Job[SftConfig], talks: list[Conversation], tools: list[Any]) -> Any:
    if job.config.model == "tiny":
        tokenizer = tiny.build_tokenizer(talks, tools)
        return tiny.build_model(tokenizer), tokenizer
    return learner.load_student(job.model_source, job.config)


def _examples(
    config: SftConfig, tokenizer: Any, tools: list[Any], talks: list[Conversation]
) -> list[Example]:
    """Equal conversations become one example, as often as they came up."""
    rendering = learner.rendering(tokenizer, config)
    made: dict[int, Example] = {}
    for talk in talks:
        if id(talk) not in made:
            made[id(talk)] = to_example(
                tokenizer,
                tools,
                talk,
                decision_weight=config.decision_weight,
                rendering=rendering,
            )
    return [made[id(talk)] for talk in talks]


def _save(job: Job[SftConfig], model: Any, tokenizer: Any) -> None:
    folder = job.out / "model"
    if job.config.lora or job.config.unsloth:
        merging.save_merged(model, tokenizer, job.model_source, folder)
    else:
        models.save_model(model, tokenizer, folder)


def _judge(
    job: Job[SftConfig],
    env: AgentEnv,
    model: Any,
    tokenizer: Any,
    metrics: MetricsFile,
    stop: StopRequest,
) -> Trainer:
    config = job.config
    return evaluator(
        config,
        model,
        tokenizer,
        environments(env, config, config.eval_split),
        task_rows(env, served_splits(env, config, config.eval_split), config.eval_tasks),
        samples=config.eval_samples,
        out=job.out,
        metrics=metrics,
        stop=stop,
    )


def _teach(
    config: SftConfig, model: Any, examples: list[Example], judge: Trainer, metrics: MetricsFile
) -> Tally:
    """Warm start and eval, again while under the gate: half the steps at half the rate."""
    rng = random.Random(config.seed)  # noqa: S311 - an order, not a secret
    pad = judge.processing_class.pad_token_id
    steps, rate = config.steps, config.learning_rate
    for _ in range(1 + config.extra_rounds):
        if config.unsloth:
            unsloth.for_training(model)
        losses = warm_start(
            model,
            examples,
            pad=pad,
            steps=steps,
            batch_rows=config.batch_rows,
            rows_at_once=config.train_batch,
            learning_rate=rate,
            rng=rng,
        )
        _log(losses, judge.progress.memory, metrics)
        judged = judge.judge()
        if judged.reward is not None and judged.reward >= config.gate:
            return judged
        steps, rate = max(1, config.steps // 2), config.learning_rate / 2
    raise JobFailed(f"eval reward {judged.reward} after the warm start, the gate is {config.gate}")


def _log(losses: Any, memory: GpuMemory, metrics: MetricsFile) -> None:
    """A line now and then; what the steps took of the GPU stands in the next eval's."""
    for step, loss in enumerate(losses, start=1):
        memory.look()
        if step % LOG_EACH_STEPS == 0:
            metrics.append("train", step, {"reward": None, "loss": loss}, datetime.now(UTC))
