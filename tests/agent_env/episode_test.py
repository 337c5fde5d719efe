"""One episode without a socket: what it makes of a task that misbehaves, and of the reward."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import pytest

from agent_env import Bundle, Task, TaskData, tool
from agent_env.errors import BundleError
from agent_env.server.episode import Episode, Outcome, choose
from agent_env.server.protocol import Reset, Step
from agent_env.server.served import Reward, serve

Scores = Callable[[], dict[str, float]]


class Judged(Task):
    """Ends at once, with the scores that its bundle was given."""

    scores: Scores

    @tool
    def stop(self) -> str:
        """End the episode."""
        self.done = True
        return "stopped"

    def score(self) -> dict[str, float]:
        return type(self).scores()


class JudgedBundle(Bundle):
    splits: tuple[str, ...] = ("all",)

    def __init__(self, scores: Scores = lambda: {"near": 0.5}, name: str = "judged") -> None:
        self.name = name
        self._kind = type("Mine", (Judged,), {"scores": staticmethod(scores)})

    def tasks(self, split: str) -> Sequence[TaskData]:
        return [TaskData(id=f"{self.name}-0", name="t", split=split, index=0, prompt="p")]

    def open(self, data: TaskData) -> Task:
        task: Task = self._kind(data)
        return task


def begun(bundle: Bundle, reward: Reward = None) -> Episode:
    served = serve(bundle, reward)
    return Episode(served, choose(served, Reset()))


def played(bundle: Bundle, reward: Reward = None) -> Outcome:
    episode = begun(bundle, reward)
    episode.reset()
    return episode.step(Step("stop", {}))


@pytest.mark.parametrize(
    "reward, expected",
    [("fast", 1.0), (lambda scores: sum(scores.values()) / 2, 0.75), (lambda _: None, None)],
)
def test_the_reward_is_a_score_or_made_of_the_scores(
    reward: Reward, expected: float | None
) -> None:
    observation = played(JudgedBundle(lambda: {"near": 0.5, "fast": 1.0}), reward)
    assert (observation.done, observation.reward) == (True, expected)
    assert observation.metadata["scores"] == {"near": 0.5, "fast": 1.0}


def _broken() -> dict[str, float]:
    raise ZeroDivisionError("no optimum")


@pytest.mark.parametrize(
    "scores, reward, why",
    [
        (_broken, None, "no optimum"),
        (lambda: {"near": 1.5}, None, "'near' is 1.5"),
        (lambda: {"near": math.nan}, None, "nan"),
        (lambda: {"near": 0.5, "fast": 1.0}, None, "fast, near"),
        (lambda: {"near": 0.5}, "nearer", "nearer"),
        (lambda: {"near": 0.5}, lambda _: math.inf, "inf"),
    ],
)
def test_a_reward_that_can_not_be_had_is_none_and_says_why(
    scores: Scores, reward: Reward, why: str
) -> None:
    observation = played(JudgedBundle(scores), reward)
    assert (observation.done, observation.reward) == (True, None)
    assert observation.metadata["status"] == "error"
    assert observation.metadata["error"].startswith("no reward: ")
    assert why in observation.metadata["error"]


def test_a_task_that_can_not_be_opened_is_an_observation() -> None:
    class Closed(JudgedBundle):
        broken = False

        def open(self, data: TaskData) -> Task:
            if self.broken:
                raise OSError("no disk")
            return super().open(data)

    bundle = Closed()
    episode = begun(bundle)
    bundle.broken = True
    observation = episode.reset()
    assert (observation.done, observation.reward) == (True, None)
    assert "no disk" in observation.metadata["error"]


def test_one_bundle_keeps_its_splits_and_several_are_told_apart() -> None:
    one = JudgedBundle()
    two = JudgedBundle(name="other.kind")
    two.splits = ("train", "eval")
    assert list(serve(two, None).splits) == ["train", "eval"]
    served = serve([one, two], None)
    assert list(served.splits) == ["judged", "other.kind/train", "other.kind/eval"]
    assert served.name == "judged+other_kind"
    assert list(serve({"a": one, "b": one}, None).splits) == ["a", "b"]
    listed = served.splits["other.kind/eval"]
    assert listed.listed(listed.tasks[0]).split == "other.kind/eval"


def test_what_can_not_be_served_is_refused_before_it_is() -> None:
    class Empty(JudgedBundle):
        def tasks(self, split: str) -> Sequence[TaskData]:
            return []

    class Misnumbered(JudgedBundle):
        def tasks(self, split: str) -> Sequence[TaskData]:
            return [TaskData(id="t", name="t", split=split, index=7, prompt="p")]

    nothing = JudgedBundle()
    nothing.splits = ()
    for bundles, complaint in [
        (Empty(), "has no tasks"),
        (Misnumbered(), "position 0: the task says split 'all', index 7"),
        (nothing, "nothing to serve"),
    ]:
        with pytest.raises(BundleError, match=complaint):
            serve(bundles, None)
    with pytest.raises(BundleError, match="two bundles are called"):
        serve([JudgedBundle(), JudgedBundle()], None)
