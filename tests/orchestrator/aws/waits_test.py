"""Every wait ends."""

from __future__ import annotations

import itertools

import pytest

from orchestrator.aws.waits import LONGEST_PAUSE_S, Patience
from tests.fake_clock import FakeClock


@pytest.fixture
def patience(clock: FakeClock) -> Patience:
    return Patience(sleep=clock.sleep, clock=clock.monotonic)


def fails(times: int) -> list[int]:
    return list(range(times))


def test_an_act_that_succeeds_is_done_once_and_at_once(
    patience: Patience, clock: FakeClock
) -> None:
    assert patience.retry(lambda: 7, when=lambda _: True, timeout_s=60) == 7
    assert clock.waited_s == 0


def test_an_act_is_tried_until_it_succeeds(patience: Patience) -> None:
    left = fails(5)

    def act() -> str:
        if left:
            left.pop()
            raise KeyError
        return "done"

    assert patience.retry(act, when=lambda e: isinstance(e, KeyError), timeout_s=60) == "done"


def test_another_failure_is_not_waited_for(patience: Patience, clock: FakeClock) -> None:
    nothing: dict[str, int] = {}
    with pytest.raises(KeyError):
        patience.retry(lambda: nothing["x"], when=lambda e: isinstance(e, OSError), timeout_s=60)
    assert clock.waited_s == 0


def test_the_last_try_is_at_the_deadline(patience: Patience, clock: FakeClock) -> None:
    tries: list[float] = []

    def act() -> None:
        tries.append(clock.waited_s)
        raise OSError

    with pytest.raises(OSError):  # noqa: PT011 - the error that act raised
        patience.retry(act, when=lambda _: True, timeout_s=60)
    assert tries[-1] == pytest.approx(60)
    pauses = [b - a for a, b in itertools.pairwise(tries)]
    assert max(pauses) <= LONGEST_PAUSE_S
    assert pauses[0] < 1


def test_an_answer_is_waited_for_and_its_absence_too(patience: Patience, clock: FakeClock) -> None:
    assert patience.until(lambda: clock.waited_s if clock.waited_s > 20 else None, timeout_s=60)
    assert clock.waited_s < 35
    assert patience.until(lambda: None, timeout_s=10) is None


def test_a_row_of_waits_ends_as_a_whole(patience: Patience, clock: FakeClock) -> None:
    bounded = patience.within(100)
    for _ in range(5):
        assert bounded.until(lambda: None, timeout_s=60) is None
    assert clock.waited_s == pytest.approx(100)
    assert bounded.within(1_000).deadline == bounded.deadline
