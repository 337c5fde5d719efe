"""The client: tasks and datasets of an env server, and sessions that survive its restart."""

from agent_env.client.async_session import AsyncSession
from agent_env.client.env import AgentEnv
from agent_env.client.session import Session

__all__ = ["AgentEnv", "AsyncSession", "Session"]
