"""Budgets as a person asks for them: made, changed, looked through, and put in order.

Looking settles what is known to have ended: a clean run's lines at what its log says, those of a
run that nobody ended at their worst case, an hour after its expiry. Nothing is freed on a guess.
"""

from __future__ import annotations

from datetime import datetime
from decimal import Decimal
from typing import TYPE_CHECKING

from pydantic import BaseModel, ConfigDict

from orchestrator.aws.bucket import find_run_bucket
from orchestrator.budget_log import find_budget, list_budgets
from orchestrator.catalog import load_catalog
from orchestrator.errors import RunDamaged, RunNotFound
from orchestrator.money import ZERO
from orchestrator.purse import Purse
from orchestrator.run import EventKind, RunLog, check_run_id, has, read_record

if TYPE_CHECKING:
    from orchestrator.aws.session import Session
    from orchestrator.budget import Budget, Share
    from orchestrator.budget_log import BudgetLog


class ShareRow(BaseModel):
    """One run's part of a budget."""

    model_config = ConfigDict(frozen=True)

    run: str
    state: str
    expires_at: datetime
    """When its last box is gone at the latest."""
    reserved_usd: Decimal
    settled_usd: Decimal


class BudgetRow(BaseModel):
    """A budget as it stands."""

    model_config = ConfigDict(frozen=True)

    name: str
    region: str
    """Whose results bucket keeps it; its runs may be anywhere."""
    cap_usd: Decimal
    reserved_usd: Decimal
    settled_usd: Decimal
    free_usd: Decimal
    runs: tuple[ShareRow, ...]


def look_at(session: Session, name: str, now: datetime) -> BudgetRow:
    """One budget, its ended runs settled first.

    Raises:
        BudgetError: there is none of that name.
    """
    return review(session, find_budget(session, name), now)


def look_at_all(session: Session, now: datetime) -> list[BudgetRow]:
    """Every budget of the account, each as `look_at` shows it."""
    return [review(session, log, now) for log in list_budgets(session)]


def review(session: Session, log: BudgetLog, now: datetime) -> BudgetRow:
    """Settle what is known to have ended, and say what stays open."""
    found = {
        share.run: _put_in_order(session, log, share, now)
        for share in log.read().shares.values()
        if share.reserved
    }
    return _row(log.read(), log.region, found)


def _put_in_order(session: Session, log: BudgetLog, share: Share, now: datetime) -> str:
    """Where the run stands, its share of the budget told what its own log says."""
    state = _told(session, log, share.run, now)
    log.write(lambda budget: budget.settle_stale(share.run, now))
    return state


def _told(session: Session, log: BudgetLog, run_id: str, now: datetime) -> str:
    try:
        bucket = find_run_bucket(session, check_run_id(run_id))
        record = read_record(bucket, run_id)
        events = RunLog(bucket, run_id)
        Purse(record, bucket, events, load_catalog(), log).tell_budget(now)
        return "clean" if has(events.read(), EventKind.CLEAN) else "not ended yet"
    except RunNotFound:
        return "not on record"
    except RunDamaged:
        return "its log can't be read"


def _row(budget: Budget, region: str, states: dict[str, str]) -> BudgetRow:
    ledger = budget.ledger
    return BudgetRow(
        name=budget.name,
        region=region,
        cap_usd=budget.cap_usd,
        reserved_usd=ledger.reserved_usd,
        settled_usd=ledger.settled_usd,
        free_usd=ledger.free_usd,
        runs=tuple(_share_row(s, states.get(s.run, "")) for s in budget.shares.values()),
    )


def _share_row(share: Share, state: str) -> ShareRow:
    if not share.reserved:
        state = "settled at its worst case" if share.is_guess else "settled"
    return ShareRow(
        run=share.run,
        state=state,
        expires_at=share.expires_at,
        reserved_usd=sum(share.reserved.values(), ZERO),
        settled_usd=sum(share.settled.values(), ZERO),
    )
