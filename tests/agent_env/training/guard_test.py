"""A run whose rollouts get no score any more is ended, and told why."""

from __future__ import annotations

import pytest

from agent_env.training.guard import UnscoredGuard


def watched(limit: float, rollouts: int, *scored: bool) -> UnscoredGuard:
    guard = UnscoredGuard(limit, rollouts)
    for one in scored:
        guard.count(one, None if one else "the server is gone")
    return guard


def test_nothing_is_judged_before_there_are_enough_rollouts() -> None:
    assert watched(0.5, 4, False, False, False).tripped is None
    assert watched(0.5, 4, False, False, False, True).tripped is not None


def test_a_share_that_reaches_the_limit_is_allowed_and_one_above_it_is_not() -> None:
    assert watched(0.5, 4, True, True, False, False).tripped is None
    assert watched(0.5, 4, True, False, False, False).tripped == (
        "75% of the last 4 rollouts are unscored, the limit is 50%: the server is gone (3 times)"
    )


def test_only_the_recent_rollouts_count() -> None:
    assert watched(0.5, 2, False, False, True, True).share == 0.0


def test_the_most_frequent_reasons_are_told_first() -> None:
    guard = UnscoredGuard(0.0, 3)
    for why in ("full", "gone", "gone"):
        guard.count(False, why)
    assert str(guard.tripped).endswith(": gone (2 times); full (1 times)")


@pytest.mark.parametrize(("limit", "rollouts"), [(-0.1, 4), (1.1, 4), (float("nan"), 4), (0.5, 0)])
def test_numbers_that_mean_nothing_are_refused(limit: float, rollouts: int) -> None:
    with pytest.raises(ValueError, match=r"limit|rollouts"):
        UnscoredGuard(limit, rollouts)
