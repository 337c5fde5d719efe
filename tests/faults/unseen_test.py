"""A `down` at any moment of a build whose things show late: clean is said of nothing unseen."""

from __future__ import annotations

from functools import cache

import pytest

from tests.faults import search
from tests.faults.fault import CONTROLLER, Fault, Kind, parse
from tests.faults.life import live
from tests.faults.promises import breaches
from tests.faults.strikes import Seen, Strikes
from tests.faults.world import World

LATE = parse("invisible@get_object#1")
MAKES = {
    "create_vpc": "vpc",
    "create_internet_gateway": "internet-gateway",
    "create_vpc_endpoint": "vpc-endpoint",
    "create_subnet": "subnet",
    "create_security_group": "security-group",
    "import_key_pair": "key-pair",
    "create_role": "role",
    "create_instance_profile": "profile",
    "create_queue": "queue",
    "create_schedule": "schedule",
    "run_instances": "instance",
}
SHARDS = 2


@cache
def built_late() -> tuple[Seen, ...]:
    """The controller's calls of a life in which things show late, until its boxes are armed."""
    search.quiet()
    world = World(Strikes(LATE, watch_calls=True))
    try:
        assert breaches(live(world)) == []
        calls = [seen for seen in world.strikes.calls if seen.actor == CONTROLLER]
    finally:
        world.close()
    armed = max(at for at, seen in enumerate(calls) if seen.operation == "create_schedule")
    return tuple(calls[: armed + 3])


def downs() -> list[Fault]:
    """At each of those calls, looks that wait for one and the same thing included."""
    return [Fault(Kind.SECOND_DOWN, CONTROLLER, c.operation, c.nth) for c in built_late()]


def after(operation: str) -> Fault:
    """A `down` right after the first such call."""
    names = [seen.operation for seen in built_late()]
    at = names.index(operation) + 1
    return downs()[at]


@pytest.mark.parametrize("operation", MAKES)
def test_a_down_right_after_something_was_made_doesnt_call_it_gone(operation: str) -> None:
    assert search.run((*LATE, after(operation))) == ()


def test_a_key_pair_that_shows_late_isnt_called_gone() -> None:
    """As the search found it, in its samples."""
    schedule = parse("down-meanwhile@run_instances#9 invisible@get_object#1")
    assert search.run(schedule) == ()


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("shard", range(SHARDS))
def test_a_down_at_any_call_of_a_late_build_leaves_nothing(shard: int) -> None:
    schedules = [(*LATE, fault) for fault in downs()[shard::SHARDS]]
    broken = [search.Found(f, said) for f, said in search.search(schedules, 1) if said]
    assert not broken, "\n".join(map(str, broken))
