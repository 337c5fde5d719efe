"""An env server that is killed while a chosen training step's rollouts are under way.

Nothing here waits for a fixed time to hit the moment: the server dies when the last rollout of
the step has begun, and the clock of its return starts when a rollout of the next step first asks
for it. So that step always starts while the server is gone, however slow the machine.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

from transformers import TrainerCallback

from agent_env.client.local import LocalServer
from agent_env.errors import AgentEnvError
from agent_env.training.config import OutageConfig
from agent_env.training.job import JobFailed
from agent_env.training.progress import say

RETURN_TIMEOUT_S = 60.0


class Interruption(TrainerCallback):  # type: ignore[misc]
    """Owns the server; told of steps by the trainer and of resets by the environments."""

    def __init__(self, config: OutageConfig) -> None:
        self._config = config
        self._server = LocalServer(config.bundle, max_sessions=config.rollouts_per_step)
        self.url = self._server.url
        self._step = 0
        self._begun = 0
        self._killed_at = 0.0
        self.down_s: float | None = None
        """From the kill until the server listened again; None before that."""
        self._return = threading.Timer(config.down_s, self._bring_back)
        self._return.daemon = True

    def watched(self, factory: Callable[[], Any]) -> Callable[[], Any]:
        """The factory, of environments whose resets are counted."""

        def make() -> Any:
            environment = factory()
            reset = environment.reset
            environment.reset = lambda **row: self._counted(reset, row)
            return environment

        return make

    def on_step_begin(self, _args: Any, state: Any, _control: Any, **_rest: Any) -> None:
        """The step after next starts with the server back, under either rule."""
        self._step, self._begun = state.global_step + 1, 0
        if self._step == self._config.interrupt_step + 2:
            self._wait_for_return()

    def close(self) -> None:
        """Stop the server, wherever the interruption stands."""
        self._return.cancel()
        if self._return.is_alive():
            self._return.join(RETURN_TIMEOUT_S)
        self._server.stop()

    def _counted(self, reset: Callable[..., Any], row: dict[str, Any]) -> Any:
        if self._step == self._config.interrupt_step + 1 and self._begun == 0:
            self._return.start()
        observation = reset(**row)
        self._begun += 1
        last = self._begun == self._config.rollouts_per_step
        if self._step == self._config.interrupt_step and last:
            self._server.kill()
            self._killed_at = time.monotonic()
            say(f"env server killed in step {self._step}, {self._begun} rollouts begun")
        return observation

    def _bring_back(self) -> None:
        bundle, port = self._config.bundle, self._server.port
        try:
            self._server = LocalServer(
                bundle, port=port, max_sessions=self._config.rollouts_per_step
            )
        except AgentEnvError as error:
            say(f"the env server didn't come back: {error}")
            return
        self.down_s = time.monotonic() - self._killed_at
        say(f"env server back after {self.down_s:.1f} s")

    def _wait_for_return(self) -> None:
        self._return.join(RETURN_TIMEOUT_S)
        if self.down_s is None:
            raise JobFailed(f"the env server didn't come back within {RETURN_TIMEOUT_S:.0f} s")
