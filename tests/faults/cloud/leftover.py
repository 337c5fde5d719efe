"""What of a run is in the account, by tag or by name; and deleting it with no questions asked."""

from __future__ import annotations

from collections.abc import Iterator, MutableMapping
from dataclasses import dataclass
from typing import Any

from tests.faults.cloud import life
from tests.faults.cloud.account import Account, Region
from tests.faults.cloud.instance import BY_A_CALL, Instance

_RUN = "gpurun:run"


@dataclass(frozen=True)
class Left:
    """One thing of a run, and where it is kept."""

    kind: str
    name: str
    thing: Any
    kept: MutableMapping[Any, Any]
    key: Any


def left(account: Account, run: str) -> list[Left]:
    """All but terminated instances and what is in S3."""
    found = list(_of_iam(account, run))
    for region in account.regions.values():
        found += _of_ec2(region, run)
        found += _of_others(region, run)
    return found


def drop(account: Account, run: str, kind: str, name: str) -> None:
    """Delete those of a kind whose names end so, whatever holds them; instances end."""
    for each in left(account, run):
        if each.kind == kind and each.name.endswith(name):
            if isinstance(each.thing, Instance):
                life.end(account, each.thing, BY_A_CALL)
            else:
                del each.kept[each.key]
                _forget(account, each)


def _forget(account: Account, gone: Left) -> None:
    """What points to it, where the rest could not be read otherwise."""
    if gone.kind == "role":
        for profile in account.profiles.values():
            profile.roles = [name for name in profile.roles if name != gone.name]
    if gone.kind == "schedule":
        gone.thing.call_off()


def _of_iam(account: Account, run: str) -> Iterator[Left]:
    for kind, found in (("role", account.roles), ("profile", account.profiles)):
        yield from _named(kind, found, run)


def _of_ec2(region: Region, run: str) -> Iterator[Left]:
    for kept in region.kinds():
        for key, thing in kept.items():
            ended = isinstance(thing, Instance) and thing.state == "terminated"
            if thing.tags.get(_RUN) == run and not ended:
                yield Left(thing.kind, thing.id, thing, kept, key)


def _of_others(region: Region, run: str) -> Iterator[Left]:
    for key, schedule in region.schedules.items():
        if _is_of(schedule.name, run):
            yield Left("schedule", schedule.name, schedule, region.schedules, key)
    yield from _named("queue", region.queues, run)
    yield from _named("parameter", region.parameters, run)
    yield from _named("secret", region.secrets, run)


def _named(kind: str, found: MutableMapping[str, Any], run: str) -> Iterator[Left]:
    for name, thing in found.items():
        if thing.tags.get(_RUN) == run or _is_of(name, run):
            yield Left(kind, name, thing, found, name)


def _is_of(name: str, run: str) -> bool:
    """`gpurun-<run>`, `gpurun-<run>-…` or `/gpurun/<run>/…`."""
    return run in name and name.startswith(("gpurun-", "/gpurun/"))
