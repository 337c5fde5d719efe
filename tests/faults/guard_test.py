"""Between a launch and its instance's own schedule, a box's guard alone stands when all else dies.

Every call in between, not only a sample: there the controller dies for good, and the box freezes.
"""

from __future__ import annotations

from collections.abc import Iterator
from unittest import mock

import pytest

from orchestrator.aws import schedules
from tests.faults import search
from tests.faults.fault import CONTROLLER, Fault, Kind
from tests.faults.life import Life, the_plan
from tests.faults.promises import breaches

BOXES = [box.name for box in the_plan().boxes]
FREEZES_AT = (1, 3, 20)
"""Calls of the box to S3: at its first, among its first, in the middle of its work."""


def in_between(launch: int) -> Iterator[Fault]:
    """The controller's last moments, from its n-th launch on until it would be armed."""
    calls = [seen for seen in search.undisturbed() if seen.actor == CONTROLLER]
    first = next(
        at
        for at, seen in enumerate(calls)
        if (seen.operation, seen.nth) == ("run_instances", launch)
    )
    yield Fault(Kind.GONE_AFTER, operation="run_instances", nth=launch)
    for seen in calls[first + 1 :]:
        yield Fault(Kind.GONE_BEFORE, operation=seen.operation, nth=seen.nth)
        if seen.operation == "create_schedule":
            return


def deaths() -> list[tuple[Fault, Fault]]:
    return [
        (gone, Fault(Kind.BOX_WEDGED, box, "put_object", nth))
        for launch, box in enumerate(BOXES, 1)
        for gone in in_between(launch)
        for nth in FREEZES_AT
    ]


@pytest.fixture
def ends() -> Iterator[list[str]]:
    """Why each instance of the lives of a test ended, as EC2 says."""
    found: list[str] = []

    def judged(life: Life) -> list[str]:
        found.extend(each.reason for each in life.world.cloud.instances.values())
        return breaches(life)

    with mock.patch.object(search, "breaches", judged):
        yield found


def test_there_are_calls_in_between_for_both_boxes() -> None:
    assert [len(list(in_between(launch))) > 3 for launch in (1, 2)] == [True, True]


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_controller_gone_for_good_before_it_armed_a_box_that_freezes_costs_nothing(
    ends: list[str],
) -> None:
    found = search.search(deaths(), 1)
    broken = [search.Found(faults, said) for faults, said in found if said]
    assert not broken, "\n".join(map(str, broken))
    assert "Client.UserInitiatedShutdown" in ends


@pytest.mark.parametrize("box", BOXES)
def test_without_its_guard_such_a_box_would_bill_on(box: str) -> None:
    gone = Fault(Kind.GONE_AFTER, operation="run_instances", nth=BOXES.index(box) + 1)
    frozen = Fault(Kind.BOX_WEDGED, box, "put_object", 3)
    assert search.run((gone, frozen)) == ()
    with mock.patch.object(schedules, "guarded", return_value="another/box"):
        assert any(said.startswith("leak") for said in search.run((gone, frozen)))


def test_a_controller_that_died_before_the_guard_was_made_has_launched_nothing() -> None:
    died = Fault(Kind.GONE_BEFORE, operation="create_schedule", nth=1)
    _, life = search.lived((died,), None)
    assert life.world.cloud.instances == {}
