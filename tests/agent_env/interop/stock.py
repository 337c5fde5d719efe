"""Stock OpenEnv with a tool environment, as its users write one; runs in .venv-openenv.

    python stock.py --port N [--sessions N] [--no-tasks]

`add` adds to a counter; an episode is over when `finish` was called. The reward says which
environment answered: the count, over 100. An environment that was never reset says so.
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

TASKS = {"train": 3, "test": 2}


class Counting(MCPEnvironment):  # type: ignore[misc] # OpenEnv isn't there where types are checked
    """A counter with a goal."""

    SUPPORTS_CONCURRENT_SESSIONS = True

    def __init__(self) -> None:
        server = FastMCP("counting")
        server.tool(self.add)
        server.tool(self.finish)
        super().__init__(server)
        self._state = State(episode_id=None, step_count=0)
        self.count, self.goal, self.finished, self.was_reset = 0, 0, False, False

    def add(self, n: int) -> str:
        """Add to the counter.

        Args:
            n: what to add
        """
        self.count += n
        return f"{self.count} of {self.goal}"

    def finish(self) -> str:
        """Say that the goal is met."""
        self.finished = True
        return "finished" if self.was_reset else "never reset"

    def reset(
        self,
        seed: int | None = None,
        episode_id: str | None = None,
        split: str = "train",
        index: int = 0,
    ) -> Observation:
        self.count, self.goal = 0, _goal(split, index)
        self.finished, self.was_reset = False, True
        self._state = State(episode_id=episode_id, step_count=0)
        metadata = {"prompt": f"Count to {self.goal}.", "seed": seed}
        return Observation(done=False, reward=0.0, metadata=metadata)

    async def step_async(
        self, action: Any, timeout_s: float | None = None, **more: Any
    ) -> Observation:
        observation = await super().step_async(action, timeout_s, **more)
        self._state.step_count += 1
        observation.done = self.finished
        observation.reward = self.count / 100
        return observation

    def _step_impl(self, _: Any, **__: Any) -> Observation:
        return Observation(done=False, reward=0.0)

    @property
    def state(self) -> State:
        return self._state


class CountingTasks(Counting):
    """The same with OpenEnv's Task API."""

    def list_splits(self) -> list[str]:
        return list(TASKS)

    def num_tasks(self, split: str) -> int:
        return TASKS[split]

    def list_tasks(self, split: str) -> list[dict[str, Any]]:
        return [self.get_task(split, index) for index in range(TASKS[split])]

    def get_task(self, split: str, index: int) -> dict[str, Any]:
        if not 0 <= index < TASKS[split]:
            raise IndexError(index)
        prompt = f"Count to {_goal(split, index)}."
        return {"id": f"{split}-{index}", "split": split, "index": index, "prompt": prompt}

    def get_task_range(
        self, split: str, start: int | None, stop: int | None
    ) -> list[dict[str, Any]]:
        return self.list_tasks(split)[start:stop]


def _goal(split: str, index: int) -> int:
    return 10 * (index + 1) + list(TASKS).index(split)


def main() -> None:
    """Serve until killed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--sessions", type=int, default=64)
    parser.add_argument("--no-tasks", action="store_true")
    args = parser.parse_args()
    app = create_app(
        Counting if args.no_tasks else CountingTasks,
        CallToolAction,
        CallToolObservation,
        env_name="counting",
        max_concurrent_envs=args.sessions,
    )
    uvicorn.run(app, host="127.0.0.1", port=args.port, log_level="critical")


if __name__ == "__main__":
    main()
