"""TRL's `environment_factory`, and Unsloth's: environments whose episodes run on an env server.

TRL builds an environment once and resets it for every rollout, so it holds its session across
rollouts. It treats an exception in `reset` as the end of the run, and `None` from `get_reward` as
a rollout to leave out; hence: what the infrastructure did is unscored, never 0, and never raised
once a session has worked. A server that restarts in mid-episode costs time: its sessions go on.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from agent_env.client._policy import Policy
from agent_env.client._site import Site
from agent_env.client.session import Session
from agent_env.errors import AtCapacity, EpisodeFailed, SessionError, ToolError, WrongSplit
from agent_env.training._functions import tool_function, tool_text
from agent_env.types import END_TURN, Observation, ToolSpec

_log = logging.getLogger(__name__)

MAX_TURNS = 64
"""Turns that `get_reward` ends on the model's behalf before it calls the rollout unscored."""


@dataclass
class Rollout:
    """One rollout as its environment saw it."""

    started: bool = False
    done: bool = False
    reward: float | None = None
    lost: str | None = None
    """Why there is no score; None while all is well."""
    scores: dict[str, float] = field(default_factory=dict)
    tool_calls: int = 0
    tool_failures: int = 0
    reopened: int = 0
    continued: int = 0
    """Calls in mid-episode that went on over another connection."""
    waited_s: float = 0.0


class Environment:
    """Base of the classes that factories build; TRL offers its public methods as tools."""

    def __init__(self, factory: Factory) -> None:
        self._factory = factory
        self._session = Session(factory.site, factory.policy)
        self._rollout = Rollout()
        self._unscored = 0
        self._settled = True

    def reset(self, **row: Any) -> str | None:
        """Begin the rollout of a dataset row; returns what is to be added to its prompt.

        Raises SessionError only where no session of this factory ever worked, or where this
        environment's first one found the server full or was for a row of a split with other tools:
        mistakes to be heard at once. Later ones leave the rollout unscored.
        """
        self._rollout, self._settled = Rollout(started=True), False
        try:
            with self._counted():
                observation = self._session.reset(**self._factory.chosen(row))
        except SessionError as error:
            never = not self._factory.site.answered
            mistake = isinstance(error, AtCapacity | WrongSplit)
            if never or (mistake and not self._session.established):
                raise
            self._lose(error)
            return None
        if observation.done:
            self._lose(observation.metadata.get("error"))
        appended: str | None = observation.metadata.get("appended")
        return appended

    def get_reward(self) -> float | None:
        """The rollout's reward; None when the infrastructure lost it."""
        return self._settle().reward

    def _call(self, name: str, arguments: dict[str, Any]) -> str:
        rollout = self._rollout
        if rollout.lost is not None or not rollout.started:
            raise EpisodeFailed("the environment is gone; there is nothing more to do")
        if rollout.done:
            raise ToolError("the episode has ended; there is nothing more to do")
        rollout.tool_calls += 1
        try:
            with self._counted():
                observation = self._session.call_tool(name, arguments)
            return self._read(observation)
        except SessionError as error:
            self._lose(error)
            raise
        except ToolError:
            rollout.tool_failures += 1
            raise

    def _read(self, observation: Observation) -> str:
        """The text for the model. Raises ToolError, and EpisodeFailed for a broken episode."""
        rollout, metadata = self._rollout, observation.metadata
        if observation.reward is not None and not math.isfinite(observation.reward):
            raise EpisodeFailed(f"the environment's reward is {observation.reward}")
        if observation.done or not self._factory.turns:
            rollout.reward = observation.reward
        if observation.done:
            rollout.done = True
            rollout.scores = metadata.get("scores", {})
            if metadata.get("status") == "error":
                raise EpisodeFailed(str(metadata.get("error")))
        return tool_text(observation.model_extra or {})

    def _settle(self) -> Rollout:
        """End an episode that the model left open, and count the rollout; once per rollout."""
        rollout = self._rollout
        if self._settled:
            return rollout
        self._settled = True
        if self._factory.turns:
            self._end_turns(rollout)
        self._unscored += rollout.reward is None
        return rollout

    def _end_turns(self, rollout: Rollout) -> None:
        for _ in range(MAX_TURNS):
            if rollout.done or rollout.lost is not None:
                return
            try:
                with self._counted():
                    observation = self._session.call_tool(END_TURN, {"response": ""})
                self._read(observation)
            except (SessionError, ToolError) as error:
                self._lose(error)
        if not rollout.done and rollout.lost is None:
            self._lose(f"the task asked for more than {MAX_TURNS} turns")

    @contextmanager
    def _counted(self) -> Iterator[None]:
        """What the session goes through in the block is the rollout's."""
        session, rollout = self._session, self._rollout
        reopened, continued, waited_s = session.reopened, session.continued, session.waited_s
        try:
            yield
        finally:
            rollout.reopened += session.reopened - reopened
            rollout.continued += session.continued - continued
            rollout.waited_s += session.waited_s - waited_s

    def _lose(self, why: object) -> None:
        self._rollout.lost = str(why)
        self._rollout.reward = None
        _log.warning("rollout unscored: %s", why)


