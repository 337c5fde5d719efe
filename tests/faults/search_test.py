"""All single faults, in shards so that they share the cores; `make faults` goes on from there."""

from __future__ import annotations

import random

import pytest

from tests.faults import search
from tests.faults.fault import Fault, Kind, parse
from tests.faults.life import BUCKET
from tests.faults.trace import Traces
from tests.faults.world import Enforcers

SHARDS = 8
ALONE = {
    "the controller": Enforcers(box=False, cloud=False),
    "the box": Enforcers(controller=False, cloud=False),
    "the cloud": Enforcers(controller=False, box=False),
}


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("shard", range(SHARDS))
def test_no_single_fault_breaks_a_promise(shard: int) -> None:
    schedules = [(fault,) for fault in search.singles()[shard::SHARDS]]
    broken = [search.Found(f, said) for f, said in search.search(schedules, 1) if said]
    assert not broken, "\n".join(map(str, broken))


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_sample_of_several_faults_at_once_breaks_no_promise() -> None:
    found = search.search(search.samples(60, seed=1), 1)
    broken = [search.minimal(faults) for faults, said in found if said]
    assert not broken, "\n".join(map(str, broken))


def test_the_books_of_a_box_that_soon_died_unseen_are_over_by_no_more_than_ec2_rounds() -> None:
    # It lived for 70 s: the second by which EC2 rounds its launch is more than one percent.
    schedule = parse("box-lost@long:list_objects_v2#4 gone-after@describe_instances#6")
    assert search.run(schedule) == ()


def test_there_are_some_hundreds_of_single_faults_of_every_kind() -> None:
    faults = search.singles()
    assert len(faults) > 300
    assert {fault.kind for fault in faults} == set(Kind)


@pytest.mark.parametrize("who", ALONE)
def test_each_enforcer_alone_keeps_the_promises(who: str) -> None:
    assert search.run((), ALONE[who]) == ()


@pytest.mark.parametrize(
    "text", ["killed-after@run_instances#1 schedules-out@t+300", "box-wedged@long:put_object#7"]
)
def test_a_printed_schedule_is_read_back_as_it_was(text: str) -> None:
    assert " ".join(map(str, parse(text))) == text


def test_a_fault_that_another_stands_for_leaves_the_same() -> None:
    twins = [(fault, other) for fault, other in search.stand_ins().items() if fault != other]
    by_kind = {fault.kind: (fault, other) for fault, other in random.Random(5).sample(twins, 300)}
    assert by_kind.keys() >= {Kind.KILLED_BEFORE, Kind.BOX_LOST, Kind.CLOCK_AHEAD, Kind.DISK_FULL}
    for fault, other in by_kind.values():
        assert what_is_left(fault)[1:] == what_is_left(other)[1:], f"{fault} isn't {other}"


def test_a_box_that_repeats_another_lifes_steps_leaves_what_a_living_one_does() -> None:
    traces = Traces()
    first = what_is_left(None, traces)
    assert first == what_is_left(None, traces) == what_is_left(None)
    for kind in (Kind.CLOCK_AHEAD, Kind.TRAINER_KILLED, Kind.S3_MINUTE, Kind.EXPIRED):
        fault = random.Random(5).choice([it for it in search.singles() if it.kind is kind])
        assert what_is_left(fault, traces) == what_is_left(fault), f"{fault} isn't repeated"


def what_is_left(fault: Fault | None, traces: Traces | None = None) -> tuple[object, ...]:
    """All that a life shows: its objects and their bytes, what broke, the bill, when boxes ended,
    what trainers wrote."""
    said, life = search.lived((fault,) if fault else (), None, traces)
    ended = {i.id: (i.reason, i.ended_at) for i in life.world.cloud.instances.values()}
    kept = dict(life.world.cloud.objects(BUCKET)) if BUCKET in life.world.cloud.buckets else {}
    return kept, kept.keys(), said, life.settled_usd, life.errors, ended, life.world.written


def test_what_is_no_schedule_is_refused() -> None:
    with pytest.raises(ValueError, match="isn't a fault"):
        parse("boom@everything")


def test_the_same_seed_draws_the_same_schedules() -> None:
    assert list(search.samples(5, seed=3)) == list(search.samples(5, seed=3))


def test_a_failing_schedule_is_made_minimal() -> None:
    gone = Fault(Kind.GONE_AFTER, operation="run_instances", nth=1)
    harmless = Fault(Kind.TRAINER_KILLED, "long", "put_object", 20)
    only_the_controller = Enforcers(box=False, cloud=False)
    found = search.minimal((harmless, gone), only_the_controller)
    assert found.faults == (gone,)
    assert found.breaches
