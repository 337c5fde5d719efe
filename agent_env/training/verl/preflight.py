"""What would end a verl run after its model is loaded, or hang it without a word: asked before."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from contextlib import closing
from typing import Any

from agent_env.client import AgentEnv
from agent_env.errors import SessionError
from agent_env.training._episode import Episode
from agent_env.training.config import ConfigError
from agent_env.training.config.addresses import is_loopback
from agent_env.training.preflight.gpu import has_driver
from agent_env.training.preflight.versions import installed
from agent_env.training.ray_rollout import prompt_ids, shown, too_long
from agent_env.training.verl.dataset import MADE_BY, names_task
from agent_env.training.verl.loop_file import LoopSettings
from agent_env.training.verl.overrides import VerlRun
from agent_env.training.verl.peer import has_turns

VERSION = "0.9.1"
"""The verl whose loop, settings and files this package knows."""


def check(
    run: VerlRun,
    settings: LoopSettings,
    env: AgentEnv,
    given: Iterable[dict[str, Any]],
    tokenizer: Any,
    *,
    cpus: int | None = None,
) -> None:
    """Raises ConfigError with a line for each thing to mend; AtCapacity, ServerDown and the like.

    `given` are the dataset's rows; `cpus` those of this node, counted when left out.
    """
    given = list(given)
    faults = [*node_faults(run, settings, cpus=cpus or os.cpu_count() or 1)]
    if len(given) < run.prompts_per_step:
        faults.append(
            f"split: a step takes {run.prompts_per_step} different tasks, and there are"
            f" {len(given)}: verl divides by the steps in an epoch"
        )
    known = [row for row in given if names_task(row)]
    if lacking := len(given) - len(known):
        faults.append(
            f"rows: {lacking} of {len(given)} name no split and index in extra_info: {MADE_BY}"
        )
    faults += prompt_faults(run, settings, env, known, tokenizer)
    if faults:
        raise ConfigError(faults)
    env.check(sessions=settings.sessions)


def machine_faults(*, nodes: int, own_ray: bool) -> list[str]:
    """What keeps this machine from running verl at all; nothing of it is imported."""
    faults = []
    if nodes > 1 and own_ray:
        faults.append(
            f"config.nodes: {nodes} nodes need Ray on each, started with one token, and"
            " RAY_ADDRESS naming the head's"
        )
    if installed("verl") != VERSION:
        found = installed("verl")
        has = "isn't installed" if found is None else f"{found} is installed"
        faults.append(f"verl: {has}, this adapter is for {VERSION}: on a box `pins: verl`")
    if not has_driver():
        faults.append("verl: trains on an NVIDIA GPU, and this machine has no driver for one")
    return faults


def node_faults(run: VerlRun, settings: LoopSettings, *, cpus: int) -> list[str]:
    """What doesn't fit on the nodes, or can't be reached from them."""
    faults = []
    if not run.own_ray and cpus < run.cpus:
        faults.append(
            f"cpus: verl's parts on the head ask Ray for {run.cpus} and wait without end where it"
            f" counts {cpus}: start it with `ray start --head --num-cpus {run.cpus}`"
        )
    if run.nodes > 1 and is_loopback(settings.url):
        faults.append(
            f"url: {settings.url} is another machine on each of {run.nodes} nodes; serve on an"
            " address that all of them reach, such as the head's private one"
        )
    if settings.sessions < run.workers:
        faults.append(
            f"sessions: {run.workers} workers play at least one rollout each, and the server has"
            f" {settings.sessions} for them; use fewer workers or more sessions"
        )
    return faults


def prompt_faults(
    run: VerlRun,
    settings: LoopSettings,
    env: AgentEnv,
    given: Iterable[dict[str, Any]],
    tokenizer: Any,
) -> list[str]:
    """The longest prompt that is over the limit, measured with its tools."""
    lengths = {}
    for row in given:
        told = row["extra_info"]
        tools = shown(env.tools(told["split"]), text_ends_turn=settings.text_ends_turn)
        ids = prompt_ids(tokenizer, row["prompt"], tools=tools)
        lengths[f"{told['split']}[{told['index']}]"] = len(ids)
    return list(too_long(lengths, run.prompt_tokens))


def score_ids(env: AgentEnv, splits: Sequence[str]) -> tuple[str, ...]:
    """The ids of the scores that these splits' tasks record: one episode of each is played.

    Raises SessionError when an episode can't be scored, ValueError when its reward is none.
    """
    found: set[str] = set()
    for split in splits:
        with closing(env.session()) as session:
            episode = Episode(session, turns=has_turns(env.tools(split)))
            episode.open(split=split, index=0)
            rollout = episode.settle()
        if rollout.lost is not None:
            raise SessionError(f"{split}[0] can't be scored: {rollout.lost}")
        found.update(rollout.scores)
    return tuple(sorted(found))
