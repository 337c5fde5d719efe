"""Where a budget is kept: an append-only log in one results bucket of the account.

An entry takes the number after the last one read, by a conditional put: it is written only by
somebody who has read everything before it, so admission is exact however many runs ask at once.
A budget's home is the bucket it was made in; any machine finds it by looking through them all.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pydantic import ValidationError

from orchestrator.aws.bucket import Bucket, ensure_bucket, result_buckets
from orchestrator.budget import Budget, BudgetEntry, check_name
from orchestrator.errors import BudgetError

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime
    from decimal import Decimal

    from orchestrator.aws.session import Session

_PREFIX = "budgets/"


class BudgetLog:
    """A budget in its bucket."""

    def __init__(self, bucket: Bucket, name: str) -> None:
        self.bucket, self.name = bucket, check_name(name)
        self._prefix = f"{_PREFIX}{name}/"
        self._entries: list[BudgetEntry] = []

    @property
    def region(self) -> str:
        """Of the bucket that holds it."""
        return self.bucket.session.region

    @property
    def known(self) -> Budget:
        """As it was when this was last read or written; asks nobody."""
        return Budget.replay(self.name, self._entries)

    def read(self) -> Budget:
        """As it is now; only entries that weren't seen before are fetched.

        Raises:
            BudgetError: there is no such budget here, or an entry is missing or unreadable.
        """
        keys = [key for key, _ in self.bucket.keys(self._prefix)]
        if not keys:
            raise BudgetError(
                f"{self.bucket.name} holds no budget {self.name}.", hint=_how_to_make(self.name)
            )
        if len(keys) < len(self._entries):
            raise self._damaged(self._key(len(keys) + 1))
        for number, key in enumerate(keys, 1):
            if key != self._key(number):
                raise self._damaged(self._key(number))
            if number > len(self._entries):
                self._entries.append(self._entry(key))
        return self.known

    def check(self, run: str, lines: dict[str, Decimal], now: datetime) -> None:
        """Raises OverCap when a new run's lines wouldn't fit now; writes nothing."""
        self.read().reserve(run, lines, now, now)

    def reserve(
        self, run: str, lines: dict[str, Decimal], expires_at: datetime, now: datetime
    ) -> None:
        """Let the run's lines in, each once. Raises OverCap, with nothing written."""
        self.write(lambda budget: budget.reserve(run, lines, expires_at, now))

    def settle(self, run: str, lines: dict[str, Decimal], now: datetime, why: str) -> None:
        """Close the run's lines at what they cost; asks nobody when that is known to be told."""
        if self._entries and self.known.settle(run, lines, now, why) is None:
            return
        self.write(lambda budget: budget.settle(run, lines, now, why))

    def write(self, decide: Callable[[Budget], BudgetEntry | None]) -> Budget:
        """Read, decide, write; whoever loses the number to another reads and decides again."""
        while (entry := decide(self.read())) is not None and not self._put(entry):
            pass
        return self.known

    def make(self, cap_usd: Decimal, now: datetime) -> None:
        """The first entry; whoever comes second changes nothing."""
        self._put(BudgetEntry(at=now, kind="cap", cap_usd=cap_usd))

    def _put(self, entry: BudgetEntry) -> bool:
        data = entry.model_dump_json(exclude_defaults=True).encode()
        key = self._key(len(self._entries) + 1)
        if not self.bucket.put(key, data, if_absent=True):
            return False
        self._entries.append(entry)
        return True

    def _key(self, number: int) -> str:
        return f"{self._prefix}{number:06d}.json"

    def _entry(self, key: str) -> BudgetEntry:
        try:
            return BudgetEntry.model_validate_json(self.bucket.get(key) or b"")
        except ValidationError as error:
            raise self._damaged(key) from error

    def _damaged(self, key: str) -> BudgetError:
        return BudgetError(
            f"{key} in {self.bucket.name} is missing or can't be read: nothing more is let in.",
            hint="The bucket keeps older versions of it; put the last one back.",
        )


def find_budget(session: Session, name: str) -> BudgetLog:
    """A budget by its name alone, in whichever region it is kept.

    Raises:
        BudgetError: no bucket of this account holds it, or two do.
    """
    homes = _homes(session, check_name(name))
    if len(homes) > 1:  # made at the same moment by two people who saw different buckets
        places = " and ".join(log.bucket.name for log in homes)
        raise BudgetError(
            f"There are two budgets {name}, in {places}: neither lets anything in.",
            hint=_how_to_make(f"{name}-2"),
        )
    if not homes:
        raise BudgetError(f"This account has no budget {name}.", hint=_how_to_make(name))
    return homes[0]


def make_budget(session: Session, name: str, cap_usd: Decimal, now: datetime) -> BudgetLog:
    """Make the budget, or change its cap.

    Raises:
        BudgetError: the cap would be below what is reserved and settled.
    """
    if not _homes(session, check_name(name)):
        _home_of_new(session, name).make(cap_usd, now)
    log = find_budget(session, name)
    log.write(lambda budget: budget.recap(cap_usd, now))
    return log


def list_budgets(session: Session) -> list[BudgetLog]:
    """All budgets of the account, by name."""
    found = [
        BudgetLog(bucket, name)
        for bucket in result_buckets(session)
        for name in bucket.folders(_PREFIX)
    ]
    return sorted(found, key=lambda log: (log.name, log.region))


def _homes(session: Session, name: str) -> list[BudgetLog]:
    logs = [BudgetLog(bucket, name) for bucket in result_buckets(session)]
    return [log for log in logs if log.bucket.head(log._key(1)) is not None]


def _home_of_new(session: Session, name: str) -> BudgetLog:
    """The first of the buckets there are, the same from every region; else this region's."""
    buckets = result_buckets(session) or [ensure_bucket(session)]
    return BudgetLog(min(buckets, key=lambda bucket: bucket.name), name)


def _how_to_make(name: str) -> str:
    return f"Make it: gpurun budget {name} --cap USD"
