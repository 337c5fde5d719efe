"""An env server that is killed when a step's last rollout has begun, and started again soon."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable
from typing import Any
from urllib.request import urlopen

from transformers import TrainerCallback

from agent_env.client.local import LocalServer
from agent_env.errors import AgentEnvError

DOWN_S = 1.0
CLOSED_WITHIN_S = 5.0


class Outage(TrainerCallback):  # type: ignore[misc]
    """Told of steps by the trainer, and of resets by the environments."""

    def __init__(self, server: LocalServer, *, step: int, rollouts: int) -> None:
        self._server = server
        self._at = step, rollouts
        self._step = self._begun = 0
        self._killed_at = 0.0
        self._return = threading.Timer(DOWN_S, self._bring_back)
        self._return.daemon = True
        self.over = False
        """Whether the server was killed and listened again."""
        self.told = "the server was never killed"

    def watched(self, factory: Callable[[], Any]) -> Callable[[], Any]:
        """The factory, of environments whose resets are counted."""

        def make() -> Any:
            environment = factory()
            reset = environment.reset
            environment.reset = lambda **row: self._counted(reset, row)
            return environment

        return make

    def on_step_begin(self, _args: Any, state: Any, _control: Any, **_rest: Any) -> None:
        self._step, self._begun = state.global_step + 1, 0

    def on_step_end(self, _args: Any, _state: Any, _control: Any, **_rest: Any) -> None:
        self._step = 0

    def _counted(self, reset: Callable[..., Any], row: dict[str, Any]) -> Any:
        observation = reset(**row)
        self._begun += 1
        if (self._step, self._begun) == self._at and not self._killed_at:
            self._server.kill()
            self._killed_at = time.monotonic()
            self.told = "never came back"
            self._return.start()
        return observation

    def _bring_back(self) -> None:
        try:
            self._server.restart()
        except AgentEnvError as error:
            self.told = f"didn't come back: {error}"
            return
        self.over = True
        self.told = f"back after {time.monotonic() - self._killed_at:.1f} s"


def open_sessions(url: str) -> int:
    """How many sessions the server holds, once it had the time to see the last one go."""
    deadline = time.monotonic() + CLOSED_WITHIN_S
    while True:
        with urlopen(f"{url}/capacity", timeout=CLOSED_WITHIN_S) as answer:  # noqa: S310 - ours
            active = int(json.load(answer)["active_sessions"])
        if not active or time.monotonic() > deadline:
            return active
        threading.Event().wait(0.1)
