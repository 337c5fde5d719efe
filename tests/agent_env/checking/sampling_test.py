"""Which tasks are played."""

from __future__ import annotations

import pytest

from agent_env.checking.sampling import sampled


@pytest.mark.parametrize(
    "length, count, places",
    [
        (0, 50, []),
        (3, 50, [0, 1, 2]),
        (50, 50, list(range(50))),
        (9, 3, [0, 4, 8]),
        (2000, 1, [0]),
        (2000, 2, [0, 1999]),
    ],
)
def test_all_are_played_or_so_many_from_end_to_end(
    length: int, count: int, places: list[int]
) -> None:
    assert sampled(length, count) == places


def test_never_more_and_never_twice() -> None:
    for count in range(1, 60):
        places = sampled(61, count)
        assert len(places) == len(set(places)) == count
