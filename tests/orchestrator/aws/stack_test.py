"""Teardown: from any half of a run, twice, beside another run."""

from __future__ import annotations

from orchestrator.aws.stack import leftovers, teardown

from .conftest import RUN, FakeClock, Stack


def test_nothing_is_left_after_a_teardown(stack: Stack, clock: FakeClock) -> None:
    stack.arm(stack.launch("l4"))
    stack.arm(stack.launch("l40s", instance_types=("g6e.4xlarge",)))
    for l in leftovers(stack.session, RUN):
        print(l)
    assert teardown(stack.session, RUN, clock.now()) == []
    assert leftovers(stack.session) == []
