"""The search has teeth: without two enforcers it finds a broken promise, without one none."""

from __future__ import annotations

import random
from collections.abc import Iterator
from itertools import combinations

import pytest

from tests.faults import search
from tests.faults.bugs import BUGS, Bug
from tests.faults.fault import Fault, parse
from tests.faults.world import Enforcers

NAMES = ("controller", "box", "cloud")
SAMPLED = 120


def without(*names: str) -> Enforcers:
    return Enforcers(**{name: name not in names for name in NAMES})


def some(count: int) -> list[tuple[Fault, ...]]:
    chance = random.Random(7)
    return [(fault,) for fault in chance.sample(search.singles(), count)]


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("name", NAMES)
def test_without_one_enforcer_no_single_fault_breaks_a_promise(name: str) -> None:
    found = search.search(some(SAMPLED), 1, without(name))
    broken = [search.Found(faults, said) for faults, said in found if said]
    assert not broken, "\n".join(map(str, broken))


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("names", list(combinations(NAMES, 2)), ids=" and ".join)
def test_without_two_enforcers_a_single_fault_is_found(names: tuple[str, str]) -> None:
    found = search.search(some(len(search.singles())), 1, without(*names))
    assert any(said for _, said in found)


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.what)
def test_a_planted_bug_is_found(bug: Bug, new_code: None) -> None:
    assert not any(search.run(faults, bug.enforcers) for faults in of(bug)[:1])
    search.forget()
    with bug.plant():
        assert any(said for _, said in search.search(of(bug), 1, bug.enforcers))


@pytest.fixture
def new_code() -> Iterator[None]:
    """Afterwards it's the old one again."""
    yield
    search.forget()


def of(bug: Bug) -> list[tuple[Fault, ...]]:
    """The schedules in which a bug shows, each by the fault that stands for it."""
    if not bug.kinds:
        return [parse(bug.schedule)]
    found = {
        other: (other,)
        for fault, other in search.stand_ins().items()
        if fault.kind in bug.kinds and (not bug.operations or fault.operation in bug.operations)
    }
    assert found, "no fault of the search is one under which it shows"
    return [*found.values()]
