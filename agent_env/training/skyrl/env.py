"""SkyRL's environment: text in, messages out, an episode on an env server behind it.

What the infrastructure did is never raised: the step is `done`, with `unscored` and the reason
in its metadata.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from skyrl_gym.envs.base_text_env import BaseTextEnv
from skyrl_gym.metrics import default_aggregate_metrics

from agent_env.errors import AgentEnvError, SessionError, ToolError
from agent_env.training._calls import BadCall, Reply, ToolCall, read_reply
from agent_env.training._episode import Episode, Rollout
from agent_env.training.ray_rollout import RolloutLost
from agent_env.training.skyrl._seat import SEAT, Seat
from agent_env.training.skyrl._server import server_for
from agent_env.training.skyrl.settings import EnvSettings
from agent_env.types import END_TURN, ToolSpec

_log = logging.getLogger(__name__)

Message = dict[str, str]
_NOTHING: dict[str, Any] = {"reward": None, "scores": {}}


class AgentTextEnv(BaseTextEnv):  # type: ignore[misc]
    """One rollout. `extras` is its dataset row; `task` there is what `skyrl_rows` wrote."""

    def __init__(
        self,
        env_config: Any = None,  # noqa: ARG002 - SkyRL's, which has no room for ours
        extras: dict[str, Any] | None = None,
        *,
        settings: EnvSettings,
    ) -> None:
        super().__init__()
        extras = extras or {}
        self.max_turns = int(extras.get("max_turns", 1))
        self._settings = settings
        self._task: dict[str, Any] = json.loads(extras["task"])
        self._name = str(extras.get("trajectory_id", self._task.get("task_id")))
        self._session, self._site = server_for(settings).session()
        self._episode = Episode(self._session, turns=False)
        self._tools: Sequence[ToolSpec] = ()
        self._cut_in_thought = False
        self._abandoned: str | None = None
        self._over = self._closed = self._gone = False
        self._seat: Seat | None = extras.get(SEAT)
        if self._seat is not None:
            self._seat.env = self

    def init(self, prompt: list[Message]) -> tuple[list[Message], dict[str, Any]]:
        """Open the session; the prompt with what the task adds to it.

        Raises RolloutLost, and only to our own generator, which then generates nothing.
        """
        try:
            self._tools = server_for(self._settings).tools(self._task["split"])
            self._episode.turns = any(tool.name == END_TURN for tool in self._tools)
            chosen = {name: self._task[name] for name in ("split", "index", "seed")}
            appended = self._episode.open(**chosen)
        except AgentEnvError as error:
            appended = None
            self._episode.rollout.lost = str(error)
        finally:
            self._hang_up_if_abandoned()
        if self.unscored and self._seat is not None:
            raise RolloutLost(self.unscored)
        messages = with_appended(prompt, appended)
        if self._seat is not None:
            self._seat.check(messages)
        return messages, {}

    def step(self, action: str) -> dict[str, Any]:
        """One turn of the model: its calls in order, or its answer."""
        self.turns += 1
        try:
            reply = read_reply(action, self._task.get("form", "json"), self._tools)
            messages = self._carried_out(reply)
            if self.turns >= self.max_turns or not messages:
                self._settle()
        finally:
            self._hang_up_if_abandoned()
        return self._told(messages)

    def close(self) -> None:
        """End what is open and give the slot back; safe to call twice, raises nothing."""
        if self._closed:
            return
        self._closed = True
        try:
            self._settle()
        finally:
            self._site.close()
            self._gone = True

    def abandon(self, why: str) -> None:
        """Cut it off, from any thread, whatever it waits for; the rollout is unscored."""
        if not self._gone:
            self._closed, self._abandoned = True, why
            self._site.close()

    @property
    def rollout(self) -> Rollout:
        """What became of it so far."""
        return self._episode.rollout

    @property
    def reward(self) -> float | None:
        """None when it is unscored, or still open."""
        return None if self._abandoned else self.rollout.reward

    @property
    def unscored(self) -> str | None:
        """Why there is no score; None while there may be one."""
        if self._abandoned or self.rollout.lost:
            return self._abandoned or self.rollout.lost
        over = self._over and self.reward is None
        return "the episode ended without a reward" if over else None

    def outcome(self, why: str | None = None) -> Rollout:
        """A record that stays as it is; without score or reward when it is lost, for that reason
        if it isn't known already."""
        why = self.unscored or why
        return replace(self.rollout, lost=why, **({} if why is None else _NOTHING))

    def get_metrics(self) -> dict[str, float]:
        """Numbers only: the same names in every rollout, and `score/<id>` where it is scored."""
        rollout = self.rollout
        counts = {
            "unscored": self.unscored is not None,
            "tool_calls": rollout.tool_calls,
            "tool_failures": rollout.tool_failures,
            "turns": rollout.turns,
            "replies": self.turns,
            "cut_in_thought": self._cut_in_thought,
            "reopened": rollout.reopened,
            "continued": rollout.continued,
            "waited_s": rollout.waited_s,
        }
        scored = {} if self.unscored else rollout.scores
        scores = {f"score/{name}": value for name, value in scored.items()}
        return {name: float(value) for name, value in {**counts, **scores}.items()}

    @staticmethod
    def aggregate_metrics(metrics: list[dict[str, Any]]) -> dict[str, Any]:
        """Means over the rollouts that have the number: an unscored one has no score."""
        means: dict[str, Any] = default_aggregate_metrics(metrics)
        return means

    def _settle(self) -> None:
        self._episode.settle()
        self._over = True

    def _carried_out(self, reply: Reply) -> list[Message]:
        """The messages for the model; none when it has nothing more to do."""
        self._cut_in_thought = reply.in_thought
        if reply.calls:
            said = []
            for call in reply.calls:
                if self.rollout.open:
                    said.append({"role": "tool", "content": self._answer_to(call)})
            return said if self.rollout.open else []
        if reply.in_thought or not (self._settings.answers_end_turns and self._episode.turns):
            return []
        prompt = self._episode.answer(reply.text)
        return [] if prompt is None else [{"role": "user", "content": prompt}]

    def _answer_to(self, call: ToolCall | BadCall) -> str:
        if isinstance(call, BadCall):
            self.rollout.tool_calls += 1
            self.rollout.tool_failures += 1
            return call.why
        try:
            return self._episode.call(call.name, call.arguments)
        except (ToolError, SessionError) as error:
            return str(error)

    def _told(self, messages: list[Message]) -> dict[str, Any]:
        done = self._over or not self.rollout.open
        why = self.unscored
        if why is not None:
            _log.warning("rollout %s unscored: %s", self._name, why)
        return {
            "observations": [] if done else messages,
            "reward": float(self.reward or 0.0) if done else 0.0,
            "done": done,
            "metadata": {} if why is None else {"unscored": why},
        }

    def _hang_up_if_abandoned(self) -> None:
        # A connection that was being opened just then escaped the hand that cut it off.
        if self._abandoned is not None:
            self._site.close()


def with_appended(prompt: list[Message], appended: str | None) -> list[Message]:
    """The prompt, its last message the longer by what this episode adds."""
    if not appended:
        return prompt
    *before, last = prompt
    return [*before, {**last, "content": last["content"] + appended}]
