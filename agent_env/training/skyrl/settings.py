"""What the adapter is told. SkyRL's own settings are strict, so these go with its generator's:
`generator.agent_env.url=…` on its command line.
"""

# No `from __future__ import annotations`: SkyRL reads the fields' types, not their names.
import math
from dataclasses import dataclass

from agent_env.client._policy import Policy

ENV_CLASS = "agent_env"
"""The id under which the environment is registered, and the rows' `env_class`."""


@dataclass(frozen=True)
class EnvSettings:
    """Times in seconds. The server's token is taken from AGENT_ENV_TOKEN, never from here."""

    url: str = ""
    owner: str = ""
    """A name that is the same at each start of the run: the next start has this one's sessions,
    should it die. Only one process at a time may use it."""
    patience_s: float = 15.0
    """For room on a full server: more than the ten seconds for which a server keeps the place of
    a session that broke off, for a rollout only asks once one is said to be free."""
    reset_timeout_s: float = 60.0
    """For the reply to a reset, and for a server that restarts."""
    step_timeout_s: float = 60.0
    deadline_s: float = 600.0
    """For a whole rollout, its generation included, from when it has a session's place."""
    answers_end_turns: bool = True
    """Whether a reply without a call is the answer to the task; else it ends the rollout."""
    max_unscored: float = 0.5
    """Share of the recent rollouts that may be lost before the run ends."""
    judged_rollouts: int = 64
    """How many rollouts that share is taken over; a few steps' worth."""
    metrics_file: str = ""
    """Where a line is written for each step and each eval; none if empty."""
    stop_file: str = ""
    """When this file appears, the run checkpoints at the end of its step and ends."""
    model_folder: str = ""
    """Where the model is left after `trainer.max_training_steps`; SkyRL's own way if empty."""

    def check(self) -> None:
        """Raises ValueError, naming the setting."""
        if not self.url:
            raise ValueError("generator.agent_env.url: name the env server, http://host:port")
        if not 0 < self.deadline_s < math.inf:
            raise ValueError(f"generator.agent_env.deadline_s: more than 0, not {self.deadline_s}")
        self.policy()

    def policy(self) -> Policy:
        """How patient each session is. Raises ValueError."""
        return Policy(
            patience=self.patience_s,
            reset_timeout=self.reset_timeout_s,
            step_timeout=self.step_timeout_s,
            waits_for_server=True,
        )
