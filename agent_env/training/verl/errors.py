"""Why a rollout has no reward. verl drops a rollout that raises from its group; none is a zero."""

from __future__ import annotations

from agent_env.errors import AgentEnvError


class RolloutLost(AgentEnvError):
    """The infrastructure lost the rollout: its server, its model server, or its time was up."""


class PromptTooLong(AgentEnvError):
    """The prompt with its tools is over `data.max_prompt_length`; cut, it would lose the tools."""


class TooManyUnscored(AgentEnvError):
    """So many rollouts were lost that the run must end: nothing would be trained on but luck."""
