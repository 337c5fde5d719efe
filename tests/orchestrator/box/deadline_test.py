"""A clock that a wrong wall clock can't make late, and the order of a box's last minutes."""

from __future__ import annotations

from orchestrator.box.deadline import Clock, Deadlines


def test_a_wall_clock_set_back_doesnt_lengthen_a_boxs_life() -> None:
    wall, monotonic = [5000.0], [10.0]
    clock = Clock(0, lambda: wall[0], lambda: monotonic[0])
    wall[0], monotonic[0] = 4000.0, 110.0
    assert clock.now() == 5100


def test_a_wall_clock_set_forward_shortens_it() -> None:
    wall = [5000.0]
    clock = Clock(0, lambda: wall[0], lambda: 10.0)
    wall[0] = 9000.0
    assert clock.now() == 9000


def test_a_box_that_boots_in_the_past_starts_when_the_plan_was_made() -> None:
    monotonic = [10.0]
    clock = Clock(5000, lambda: 12.0, lambda: monotonic[0])
    monotonic[0] = 70.0
    assert clock.now() == 5060


def test_the_last_minutes_come_in_order() -> None:
    for drain_s in (1, 20, 120, 900):
        deadlines = Deadlines(1000, 1000 + drain_s)
        order = [1000, deadlines.kill_at, deadlines.flush_by, deadlines.poweroff_at]
        assert order == sorted(order)
        assert len(set(order)) == 4


def test_a_stopped_host_gets_the_same_order_in_less_time_and_never_more() -> None:
    early = Deadlines(5000, 6000).brought_forward(1000)
    assert (early.drain_at, early.poweroff_at) == (1000, 1080)
    assert early.brought_forward(1010) == early
    late = Deadlines(5000, 5020).brought_forward(5010)
    assert (late.drain_at, late.poweroff_at) == (5000, 5020)


def test_a_box_that_is_told_to_stop_gets_the_whole_of_its_drain_but_now() -> None:
    early = Deadlines(5000, 6000).from_now(1000)
    assert (early.drain_at, early.poweroff_at) == (1000, 2000)
    assert early.from_now(1010) == early
