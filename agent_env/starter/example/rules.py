"""The game by itself: no model, no server."""

from __future__ import annotations

LOWEST, HIGHEST = 1, 100
ENOUGH = 7
"""Questions that always suffice: each halves what is left."""


class Game:
    """A number, and how often somebody asked about it."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.asked = 0
        self.found = False

    def ask(self, number: int) -> str:
        self.asked += 1
        self.found = number == self.number
        if self.found:
            return "right"
        return "higher" if number < self.number else "lower"


def middles(number: int) -> list[int]:
    """What somebody asks who halves what is left, up to the number itself."""
    low, high, asked = LOWEST, HIGHEST, [(LOWEST + HIGHEST) // 2]
    while asked[-1] != number:
        if asked[-1] < number:
            low = asked[-1] + 1
        else:
            high = asked[-1] - 1
        asked.append((low + high) // 2)
    return asked