class Factory:
    """Makes environments of one bundle. Picklable; builds its class where it is called."""

    def __init__(
        self,
        name: str,
        tools: Sequence[ToolSpec],
        splits: Sequence[str],
        site: Site,
        policy: Policy,
    ) -> None:
        self.name = name
        self.tools = tuple(tools)
        self.splits = tuple(splits)
        self.site = site
        self.policy = policy
        self.turns = any(tool.name == END_TURN for tool in self.tools)
        """Whether a model's turn can be ended for it; else the last reward it was told counts."""
        self._class = environment_class(name, self.tools)

    def __call__(self) -> Environment:
        """A new environment, which opens nothing before its first reset."""
        return self._class(self)

    def __getstate__(self) -> dict[str, Any]:
        return {key: value for key, value in vars(self).items() if key != "_class"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self._class = environment_class(self.name, self.tools)

    def chosen(self, row: dict[str, Any]) -> dict[str, Any]:
        """The reset arguments in a dataset row. Raises WrongSplit.

        Without split and index: the first task of the factory's own first split.
        """
        picked = {
            name: row[name] for name in ("split", "index", "seed") if row.get(name) is not None
        }
        if "split" not in picked and "index" not in picked:
            picked |= {"split": self.splits[0], "index": 0}
        split = picked.get("split", self.splits[0])
        if split not in self.splits:
            raise WrongSplit(
                f"the row is of split {split!r}, the factory of: {', '.join(self.splits)};"
                f" take `factory` after dataset({split!r}), or factory_for({split!r})"
            )
        return picked


def environment_class(name: str, tools: Sequence[ToolSpec]) -> type[Environment]:
    """The class of a bundle's environments: a method for each tool, and no other public name.

    Its `__name__` is the bundle's: trainers call the reward's column so.
    """
    methods = {spec.name: tool_function(spec, Environment._call) for spec in tools}
    return type(name, (Environment,), methods)


def metrics(
    environments: Sequence[Any], log_metric: Callable[[str, float], None], **_: Any
) -> list[None]:
    """A `reward_funcs` entry that only logs; the reward stays the environments' own.

    For each batch: the share of unscored rollouts, tool calls and failed ones per rollout, the
    seconds spent waiting, sessions reopened and calls that went on over another connection,
    in all, and the mean of each score by id.
    """
    rollouts = [env._settle() for env in environments if isinstance(env, Environment)]
    if rollouts:
        log_metric("env/unscored", _mean([float(r.reward is None) for r in rollouts]))
        log_metric("env/tool_calls", _mean([float(r.tool_calls) for r in rollouts]))
        log_metric("env/tool_failures", _mean([float(r.tool_failures) for r in rollouts]))
        log_metric("env/reopened", float(sum(r.reopened for r in rollouts)))
        log_metric("env/continued", float(sum(r.continued for r in rollouts)))
        log_metric("env/waited_s", sum(r.waited_s for r in rollouts))
    for score in sorted({name for rollout in rollouts for name in rollout.scores}):
        values = [rollout.scores[score] for rollout in rollouts if score in rollout.scores]
        log_metric(f"score/{score}", _mean(values))
    return [None] * len(environments)


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)
