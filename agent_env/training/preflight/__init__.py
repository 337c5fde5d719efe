"""Whatever would end a training run later is looked for before its model is loaded.

Cheap things first: names and versions, then what the env server tells, then the tokenizer. The
weights are never read. `check` is for a script of one's own; our programs call `check_machine`
before they import a trainer, and `check_job` once their env server runs.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from agent_env.client import AgentEnv
from agent_env.errors import AgentEnvError, AtCapacity
from agent_env.training import trained_on
from agent_env.training.config import (
    AsyncGrpoConfig,
    ConfigError,
    EvaluateConfig,
    ProgramConfig,
    SftConfig,
)
from agent_env.training.preflight.gpu import gpu_faults, has_driver
from agent_env.training.preflight.room import room_fault
from agent_env.training.preflight.rows import column, row_faults
from agent_env.training.preflight.source import is_adapter, source_faults
from agent_env.training.preflight.template import load_tokenizer, template_faults
from agent_env.training.preflight.versions import version_faults
from agent_env.training.serving import environments, served_splits
from agent_env.training.trained_on import TrainedOn

if TYPE_CHECKING:
    from agent_env.training.job import Job

__all__ = ["check", "check_job", "check_machine"]

NEED_GPU = frozenset({"unsloth", "vllm", "bitsandbytes"})
"""Packages that are of no use without one."""

_INPUT = "the job's input 'model'"


def check(
    model: str,
    *,
    env: AgentEnv,
    environment_factory: Any,
    train_dataset: Any = None,
    eval_dataset: Any = None,
    sessions: int,
    out: Path | None = None,
    packages: Collection[str] = (),
) -> None:
    """Raises for what a trainer given these would fail at, or worse: go on with in silence.

    `sessions` are the rollouts at once: the larger of a generation's and an eval's batch, or the
    limit of rollouts in flight; each of several factories may need as many. `out` is where the
    checkpoints go. `packages` are used besides TRL and transformers: unsloth, vllm, peft,
    bitsandbytes; all but peft need a GPU.

    Raises ConfigError with a line for each thing to mend, AtCapacity when the server has no room,
    ServerDown and the like when it doesn't answer. Writes `environment.json` into `out`.
    """
    _raise(_before_imports(model, "model", {name: name for name in packages}))
    datasets = {"train_dataset": train_dataset, "eval_dataset": eval_dataset}
    _check_served(env, environment_factory, datasets, sessions)
    now = _check_trained_on(model, "model", env, datasets, out)
    _check_tokenizer(model, "model")
    if out is not None:
        trained_on.write(out, now)


def check_machine(source: str, config: ProgramConfig) -> None:
    """A program's model files, packages and GPU: what can be told before a trainer is imported.

    Raises ConfigError, and AgentEnvError when all that is wrong is a hub that doesn't answer.
    """
    adapters = {_named(config): "peft"} if is_adapter(source) else {}
    stacked = _stacked(source, config) if adapters else ()
    _raise(_before_imports(source, _named(config), adapters | _asked(config), stacked))


def check_job(job: Job[Any], env: AgentEnv, *, sessions: int) -> bool:
    """The rest of it for a program, once its env server runs; `sessions` as in `check`.

    Returns whether what was begun in the job's `out` was begun on this same environment. Raises
    what `check` does, and ConfigError where the server is too small even when nobody uses it.
    """
    config, named = job.config, _named(job.config)
    groups = {
        f"config.{name}": getattr(config, name)
        for name in ("split", "eval_split")
        if hasattr(config, name)
    }
    factories = environments(env, config, *groups.values())
    datasets = {
        name: env.rows(*served_splits(env, config, splits)) for name, splits in groups.items()
    }
    try:
        _check_served(env, factories, datasets, sessions)
    except AtCapacity as error:
        if error.most is None:
            raise
        raise ConfigError([room_fault(config, sessions, error.most)]) from None
    now = _check_trained_on(job.model_source, named, env, datasets, job.out)
    _check_tokenizer(job.model_source, named)
    same = trained_on.is_of(job.out, now)
    trained_on.write(job.out, now)
    return same


def _before_imports(
    source: str, named: str, asked: Mapping[str, str], known: Iterable[str] = ()
) -> list[str]:
    """`asked` is a package by the setting that asks for it, `known` what is found already."""
    versions = version_faults(asked.values(), cuda=has_driver())
    wanting = [setting for setting, package in asked.items() if package in NEED_GPU]
    found = [*known, *versions, *gpu_faults(wanting)]
    try:
        for fault in source_faults(source, named):
            found.append(fault)
    except AgentEnvError:
        if not found:
            raise
    return found


def _stacked(source: str, config: ProgramConfig) -> Iterator[str]:
    """New adapters on a model of adapters would be saved as if they lay on its base."""
    merged = config.unsloth if isinstance(config, SftConfig) else None
    if (config.lora and not isinstance(config, EvaluateConfig)) or merged:
        yield (
            f"config.{'unsloth' if merged else 'lora'}: {source} has adapters itself, and new ones"
            " can't lie on them; merge them into their base first: `python -m"
            f" agent_env.training.merging BASE {source} FOLDER`, and give FOLDER as the model"
        )


def _check_served(
    env: AgentEnv, factories: Any, datasets: Mapping[str, Any], sessions: int
) -> None:
    _raise(
        fault
        for name, rows in datasets.items()
        if rows is not None
        for fault in row_faults(rows, factories, name)
    )
    env.check(sessions=sessions * (len(factories) if isinstance(factories, Mapping) else 1))


def _check_trained_on(
    model: str, named: str, env: AgentEnv, datasets: Mapping[str, Any], out: Path | None
) -> TrainedOn:
    given = [rows for rows in datasets.values() if rows is not None]
    splits = {split for rows in given for split in column(rows, "split") if split is not None}
    now = trained_on.now_served(env, splits)
    faults = list(trained_on.model_faults(Path(model), now, named))
    if out is not None:
        faults += trained_on.resume_faults(out, now)
    _raise(faults)
    return now


def _check_tokenizer(model: str, named: str) -> None:
    if model != "tiny":
        _raise(template_faults(load_tokenizer(model, named), named))


def _asked(config: ProgramConfig) -> dict[str, str]:
    unsloth, lora = config.unsloth, config.lora
    asked = {
        "config.unsloth": "unsloth" if unsloth else None,
        "config.unsloth.fast_inference": "vllm" if unsloth and unsloth.fast_inference else None,
        "config.lora": "peft" if lora else None,
        "config.lora.four_bit": "bitsandbytes" if lora and lora.four_bit else None,
        "config.vllm": "vllm" if config.vllm else None,
        "program: async_grpo": "vllm" if isinstance(config, AsyncGrpoConfig) else None,
    }
    return {setting: package for setting, package in asked.items() if package}


def _named(config: ProgramConfig) -> str:
    return _INPUT if config.model == "input" else "config.model"


def _raise(faults: Iterable[str]) -> None:
    if found := list(faults):
        raise ConfigError(found)
