"""The same tool on stock OpenEnv, as its users write it: `create_app` over an MCPEnvironment.

Runs in .venv-openenv: `.venv-openenv/bin/python benchmarks/env/stock.py --port N`.
"""

from __future__ import annotations

import argparse
from typing import Any

import uvicorn
from fastmcp import FastMCP
from openenv.core.env_server.http_server import create_app
from openenv.core.env_server.mcp_environment import MCPEnvironment
from openenv.core.env_server.mcp_types import CallToolAction, CallToolObservation
from openenv.core.env_server.types import Observation, State


class Tally(MCPEnvironment):  # type: ignore[misc] # OpenEnv isn't there where types are checked
    """One tool, `add`."""

    SUPPORTS_CONCURRENT_SESSIONS = True

    def __init__(self) -> None:
        server = FastMCP("tally")
        server.tool(add)
        super().__init__(server)
        self._state = State(episode_id="tally", step_count=0)

    def reset(self, **_: Any) -> Observation:
        return Observation(done=False, reward=0.0)

    def _step_impl(self, _: Any, **__: Any) -> Observation:
        return Observation(done=False, reward=0.0)

    @property
    def state(self) -> State:
        return self._state


def add(a: int, b: int) -> str:
    """Add two numbers.

    Args:
        a: the first number
        b: the second number
    """
    return str(a + b)


def main() -> None:
    """Serve until killed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, required=True)
    port: int = parser.parse_args().port
    app = create_app(
        Tally, CallToolAction, CallToolObservation, env_name="tally", max_concurrent_envs=512
    )
    uvicorn.run(app, host="127.0.0.1", port=port, log_level="critical")


if __name__ == "__main__":
    main()
