"""SkyRL's experiment with our generator, and the entry point that SkyRL is told of:
`trainer.override_entrypoint=agent_env.training.skyrl.experiment`.

Our settings go with SkyRL's own, under `generator.agent_env`.
"""

# No `from __future__ import annotations`: SkyRL reads the fields' types, not their names.
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import ray
import skyrl_gym
from skyrl.backends.skyrl_train.inference_servers.utils import resolve_policy_model_name
from skyrl.train.config import GeneratorConfig, make_config
from skyrl.train.entrypoints.main_base import BasePPOExp
from skyrl.train.utils import validate_cfg
from skyrl.train.utils.utils import initialize_ray
from skyrl_gym.envs.registration import registry

from agent_env.training.job import EXIT_STOPPED
from agent_env.training.skyrl.callbacks import MetricsLines, ModelAtEnd, StopAtStepEnd
from agent_env.training.skyrl.generator import AgentEnvGenerator
from agent_env.training.skyrl.loader import exact
from agent_env.training.skyrl.settings import ENV_CLASS, EnvSettings

ENTRY = "agent_env.training.skyrl.env:AgentTextEnv"


@dataclass
class AgentEnvGeneratorConfig(GeneratorConfig):  # type: ignore[misc]
    """SkyRL's, and the adapter's settings."""

    agent_env: EnvSettings = field(default_factory=EnvSettings)


AgentEnvConfig = make_config(generator_cls=AgentEnvGeneratorConfig)


class AgentEnvExp(BasePPOExp):  # type: ignore[misc]
    """Everything is SkyRL's but the generator, the training rows' order and three callbacks."""

    def get_generator(self, cfg: Any, tokenizer: Any, inference_engine_client: Any) -> Any:
        """The generator that outlives its environments."""
        return AgentEnvGenerator(
            generator_cfg=cfg.generator,
            skyrl_gym_cfg=cfg.environment.skyrl_gym,
            inference_engine_client=inference_engine_client,
            tokenizer=tokenizer,
            policy_model_name=resolve_policy_model_name(cfg),
            settings=cfg.generator.agent_env,
        )

    def get_trainer(self, *arguments: Any, **named: Any) -> Any:
        """SkyRL's trainer, whose rows go on exactly; it writes our metrics lines, leaves a model,
        and stops when it is asked to.
        """
        trainer = super().get_trainer(*arguments, **named)
        trainer.train_dataloader = exact(trainer.train_dataloader, self.cfg.trainer.seed)
        settings = self.cfg.generator.agent_env
        if settings.metrics_file:
            trainer.add_callback(MetricsLines(Path(settings.metrics_file)))
        if settings.model_folder:
            trainer.add_callback(ModelAtEnd(Path(settings.model_folder)))
        if settings.stop_file:
            trainer.add_callback(StopAtStepEnd(Path(settings.stop_file)))
        return trainer


def register(settings: EnvSettings) -> None:
    """Make the environment known in this process; once, SkyRL refuses a name twice."""
    if ENV_CLASS not in registry:
        skyrl_gym.register(id=ENV_CLASS, entry_point=ENTRY, kwargs={"settings": settings})


def run(cfg: Any) -> None:
    """Train; in the process that SkyRL's loop runs in, for the registry is per process."""
    register(cfg.generator.agent_env)
    AgentEnvExp(cfg).run()


def parsed(arguments: list[str]) -> Any:
    """The whole config, checked by SkyRL and by us. Raises ValueError, AssertionError."""
    # SkyRL's entry point looks for this word itself; its config knows no such field.
    words = [word for word in arguments if not word.startswith("trainer.override_entrypoint=")]
    cfg = AgentEnvConfig.from_cli_overrides(words)
    cfg.generator.agent_env.check()
    validate_cfg(cfg)
    return cfg


def main() -> None:
    """What SkyRL's own entry point calls."""
    cfg = parsed(sys.argv[1:])
    initialize_ray(cfg)
    entry = ray.remote(num_cpus=1)(run)
    try:
        ray.get(entry.remote(cfg))
    except ray.exceptions.RayTaskError:
        stop_file = cfg.generator.agent_env.stop_file
        if stop_file and StopAtStepEnd(Path(stop_file)).answered:
            sys.exit(EXIT_STOPPED)
        raise
