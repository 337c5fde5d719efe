"""Which tasks of a split are looked at."""

from __future__ import annotations


def sampled(length: int, count: int) -> list[int]:
    """All places where there are at most `count`, else that many evenly spread from end to end."""
    if length <= count:
        return list(range(length))
    return sorted({round(step * (length - 1) / max(1, count - 1)) for step in range(count)})
