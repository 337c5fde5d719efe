"""Why verl drops a rollout beside those that the infrastructure lost; none is a zero."""

from __future__ import annotations

from agent_env.errors import AgentEnvError


class PromptTooLong(AgentEnvError):
    """The prompt with its tools is over `data.max_prompt_length`; cut, it would lose the tools."""
