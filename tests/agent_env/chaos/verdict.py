"""A disturbed run against the same one in peace: what was lost, done twice, or made up."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from tests.agent_env.chaos.harness import Outcome

LEAST_STRIKES, LEAST_CUTS = 30, 200
SLOWER = 1.5


@dataclass(frozen=True)
class Verdict:
    """Counts of rollouts; all 0 and `identical` is what is promised."""

    rollouts: int
    lost: int
    duplicated: int
    fabricated: int
    identical: bool
    allowed_s: float
    """1.5 times the run in peace, and the time that the server was down."""

    @property
    def kept(self) -> bool:
        """Whether every promise about the numbers is."""
        return self.identical and not (self.lost or self.duplicated or self.fabricated)


def judge(peace: Outcome, chaos: Outcome) -> Verdict:
    """Compare the tables line by line, and as bytes."""
    right = {(line.task, line.attempt): line for line in peace.lines}
    made = Counter((line.task, line.attempt) for line in chaos.lines)
    scored = [line for line in chaos.lines if line.reward is not None]
    return Verdict(
        rollouts=len(right),
        lost=len(right) - len({(line.task, line.attempt) for line in scored}),
        duplicated=sum(count - 1 for count in made.values())
        + sum(line.steps != line.calls for line in scored),
        fabricated=sum(
            (line.task, line.attempt) not in right
            or line.reward != right[line.task, line.attempt].reward
            for line in scored
        ),
        identical=peace.table == chaos.table,
        allowed_s=SLOWER * peace.wall_s + chaos.down_s,
    )
