"""An env server that is killed while a chosen training step's rollouts are in mid-episode.

Nothing here waits for a fixed time to hit the moment. All of the step's rollouts have begun when
the server dies, and none is over: it dies so many seconds into the step, and under the step's
first tool call if that comes sooner. Where the step then goes on without it, the clock of its
return starts when a rollout of the next step first asks for it, so that step always starts while
the server is gone, however slow the machine.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from transformers import TrainerCallback

from agent_env.client.local import LocalServer, StockServer
from agent_env.errors import AgentEnvError
from agent_env.training.config import OutageConfig
from agent_env.training.job import JobFailed
from agent_env.training.progress import say

RETURN_TIMEOUT_S = 60.0
"""From when the server is started again until it has to listen."""
CALL_ON_ITS_WAY_S = 0.05
"""From a call to a server that stands still until that one dies: for the call to be sent."""


@dataclass(frozen=True)
class Rule:
    """What a rule of the config means."""

    waits: bool = True
    """Sessions wait for a server that refuses connections, as long as a reset may take."""
    journal: bool = False
    """The server writes its sessions down, and goes on with them when it is back."""
    stock: bool = False
    """It is OpenEnv's own."""


RULES = {
    "old": Rule(waits=False),
    "seed": Rule(),
    "continued": Rule(journal=True),
    "stock": Rule(stock=True),
}


class Interruption(TrainerCallback):  # type: ignore[misc]
    """Owns the server; told of steps by the trainer, of resets and calls by the environments."""

    def __init__(self, config: OutageConfig, journal: Path) -> None:
        """Start the server; `journal` is the folder for the rule that has one.

        Raises ServerDown, and NotInstalled where OpenEnv isn't there.
        """
        self._config = config
        self.rule = RULES[config.rule]
        self._server = _started(config, self.rule, journal)
        self.url = self._server.url
        self.counts: dict[str, int] = {}
        """What became of the interrupted step's rollouts; empty before its end."""
        self.stopped_after_s: float | None = None
        """From the step's begin until the kill; None before that."""
        self.down_s: float | None = None
        """From the kill until the server listened again; None before that."""
        self._step = 0
        self._began_at = self._killed_at = 0.0
        self._begun: list[Any] = []
        self._due = False
        self._turn = threading.Lock()
        self._stop = _timer(config.interrupt_after_s, self._time_is_up)
        self._return = _timer(config.down_s, self._bring_back)

    def watched(self, factory: Callable[[], Any]) -> Callable[[], Any]:
        """The factory, of environments whose resets and calls are seen."""

        def make() -> Any:
            environment = factory()
            reset, call = environment.reset, environment._session.call_tool
            environment.reset = lambda **row: self._reset(environment, reset, row)
            environment._session.call_tool = lambda *what: self._call(call, what)
            return environment

        return make

    def on_step_begin(self, _args: Any, state: Any, _control: Any, **_rest: Any) -> None:
        """The step after next starts with the server back, under every rule."""
        self._step, self._begun = state.global_step + 1, []
        if self._step == self._config.interrupt_step:
            self._began_at = time.monotonic()
            self._stop.start()
        if self._step == self._config.interrupt_step + 2:
            self._wait_for_return()

    def on_step_end(self, _args: Any, state: Any, _control: Any, **_rest: Any) -> None:
        """Count what the interrupted step's rollouts went through. Raises JobFailed for a miss."""
        if state.global_step != self._config.interrupt_step:
            return
        if self.stopped_after_s is None:
            raise JobFailed(
                f"step {state.global_step} was over before the server was stopped: no tool was"
                f" called in it, and it took less than {self._config.interrupt_after_s:g} s"
            )
        seen = [environment._settle() for environment in self._begun]
        told = [environment.get_reward() for environment in self._begun]
        lost = [reward for one, reward in zip(seen, told, strict=True) if one.lost is not None]
        self.counts = {
            "continued": sum(one.continued > 0 for one in seen),
            "zero": sum(reward is not None for reward in lost),
        }

    def close(self) -> None:
        """Stop the server, wherever the interruption stands."""
        for timer in (self._stop, self._return):
            timer.cancel()
            if timer.is_alive():
                timer.join(RETURN_TIMEOUT_S)
        self._server.stop()

    def _reset(self, environment: Any, reset: Callable[..., Any], row: dict[str, Any]) -> Any:
        if self._step == self._config.interrupt_step + 1 and not self._begun:
            self._start_return()
        observation = reset(**row)
        with self._turn:
            self._begun.append(environment)
            if self._due:
                self._kill_if_all_begun("as its last rollout began")
        return observation

    def _call(self, call: Callable[..., Any], what: tuple[Any, ...]) -> Any:
        with self._turn:
            if self._step == self._config.interrupt_step and self.stopped_after_s is None:
                # It stands still first, so that it can't answer before it dies.
                os.kill(self._server.pid, signal.SIGSTOP)
                _timer(CALL_ON_ITS_WAY_S, self._kill_under_a_call).start()
        return call(*what)

    def _time_is_up(self) -> None:
        with self._turn:
            self._due = True
            self._kill_if_all_begun("as its time was up")

    def _kill_under_a_call(self) -> None:
        with self._turn:
            self._kill("under its first tool call")

    def _kill_if_all_begun(self, when: str) -> None:
        if len(self._begun) == self._config.rollouts_per_step:
            self._kill(when)

    def _kill(self, when: str) -> None:
        if self.stopped_after_s is not None:
            return
        self._server.kill()
        self._killed_at = time.monotonic()
        self.stopped_after_s = self._killed_at - self._began_at
        say(f"env server killed {self.stopped_after_s:.1f} s into step {self._step}, {when}")
        if self.rule.journal:
            self._start_return()

    def _start_return(self) -> None:
        if self._return.ident is None:
            self._return.start()

    def _bring_back(self) -> None:
        try:
            self._server.restart()
        except AgentEnvError as error:
            say(f"the env server didn't come back: {error}")
            return
        self.down_s = time.monotonic() - self._killed_at
        say(f"env server back after {self.down_s:.1f} s")

    def _wait_for_return(self) -> None:
        self._return.join(self._config.down_s + RETURN_TIMEOUT_S)
        if self.down_s is None:
            raise JobFailed(f"the env server didn't come back within {RETURN_TIMEOUT_S:.0f} s")


def _started(config: OutageConfig, rule: Rule, journal: Path) -> LocalServer:
    sessions = config.rollouts_per_step
    if rule.stock:
        return StockServer(config.bundle, max_sessions=sessions)
    return LocalServer(
        config.bundle,
        max_sessions=sessions,
        reward=config.reward,
        journal=journal if rule.journal else None,
    )


def _timer(after_s: float, act: Callable[[], None]) -> threading.Timer:
    timer = threading.Timer(after_s, act)
    timer.daemon = True
    return timer
