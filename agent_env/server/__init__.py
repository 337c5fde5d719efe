"""The env server: OpenEnv's protocol over Starlette."""

from agent_env.server.app import build_app

__all__ = ["build_app"]
