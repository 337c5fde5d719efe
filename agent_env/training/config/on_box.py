"""What a box can't give to a config that is right by itself: a model, a bundle, a server.

A box has the job's inputs, this package and its pins, and nothing else of the machine where the
runbook was written. Asked while a run is planned; free of torch.
"""

from __future__ import annotations

import difflib
import pkgutil
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from agent_env import bundles
from agent_env.bundle import Bundle, load_bundle
from agent_env.errors import BundleError
from agent_env.training.config import (
    CONFIGS,
    AsyncGrpoConfig,
    ConfigError,
    GrpoConfig,
    ProgramConfig,
    parse_config,
)
from agent_env.training.config.addresses import is_loopback
from agent_env.training.config.names import listed

_STACKS = {"verl_grpo": "verl", "skyrl_grpo": "skyrl"}
"""What a program is built on, if it isn't TRL."""


_ADDRESS = re.compile(r"(http|ws)s?://([^/@]*@)?(\[[0-9a-fA-F:.]+\]|[\w.-]+)(:\d+)?(/.*)?")
_HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*(/[A-Za-z0-9][\w.-]*)?")


class Lack(NamedTuple):
    """One thing to mend: the config's field, what is wrong with it, and how to mend it."""

    field: str
    problem: str
    fix: str = ""


class Answer(NamedTuple):
    """What is wrong with a config on a box, and which packages it needs there, by setting."""

    lacks: list[Lack]
    packages: dict[str, list[str]]


def ask(program: str, values: Mapping[str, Any], inputs: Collection[str]) -> Answer:
    """A job's program, its config as the runbook has it, and the names of its inputs."""
    packages = {"program": [_STACKS.get(program, "trl")]}
    try:
        config = parse_config(CONFIGS[program], values)
    except ConfigError as error:
        return Answer([Lack(*_parted(line)) for line in error.faults], packages)
    lacks = [*_model(config, inputs), *_addresses(config), *_bundles(config)]
    return Answer(lacks, packages | _packages(config, packages["program"]))


def _parted(line: str) -> tuple[str, str]:
    where, _, problem = line.partition(": ")
    return (where, problem) if problem else ("config", line)


def _packages(config: ProgramConfig, base: list[str]) -> dict[str, list[str]]:
    unsloth, lora = config.unsloth, config.lora
    asked = {
        "config.unsloth": ["unsloth"] if unsloth else [],
        "config.lora": ["peft"] if lora and not lora.four_bit else [],
        "config.lora.four_bit": ["peft", "bitsandbytes"] if lora and lora.four_bit else [],
        "config.vllm": ["vllm"] if config.vllm else [],
        "program": ["vllm"] if isinstance(config, AsyncGrpoConfig) else [],
    }
    return {setting: [*base, *packages] for setting, packages in asked.items() if packages}


def _model(config: ProgramConfig, inputs: Collection[str]) -> Iterator[Lack]:
    if config.model == "input" and "model" not in inputs:
        yield Lack(
            "config.model",
            "'input', but the job has no input named 'model'",
            "Give it one, `inputs: {model: {job: JOB, path: out/model}}`, or set `model` to a "
            "hub's id.",
        )
    elif not _HUB_ID.fullmatch(config.model):
        yield Lack(
            "config.model",
            f"{config.model!r} is no hub's id, and the box has no folder of this machine",
            "Set a hub's id, or `input` with another job's result as the input `model`.",
        )


def _addresses(config: ProgramConfig) -> Iterator[Lack]:
    if config.env_url and not _ADDRESS.fullmatch(config.env_url):
        yield Lack("config.env_url", f"{config.env_url!r} isn't an address like http://host:8000")
    elif config.env_url and is_loopback(config.env_url):
        yield Lack(
            "config.env_url",
            f"{config.env_url} is the box itself, where no env server runs",
            "Give an address that the box reaches, or leave it out: the program then serves its "
            "bundle.",
        )
    server = config.server_url if isinstance(config, AsyncGrpoConfig) else None
    if server and is_loopback(server):
        yield Lack(
            "config.vllm_url",
            f"{server} is the box itself, where no vLLM server runs",
            "Give the address of one that the box reaches, or set unsloth.fast_inference: true.",
        )


def _bundles(config: ProgramConfig) -> Iterator[Lack]:
    """Nothing of a server that is already there: it has its own bundles."""
    if config.env_url:
        return
    for at, name in enumerate(config.bundles):
        known = [module.name for module in pkgutil.iter_modules(bundles.__path__)]
        if name not in known and not name.startswith("agent_env."):
            yield _no_bundle(name, known)
            continue
        try:
            bundle = load_bundle(name)
        except BundleError as error:
            yield Lack("config.bundle", str(error))
            continue
        fields = [field for field in ("split", "eval_split") if hasattr(config, field)]
        named = {field: listed(getattr(config, field))[at] for field in fields}
        lacks = [*_splits(named, name, bundle.splits)]
        yield from lacks or _tools(config, named, bundle)


def _no_bundle(name: str, known: Sequence[str]) -> Lack:
    near = difflib.get_close_matches(name, known, n=1)
    hint = f", did you mean {near[0]!r}?" if near else f", got {name!r}"
    return Lack(
        "config.bundle",
        f"a box has only {' and '.join(known)}{hint}",
        "Your own bundle needs a `command` job with a `workdir` (docs/bundles.md), or `env_url`.",
    )


def _splits(named: Mapping[str, str], bundle: str, has: Sequence[str]) -> Iterator[Lack]:
    for field, split in named.items():
        if split not in has:
            # The end of the name counts most: `coarse-train` is meant to be `train`.
            near = [name for name in has if split.endswith(name)]
            near = near or difflib.get_close_matches(split, has, n=1) or list(has)
            yield Lack(
                f"config.{field}",
                f"{bundle} has no split {split!r}",
                f"Did you mean {near[0]!r}? It has: {', '.join(has)}.",
            )


def _tools(config: ProgramConfig, named: Mapping[str, str], bundle: Bundle) -> Iterator[Lack]:
    """TRL trains and evaluates with one set of tools; the others ask for each row's."""
    if type(config) is not GrpoConfig:
        return
    tools = bundle.tools(named["split"])
    if bundle.tools(named["eval_split"]) != tools:
        alike = [split for split in bundle.splits if bundle.tools(split) == tools]
        yield Lack(
            "config.eval_split",
            f"{bundle.name}'s {named['eval_split']!r} has other tools than {named['split']!r}",
            f"With the same tools there are: {', '.join(alike)}.",
        )
