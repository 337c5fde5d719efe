"""The spend cap, kept by admission: what can't be paid for at its worst is never started.

A line is reserved at its worst case and later settled at what it cost. Ledgers are values: the
run log holds the entries, and any machine that reads them has the same ledger.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Literal

from orchestrator.errors import OverCap
from orchestrator.fields import Frozen
from orchestrator.money import ZERO, cents_up, usd, usd_exact


class LedgerEntry(Frozen):
    """One line of the run log that concerns money."""

    kind: Literal["reserve", "settle"]
    line: str
    """A box, a box's later attempt, or `s3:results`; each is reserved once and settled once."""
    usd: Decimal


@dataclass(frozen=True)
class Ledger:
    """Money of one run. Reserved and settled together never pass the cap."""

    cap_usd: Decimal
    reserved: Mapping[str, Decimal] = field(default_factory=dict)
    settled: Mapping[str, Decimal] = field(default_factory=dict)

    @property
    def reserved_usd(self) -> Decimal:
        """What may still be spent by lines that are open."""
        return sum(self.reserved.values(), ZERO)

    @property
    def settled_usd(self) -> Decimal:
        """What closed lines cost."""
        return sum(self.settled.values(), ZERO)

    @property
    def free_usd(self) -> Decimal:
        """What a new line may reserve at most; 0 when a line cost more than was reserved."""
        return max(self.cap_usd - self.reserved_usd - self.settled_usd, ZERO)

    def reserve(self, line: str, worst_case_usd: Decimal) -> Ledger:
        """The ledger with the line open; the same ledger if it is open at that price.

        Raises OverCap when it doesn't fit, ValueError for a line that was reserved otherwise,
        was settled, or costs less than nothing.
        """
        _not_negative(line, worst_case_usd)
        if self.reserved.get(line) == worst_case_usd:
            return self
        if line in self.reserved or line in self.settled:
            raise ValueError(f"{line} has been reserved; a new attempt is a new line")
        if worst_case_usd > self.free_usd:
            raise self._over(line, worst_case_usd)
        return Ledger(self.cap_usd, {**self.reserved, line: worst_case_usd}, self.settled)

    def settle(self, line: str, actual_usd: Decimal) -> Ledger:
        """The ledger with the line closed at its cost; the same ledger if it is closed at that.

        A cost above the reservation is recorded as it is: nothing more fits until the cap is
        raised. Raises ValueError for a line that isn't open.
        """
        _not_negative(line, actual_usd)
        if self.settled.get(line) == actual_usd:
            return self
        if line not in self.reserved:
            raise ValueError(f"{line} isn't reserved")
        reserved = {name: amount for name, amount in self.reserved.items() if name != line}
        return Ledger(self.cap_usd, reserved, {**self.settled, line: actual_usd})

    @classmethod
    def replay(cls, cap_usd: Decimal, entries: Iterable[LedgerEntry]) -> Ledger:
        """The ledger after those entries. What has happened is not judged again: no OverCap."""
        reserved: dict[str, Decimal] = {}
        settled: dict[str, Decimal] = {}
        for entry in entries:
            if entry.kind == "reserve" and entry.line not in settled:
                reserved[entry.line] = entry.usd
            elif entry.kind == "settle":
                reserved.pop(entry.line, None)
                settled[entry.line] = entry.usd
        return cls(cap_usd, reserved, settled)

    def _over(self, line: str, amount: Decimal) -> OverCap:
        least = cents_up(self.reserved_usd + self.settled_usd + amount)
        wanted, free, reserved, spent = usd_exact(
            amount, self.free_usd, self.reserved_usd, self.settled_usd
        )
        return OverCap(
            f"{line} may cost {wanted}, but of the cap of {usd(self.cap_usd)} only "
            f"{free} is free ({reserved} reserved, {spent} spent)",
            hint=f"Raise the cap by {usd(least - self.cap_usd)} (gpurun up RUNBOOK "
            f"--cap {least}), or give the boxes fewer hours.",
        )


def _not_negative(line: str, amount: Decimal) -> None:
    if not amount.is_finite() or amount < 0:
        raise ValueError(f"{line}: {amount} is no amount of money")
