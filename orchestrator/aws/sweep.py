"""Ending what is past its expiry, wherever it is, from tags alone: no local state, no run log."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Container, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING

from orchestrator.aws.bucket import result_buckets
from orchestrator.aws.leftover import Leftover, global_ones, regional
from orchestrator.aws.refusals import boundary
from orchestrator.aws.stack import teardown
from orchestrator.errors import CloudError, CredentialsError, GpurunError

if TYPE_CHECKING:
    from orchestrator.aws.session import Session

_REGIONS_AT_ONCE = 8


@dataclass(frozen=True)
class Sight:
    """What carries our tag in the account, by region."""

    by_region: dict[str, list[Leftover]]
    unseen: dict[str, str] = field(default_factory=dict)
    """Regions that could not be looked at, with the reason: not the same as empty."""


@dataclass(frozen=True)
class Swept:
    """What a sweep did."""

    ended: tuple[str, ...]
    """Runs that were past their expiry; all of each is gone unless it is in `left`."""
    going_on: tuple[str, ...]
    """Runs that were left alone."""
    left: tuple[Leftover, ...]
    unseen: dict[str, str]


def expired(items: Iterable[Leftover], now: datetime) -> list[str]:
    """Runs all of whose things are past their expiry. Pure.

    The latest expiry of a run counts. Things that name no run or no expiry decide nothing: they
    are reported, never deleted on a guess.
    """
    latest: dict[str, datetime] = {}
    for item in items:
        if item.run and item.expires_at is not None:
            latest[item.run] = max(item.expires_at, latest.get(item.run, item.expires_at))
    return sorted(run for run, at in latest.items() if at <= now)


@boundary()
def regions(session: Session) -> list[str]:
    """Where to look: all regions that the account has enabled.

    The local cloud plays them all, but a run always has its bucket first: those regions do there.
    """
    if session.cloud == "local":
        return sorted({session.region, *(b.session.region for b in result_buckets(session))})
    found = session.client("ec2").describe_regions(AllRegions=False)["Regions"]
    return sorted(region["RegionName"] for region in found)


def look(session: Session, where: Iterable[str] | None = None) -> Sight:
    """All things of all runs, in all of the account's regions or in those named.

    Raises:
        CredentialsError: none, or refused.
        CloudError: the local cloud doesn't answer.
    """
    names = sorted(set(where)) if where is not None else regions(session)
    with ThreadPoolExecutor(_REGIONS_AT_ONCE) as pool:
        answers = list(pool.map(lambda name: _look_at(session.in_region(name)), names))
    seen = {n: found for n, found in zip(names, answers, strict=True) if isinstance(found, list)}
    unseen = {n: why for n, why in zip(names, answers, strict=True) if isinstance(why, str)}
    _place_global_ones(session, seen)
    return Sight(seen, unseen)


def sweep(
    session: Session,
    now: datetime,
    where: Iterable[str] | None = None,
    *,
    only: Container[str] | None = None,
) -> Swept:
    """Tear down each run that is past its expiry; runs that go on are not touched.

    With `only`, runs that aren't in it count as going on.

    Raises:
        CredentialsError: none, or refused.
        CloudError: the local cloud doesn't answer.
    """
    sight = look(session, where)
    everything = [item for items in sight.by_region.values() for item in items]
    over = [run for run in expired(everything, now) if only is None or run in only]
    left: list[Leftover] = []
    for region, items in sight.by_region.items():
        for run_id in sorted({item.run for item in items} & set(over)):
            left += teardown(session.in_region(region), run_id, now)
    return Swept(
        ended=tuple(over),
        going_on=tuple(sorted({item.run for item in everything if item.run} - set(over))),
        left=(*left, *(item for item in everything if not item.run)),
        unseen=sight.unseen,
    )


def _look_at(session: Session) -> list[Leftover] | str:
    try:
        return regional(session)
    except (CredentialsError, CloudError):
        raise
    except GpurunError as error:
        return error.message


def _place_global_ones(session: Session, seen: dict[str, list[Leftover]]) -> None:
    """IAM's things go to the region that holds the rest of their run, else to the session's."""
    home = defaultdict(
        lambda: session.region, {item.run: name for name, items in seen.items() for item in items}
    )
    for item in global_ones(session):
        seen.setdefault(home[item.run], []).append(item)
