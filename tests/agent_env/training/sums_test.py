"""A group of equal rewards teaches nothing; one that wasn't scored is another matter."""

from __future__ import annotations

import pytest

from agent_env.training.sums import flat_share


@pytest.mark.parametrize(
    ("rewards", "share"),
    [
        ([0.0, 0.0, 1.0, 1.0], 1.0),
        ([0.0, 0.0, 0.0, 1.0], 0.5),
        ([0.0, 1.0, 1.0, 0.0], 0.0),
        ([0.1 + 0.2, 0.3, 0.0, 1.0], 0.5),
        ([0.5, None, 0.0, 1.0], 0.0),
        ([None, None, 1.0, 1.0], 1.0),
        ([None, None, None, 1.0], None),
        ([None] * 4, None),
    ],
)
def test_the_share_is_of_groups_with_two_scored_rollouts(
    rewards: list[float | None], share: float | None
) -> None:
    assert flat_share(rewards, [0, 0, 1, 1]) == share


def test_groups_may_come_mixed() -> None:
    assert flat_share([0.0, 1.0, 0.0, 1.0], ["a", "b", "a", "b"]) == 1.0
