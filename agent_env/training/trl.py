"""TRL's `environment_factory`, and Unsloth's: environments whose episodes run on an env server.

TRL builds an environment once and resets it for every rollout, so it holds its session across
rollouts. It treats an exception in `reset` as the end of the run, and `None` from `get_reward` as
a rollout to leave out; hence: what the infrastructure did is unscored, never 0, and never raised
once a session has worked. A server that restarts in mid-episode costs time: its sessions go on.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from agent_env.client._policy import Policy
from agent_env.client._site import Site
from agent_env.client.session import Session
from agent_env.errors import AtCapacity, SessionError, TooManyUnscored, WrongSplit
from agent_env.training._episode import Episode, Rollout
from agent_env.training._functions import tool_function
from agent_env.training.guard import UnscoredGuard
from agent_env.training.sums import episode_numbers
from agent_env.types import END_TURN, ToolSpec


class Environment:
    """Base of the classes that factories build; TRL offers its public methods as tools."""

    def __init__(self, factory: Factory) -> None:
        self._factory = factory
        session = Session(factory.site, factory.policy)
        self._episode = Episode(session, turns=factory.turns)
        self._unscored = 0
        self._settled = True

    def reset(self, **row: Any) -> str | None:
        """Begin the rollout of a dataset row; returns what is to be added to its prompt.

        Raises SessionError only where no session of this factory ever worked, or where this
        environment's first one found the server full or was for a row of a split with other tools:
        mistakes to be heard at once. Later ones leave the rollout unscored.
        """
        self._settled = False
        self._episode.begin()
        try:
            return self._episode.open(**self._factory.chosen(row))
        except SessionError as error:
            never = not self._factory.site.answered
            mistake = isinstance(error, AtCapacity | WrongSplit)
            if never or (mistake and not self._session.established):
                raise
            if self._rollout.lost is None:  # a row of another split is found before any call
                self._episode.lose(error)
            return None

    def get_reward(self) -> float | None:
        """The rollout's reward; None when the infrastructure lost it."""
        return self._settle().reward

    def _call(self, name: str, arguments: dict[str, Any]) -> str:
        return self._episode.call(name, arguments)

    def _settle(self) -> Rollout:
        """End an episode that the model left open, and count the rollout; once per rollout."""
        if not self._settled:
            self._settled = True
            self._unscored += self._episode.settle().reward is None
        return self._rollout

    @property
    def _rollout(self) -> Rollout:
        return self._episode.rollout

    @property
    def _session(self) -> Session:
        return self._episode.session

    @_session.setter
    def _session(self, session: Session) -> None:
        self._episode.session = session


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

    For each batch: the share of unscored rollouts, tool calls, failed ones and turns per rollout,
    the seconds spent waiting, sessions reopened and calls that went on over another connection,
    in all, and the mean of each score by id.
    """
    rollouts = [env._settle() for env in environments if isinstance(env, Environment)]
    for name, value in episode_numbers(rollouts).items():
        log_metric(name, value)
    return [None] * len(environments)


class UnscoredLimit:
    """`metrics` that also ends the run when too many of the last rollouts are unscored.

    `share` is what may be, from 0 to 1, of the last `rollouts`; give it those of a few steps, so
    that an outage is lived through. In evals it counts, too. Raises TooManyUnscored out of the
    trainer: what was trained since its last checkpoint is little.
    """

    __name__ = "metrics"

    def __init__(self, share: float = 0.5, *, rollouts: int) -> None:
        self._guard = UnscoredGuard(share, rollouts)

    def __call__(
        self, environments: Sequence[Any], log_metric: Callable[[str, float], None], **_: Any
    ) -> list[None]:
        """Log, count, and raise."""
        given = metrics(environments, log_metric)
        for env in environments:
            if isinstance(env, Environment):
                rollout = env._settle()
                self._guard.count(rollout.reward is not None, rollout.lost)
        if why := self._guard.tripped:
            raise TooManyUnscored(
                f"{why}. Mend the env server, then train on from the last checkpoint: "
                "trainer.train(resume_from_checkpoint=True)"
            )
        return given
