"""Ending what is past its expiry, wherever it is, from tags alone: no local state, no run log."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, TypeVar

from orchestrator.aws.bucket import result_buckets
from orchestrator.aws.instances import ALIVE, terminate
from orchestrator.aws.leftover import Leftover, Seen, global_ones, seen_in
from orchestrator.aws.refusals import boundary
from orchestrator.aws.stack import teardown
from orchestrator.errors import CloudError, CredentialsError, GpurunError

if TYPE_CHECKING:
    from orchestrator.aws.session import Session

_T = TypeVar("_T")
_REGIONS_AT_ONCE = 8


@dataclass(frozen=True)
class Sight:
    """What carries our tag in the account, by region."""

    by_region: dict[str, list[Leftover]]
    unseen: dict[str, str] = field(default_factory=dict)
    """Regions that could not be looked at, or of one a service (`eu-west-1 SSM`), with the
    reason: not the same as empty.
    """


@dataclass(frozen=True)
class Swept:
    """What a sweep did."""

    ended: tuple[str, ...]
    """Runs that were past their expiry; all of each is gone but for `left` and `failed`."""
    going_on: tuple[str, ...]
    """Runs that were left alone."""
    left: tuple[Leftover, ...]
    unseen: dict[str, str]
    failed: dict[str, str] = field(default_factory=dict)
    """Runs whose teardown, or the end of whose box, could not be gone through with, and why."""
    boxes: tuple[Leftover, ...] = ()
    """Boxes past an expiry of their own, of runs that go on; EC2 was told to end them."""


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


def overdue(items: Iterable[Leftover], now: datetime) -> list[Leftover]:
    """Boxes that live past an expiry of their own, however long their run goes on. Pure."""
    return [
        item
        for item in items
        if _lives(item) and item.run and item.expires_at is not None and item.expires_at <= now
    ]


def undated(items: Iterable[Leftover]) -> list[str]:
    """Runs nothing of which says when it is over: only a person can end them. Pure."""
    found = list(items)
    dated = {item.run for item in found if item.expires_at is not None}
    return sorted({item.run for item in found if item.run} - dated)


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

    With `where`, what IAM has of runs of other regions is none of its business: such a run may
    have a box there that needs it.

    Raises:
        CredentialsError: none, or refused wherever they were shown.
        CloudError: the local cloud doesn't answer.
    """
    unseen: dict[str, str] = {}
    of_iam = _look_at(global_ones, session)
    if isinstance(of_iam, GpurunError):
        unseen["IAM"] = of_iam.message
        of_iam = []
    homes = {item.home for item in of_iam if item.home}
    names = sorted(set(where) if where is not None else {*regions(session), *homes})
    with ThreadPoolExecutor(_REGIONS_AT_ONCE) as pool:
        answers = list(pool.map(lambda n: _look_at(seen_in, session.in_region(n)), names))
    seen: dict[str, list[Leftover]] = {}
    for name, answer in zip(names, answers, strict=True):
        if isinstance(answer, Seen):
            seen[name] = answer.items
            unseen |= {f"{name} {service}": why for service, why in answer.unseen.items()}
        else:
            unseen[name] = answer.message
    refused = [answer for answer in answers if isinstance(answer, CredentialsError)]
    if refused and not seen:
        raise refused[0]
    # Where nothing tells, a role is only safe to take when no region can have a box that needs it.
    here = session.region if where is None and not unseen else ""
    for item in of_iam:
        home = _home(item, seen, here)
        if home in seen:
            seen[home].append(item)
    return Sight(seen, unseen)


def sweep(
    session: Session,
    now: datetime,
    where: Iterable[str] | None = None,
    *,
    only: Container[str] | None = None,
) -> Swept:
    """Tear down each run that is past its expiry; of runs that go on, end the boxes that are.

    With `only`, runs that aren't in it count as going on.

    Raises:
        CredentialsError: none, or refused.
        CloudError: the local cloud doesn't answer.
    """
    sight = look(session, where)
    everything = [item for items in sight.by_region.values() for item in items]
    over = [run for run in expired(everything, now) if only is None or run in only]
    boxes: list[Leftover] = []
    left: list[Leftover] = []
    failed: dict[str, str] = {}
    for region, items in sight.by_region.items():  # first: a teardown may take its time
        late = [box for box in overdue(items, now) if box.run not in over]
        for box in (box for box in late if only is None or box.run in only):
            with _told_in(failed, box.run):
                terminate(session.in_region(region), [box.id])
                boxes.append(box)
    _tell_all_to_end(session, sight, over)
    for run_id, region in _in_order(sight, over):
        with _told_in(failed, run_id):
            left += teardown(session.in_region(region), run_id, now)
    return Swept(
        ended=tuple(over),
        going_on=tuple(sorted({item.run for item in everything if item.run} - set(over))),
        left=(*left, *(item for item in everything if not item.run)),
        unseen=sight.unseen,
        failed=failed,
        boxes=tuple(boxes),
    )


@contextmanager
def _told_in(failed: dict[str, str], run_id: str) -> Iterator[None]:
    """What goes wrong with one run must not keep the others from ending."""
    try:
        yield
    except CloudError:
        raise
    except GpurunError as error:
        failed[run_id] = error.message


def _tell_all_to_end(session: Session, sight: Sight, over: Container[str]) -> None:
    """None waits until another has ended. What refuses is told by its run's teardown."""
    for region, items in sight.by_region.items():
        for box in (item for item in items if _lives(item) and item.run in over):
            with _told_in({}, box.run):
                terminate(session.in_region(region), [box.id])


def _in_order(sight: Sight, over: Container[str]) -> list[tuple[str, str]]:
    """Runs and their regions: last those with a box that was ending before, and may be stuck."""
    places = {
        (item.run, region)
        for region, items in sight.by_region.items()
        for item in items
        if item.run in over
    }
    stuck = {
        (item.run, region)
        for region, items in sight.by_region.items()
        for item in items
        if item.kind == "instance" and not _lives(item)
    }
    return sorted(places, key=lambda place: (place in stuck, place))


def _lives(item: Leftover) -> bool:
    """Whether it's a box that isn't ending."""
    return item.kind == "instance" and item.detail.partition(",")[0] in ALIVE


def _look_at(what: Callable[[Session], _T], session: Session) -> _T | GpurunError:
    """What is there, or why nobody can tell."""
    try:
        return what(session)
    except CloudError:
        raise
    except GpurunError as error:
        return error


def _home(item: Leftover, seen: dict[str, list[Leftover]], here: str) -> str:
    """Where the rest of its run is, or was; here if nothing tells."""
    if item.home:
        return item.home
    return next((n for n, items in seen.items() if item.run in {i.run for i in items}), here)
