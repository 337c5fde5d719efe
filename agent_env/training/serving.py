"""The environments a program trains on: a server that is already there, or one of its own."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from agent_env.bundle import load_bundle
from agent_env.client import AgentEnv
from agent_env.errors import BundleError
from agent_env.training.config import ConfigError, ProgramConfig
from agent_env.training.config.names import listed
from agent_env.training.owner import job_owner

Splits = str | tuple[str, ...]
"""As a config has them: one for each bundle."""


def open_env(config: ProgramConfig, *, sessions: int) -> AgentEnv:
    """The env server, to be closed after use; `sessions` is how many rollouts run at once.

    A trainer keeps so many environments of each bundle. Raises ConfigError for a bundle that can't
    be loaded, and when a server that is already there makes its rewards of something else than
    the config says.
    """
    if config.env_url:
        env = AgentEnv(config.env_url, owner=job_owner())
        _check_reward(env, config.reward)
        return env
    check_bundles(config)
    room = sessions * len(config.bundles)
    return AgentEnv.local(config.bundles, max_sessions=room, reward=config.reward)


def check_bundles(config: ProgramConfig) -> None:
    """Raises ConfigError for those that can't be served: trying again would not help."""
    for name in config.bundles:
        try:
            load_bundle(name)
        except BundleError as error:
            raise ConfigError([f"config.bundle: {error}"]) from None


def served_splits(env: AgentEnv, config: ProgramConfig, splits: Splits) -> list[str]:
    """The names that the server has for the config's splits, in the order of its bundles.

    Raises ConfigError for one that it doesn't have.
    """
    pairs = zip(config.bundles, listed(splits), strict=True)
    named = "split" if getattr(config, "split", splits) == splits else "eval_split"
    return [_served(env, config, bundle, split, named) for bundle, split in pairs]


def environments(env: AgentEnv, config: ProgramConfig, *groups: Splits) -> Any:
    """What `environment_factory` takes for the rows of those splits: of several bundles, a dict.

    Raises ConfigError where the splits of one bundle differ in their tools.
    """
    served = [served_splits(env, config, splits) for splits in groups]
    try:
        made: list[Any] = [env.factory_for(*of_one) for of_one in zip(*served, strict=True)]
    except ValueError as error:
        raise ConfigError([f"config.split: {error}"]) from None
    return made[0] if len(made) == 1 else {factory.name: factory for factory in made}


def task_rows(env: AgentEnv, splits: str | Sequence[str], limit: int | None = None) -> Any:
    """The dataset of the server's `splits`, or of the first `limit` tasks of each."""
    names = [splits] if isinstance(splits, str) else list(splits)
    rows = env.dataset(*names)
    if limit is None:
        return rows
    return rows.select([at for at, index in enumerate(rows["index"]) if index < limit])


def _served(env: AgentEnv, config: ProgramConfig, bundle: str, split: str, named: str) -> str:
    name = bundle if config.env_url else load_bundle(bundle).name
    # Alone, a bundle keeps its splits' names; of several, one with a single split has its own.
    alone = [split] if len(config.bundles) == 1 else []
    for served in (f"{name}/{split}", *alone, name):
        if served in env.splits:
            return served
    raise ConfigError(
        [f"config.{named}: {bundle} has no split {split!r} there; it has: {', '.join(env.splits)}"]
    )


def _check_reward(env: AgentEnv, asked: str | None) -> None:
    if asked is not None and env.reward != asked:
        has = "the bundle's own rule" if env.reward is None else f"{env.reward!r}"
        raise ConfigError(
            [
                f"config.reward: {asked!r} is asked for, the server at {env.url} has {has}: "
                f"start it with --reward {asked}"
            ]
        )
