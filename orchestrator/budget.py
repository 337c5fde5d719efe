"""A budget that several runs share: a cap over their caps, kept by the same admission.

A budget is a value, rebuilt from the entries of its log. Each decision is the entry that must be
written next, or None when there is nothing to write: whoever loses the race for the next number
reads again and decides again. A line belongs to a run, and is reserved and counted once.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Literal

from pydantic import AwareDatetime

from orchestrator.errors import BudgetError, OverCap
from orchestrator.fields import Frozen
from orchestrator.ledger import Ledger
from orchestrator.money import ZERO, cents_up, usd, usd_exact

_NAME = re.compile(r"[a-z][a-z0-9-]{0,31}", re.ASCII)
EXPIRED = "expired"
STALE_AFTER = timedelta(hours=1)
"""After a run's expiry every enforcer has long ended its boxes: none of its lines can cost more
than its worst case from then on."""


class BudgetEntry(Frozen):
    """One entry of a budget's log."""

    at: AwareDatetime
    kind: Literal["cap", "reserve", "settle"]
    cap_usd: Decimal | None = None
    """Of a cap's entry: the budget's cap from here on."""
    run: str = ""
    expires_at: AwareDatetime | None = None
    """Of a reservation: when the run's last box must be gone."""
    lines: Mapping[str, Decimal] = {}
    """The run's lines and what they may cost, or did."""
    why: str = ""


@dataclass(frozen=True)
class Share:
    """What one run has of a budget."""

    run: str
    expires_at: datetime
    reserved: Mapping[str, Decimal] = field(default_factory=dict)
    """Open lines, at their worst case."""
    settled: Mapping[str, Decimal] = field(default_factory=dict)
    expired: frozenset[str] = frozenset()
    """Lines that were settled at their worst case, for want of anybody who knew."""

    def is_stale(self, now: datetime) -> bool:
        """Whether lines are open that can't cost any more; nobody has said what they did cost."""
        return bool(self.reserved) and now > self.expires_at + STALE_AFTER

    @property
    def is_guess(self) -> bool:
        """Whether it may have cost less than is settled."""
        return bool(self.expired)


@dataclass(frozen=True)
class Budget:
    """Runs' lines under one cap. What is reserved and settled was below it when it was let in."""

    name: str
    cap_usd: Decimal = ZERO
    shares: Mapping[str, Share] = field(default_factory=dict)

    @property
    def ledger(self) -> Ledger:
        """All runs' lines as one ledger's, each named `<run>/<line>`."""
        return Ledger(
            self.cap_usd,
            {
                f"{s.run}/{line}": at
                for s in self.shares.values()
                for line, at in s.reserved.items()
            },
            {
                f"{s.run}/{line}": at
                for s in self.shares.values()
                for line, at in s.settled.items()
            },
        )

    def reserve(
        self, run: str, lines: Mapping[str, Decimal], expires_at: datetime, now: datetime
    ) -> BudgetEntry | None:
        """Let in those of the run's lines that aren't in already, all of them or none.

        Raises:
            OverCap: they don't fit into what is free.
        """
        share = self.shares.get(run, Share(run, expires_at))
        new = {
            k: v for k, v in lines.items() if k not in share.reserved and k not in share.settled
        }
        wanted, ledger = sum(new.values(), ZERO), self.ledger
        if wanted > ledger.free_usd:
            raise self._over(run, wanted)
        if not new:
            return None
        return BudgetEntry(at=now, kind="reserve", run=run, expires_at=expires_at, lines=new)

    def settle(
        self, run: str, lines: Mapping[str, Decimal], now: datetime, why: str
    ) -> BudgetEntry | None:
        """Close lines of the run at what they cost, or put an earlier figure right.

        Lines that the run never had here are passed over.
        """
        share = self.shares.get(run)
        if share is None:
            return None
        known = share.reserved.keys() | share.settled.keys()
        told = {k: v for k, v in share.settled.items() if k not in share.expired}
        new = {k: v for k, v in lines.items() if k in known and told.get(k) != v}
        return BudgetEntry(at=now, kind="settle", run=run, lines=new, why=why) if new else None

    def settle_stale(self, run: str, now: datetime) -> BudgetEntry | None:
        """Close the lines of a run that nobody has ended at their worst case: by no guess."""
        share = self.shares[run]
        return self.settle(run, share.reserved, now, EXPIRED) if share.is_stale(now) else None

    def recap(self, cap_usd: Decimal, now: datetime) -> BudgetEntry | None:
        """Change the cap.

        Raises:
            BudgetError: it would be below what is reserved and settled.
        """
        ledger = self.ledger
        held = ledger.reserved_usd + ledger.settled_usd
        if cap_usd < held:
            raise BudgetError(
                f"{usd(ledger.reserved_usd)} of the budget {self.name} are reserved and "
                f"{usd(ledger.settled_usd)} are spent: its cap can't be {usd(cap_usd)}",
                hint=f"The lowest is: gpurun budget {self.name} --cap {cents_up(held)}",
            )
        return (
            None if cap_usd == self.cap_usd else BudgetEntry(at=now, kind="cap", cap_usd=cap_usd)
        )

    def after(self, entry: BudgetEntry) -> Budget:
        """The budget with an entry in it. What has been written is not judged again."""
        if entry.cap_usd is not None:
            return replace(self, cap_usd=entry.cap_usd)
        share = self.shares.get(entry.run, Share(entry.run, entry.expires_at or entry.at))
        if entry.kind == "reserve":
            fresh = {k: v for k, v in entry.lines.items() if k not in share.settled}
            share = replace(share, reserved={**share.reserved, **fresh})
        else:
            share = replace(
                share,
                reserved={k: v for k, v in share.reserved.items() if k not in entry.lines},
                settled={**share.settled, **entry.lines},
                expired=_expired(share, entry),
            )
        return replace(self, shares={**self.shares, entry.run: share})

    @classmethod
    def replay(cls, name: str, entries: Iterable[BudgetEntry]) -> Budget:
        """The budget that its log tells of."""
        budget = cls(name)
        for entry in entries:
            budget = budget.after(entry)
        return budget

    def _over(self, run: str, wanted: Decimal) -> OverCap:
        ledger = self.ledger
        least = cents_up(ledger.reserved_usd + ledger.settled_usd + wanted)
        asked, free, reserved, spent = usd_exact(
            wanted, ledger.free_usd, ledger.reserved_usd, ledger.settled_usd
        )
        return OverCap(
            f"{run} may cost {asked}, but of the budget {self.name} of {usd(self.cap_usd)} "
            f"only {free} is free ({reserved} reserved, {spent} spent)",
            hint=f"Raise it: gpurun budget {self.name} --cap {least}; or wait until a run of it "
            f"has ended: gpurun budget {self.name}",
        )


def _expired(share: Share, entry: BudgetEntry) -> frozenset[str]:
    """A settlement by the run's own log puts an earlier worst case right."""
    lines = frozenset(entry.lines)
    return share.expired | lines if entry.why == EXPIRED else share.expired - lines


def check_name(name: str) -> str:
    """Refuse what can't name a budget before it becomes part of an S3 key.

    Raises:
        BudgetError: it can't.
    """
    if not _NAME.fullmatch(name):
        raise BudgetError(
            f"{name!r} can't name a budget.",
            hint="Use a-z, 0-9 and '-', starting with a letter, at most 32 characters.",
        )
    return name
