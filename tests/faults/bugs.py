"""Bugs planted into the product, one at a time: the search must find each of them.

Each names where it is found: in which schedules, and with which enforcers at work. With all four
at work most bugs are harmless until a second thing fails; that is what the enforcers are for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any
from unittest import mock

from orchestrator import allotment, books, overdue, plan, recovery, render, start, tending
from orchestrator.aws import boxes, bucket, schedules, stack
from orchestrator.aws.instances import find_boxes, terminate
from orchestrator.box import commits, state
from orchestrator.catalog import load_catalog
from orchestrator.quote import worst_box_usd
from orchestrator.run import read_record
from tests.faults import life
from tests.faults.fault import Kind
from tests.faults.world import Enforcers


@dataclass(frozen=True)
class Bug:
    """`plant` puts it into the product for as long as it is entered."""

    what: str
    plant: Callable[[], AbstractContextManager[Any]]
    kinds: tuple[Kind, ...] = ()
    """Faults that bring it out, at whichever call; none: the undisturbed life does."""
    operations: tuple[str, ...] = ()
    """Calls at which to look; none: all."""
    schedule: str = ""
    """Instead of single faults: several at once, as `parse` reads them."""
    enforcers: Enforcers = field(default_factory=Enforcers)


@contextmanager
def _run_request(change: Callable[[dict[str, Any]], None]) -> Iterator[None]:
    real = boxes.run_request

    def changed(*args: Any) -> dict[str, Any]:
        asked = real(*args)
        change(asked)
        return asked

    with mock.patch.object(boxes, "run_request", changed):
        yield


@contextmanager
def _halt() -> Iterator[None]:
    hard = {**render.HARD, "halt": "halt --force"}
    with mock.patch.object(start, "POWEROFF", "halt"), mock.patch.object(render, "HARD", hard):
        yield


@contextmanager
def _off_before_the_last_sync() -> Iterator[None]:
    real = state.State.phase

    def phase(self: state.State, now: float) -> str:
        over = all(job.ended or job.outcome for job in self.jobs.values())
        return "off" if over else real(self, now)

    with mock.patch.object(state.State, "phase", phase):
        yield


def _terminate_and_believe(session: Any, run_id: str, now: Any) -> list[Any]:
    terminate(session, [box.instance_id for box in find_boxes(session, run_id)])
    return []


@contextmanager
def _schedules_first() -> Iterator[None]:
    real = stack._end_boxes

    def end_boxes(session: Any, run_id: str) -> Any:
        schedules.delete_kills(session, run_id)
        return real(session, run_id)

    with mock.patch.object(stack, "_end_boxes", end_boxes):
        yield


@contextmanager
def _no_schedules() -> Iterator[None]:
    guard: Any = mock.patch.object(schedules, "ensure_guard")
    with mock.patch.object(schedules, "ensure_kill"), guard:
        yield


@contextmanager
def _manifest_before_blobs() -> Iterator[None]:
    """The newest entry's blob is named before it is there."""
    real = commits.Commits.commit

    def commit(self: Any, entries: Callable[[], Any], *args: Any, **more: Any) -> Any:
        def early() -> Any:
            known = entries()
            fake = {name: {**entry, "sha256": "0" * 64} for name, entry in [*known.items()][-1:]}
            return {**known, **fake}

        return real(self, early, *args, **more)

    with mock.patch.object(commits.Commits, "commit", commit):
        yield


@contextmanager
def _log_overwrites() -> Iterator[None]:
    real = bucket.Bucket.put

    def put(self: Any, key: str, data: bytes, *, if_absent: bool = False) -> bool:
        return bool(real(self, key, data, if_absent=if_absent and "/events/" not in key))

    with mock.patch.object(bucket.Bucket, "put", put):
        yield


@contextmanager
def _deadlines_from_now() -> Iterator[None]:
    """A resumed run gets its whole time again."""
    real = read_record

    def read(where: Any, run_id: str) -> Any:
        record = real(where, run_id)
        later = record.created_at + timedelta(minutes=30)
        return record.model_copy(update={"plan": plan.replan_deadlines(record.plan, later)})

    with mock.patch.object(life, "read_record", read):
        yield


@contextmanager
def _priced_at_first_choice() -> Iterator[None]:
    def worst(box: Any, dearest: Any, storage: Any) -> Any:
        first = load_catalog().price(box.instance, "us-east-1").usd_per_hour
        return worst_box_usd(box, min(first, dearest), storage)

    with mock.patch.object(allotment, "worst_box_usd", worst):
        life.the_plan.cache_clear()
        try:
            yield
        finally:
            life.the_plan.cache_clear()


@contextmanager
def _ended_when_quiet() -> Iterator[None]:
    """A heartbeat that is missing is taken for the box's end."""
    real = recovery.next_for

    def next_for(facts: Any, now: Any, *, ending: bool = False) -> Any:
        quiet = facts.heard_at is not None and now - facts.heard_at > timedelta(minutes=1)
        if quiet and facts.lives and facts.left and not ending and now < facts.box.drain_at:
            return recovery.Launch(facts.lives[-1].attempt + 1, "quiet")
        return real(facts, now, ending=ending)

    unasked: Any = mock.patch.object(boxes, "_alive", return_value=[])
    unpaid: Any = mock.patch.object(books.Books, "reserve_again")
    with mock.patch.object(tending, "next_for", next_for), unasked, unpaid:
        yield


def _overdue_with_the_last(record: Any, found: Any, now: Any) -> list[Any]:
    late = now > record.expires_at + overdue.AFTER
    return [box for box in found if box.alive and late]


BUGS = (
    Bug(
        "no ClientToken",
        lambda: _run_request(lambda asked: asked.pop("ClientToken")),
        kinds=(Kind.LOST, Kind.ERROR_AFTER),
        operations=("run_instances",),
    ),
    Bug(
        "an accepted terminate counts as terminated",
        lambda: mock.patch.object(stack, "teardown", _terminate_and_believe),
        enforcers=Enforcers(box=False),
    ),
    Bug("the last sync comes after the power-off", _off_before_the_last_sync),
    Bug("halt for poweroff", _halt, enforcers=Enforcers(controller=False, cloud=False)),
    Bug(
        "a power-off only stops the instance",
        lambda: _run_request(lambda asked: asked.update(InstanceInitiatedShutdownBehavior="stop")),
        enforcers=Enforcers(controller=False, cloud=False),
    ),
    Bug(
        "the kill schedules go before the boxes",
        _schedules_first,
        schedule="capacity@run_instances#2 gone-before@terminate_instances#1",
        enforcers=Enforcers(box=False),
    ),
    Bug(
        "no kill schedule is made",
        _no_schedules,
        enforcers=Enforcers(controller=False, box=False),
    ),
    Bug(
        "the guard names another tag",
        lambda: mock.patch.object(schedules, "guarded", return_value="another/box"),
        kinds=(Kind.GONE_AFTER,),
        operations=("run_instances",),
        enforcers=Enforcers(box=False),
    ),
    Bug(
        "the worst case is priced at the first choice of type",
        _priced_at_first_choice,
        kinds=(Kind.CAPACITY,),
    ),
    Bug("a manifest names blobs before they are there", _manifest_before_blobs),
    Bug(
        "the run log overwrites another writer's entry",
        _log_overwrites,
        kinds=(Kind.SECOND_UP, Kind.SECOND_DOWN),
    ),
    Bug(
        "a resumed run gets new deadlines",
        _deadlines_from_now,
        kinds=(Kind.KILLED_AFTER,),
        operations=("run_instances",),
        enforcers=Enforcers(box=False),
    ),
    Bug(
        "a box is ended only at the run's last deadline",
        lambda: mock.patch.object(overdue, "overdue", _overdue_with_the_last),
        enforcers=Enforcers(box=False, cloud=False),
    ),
    Bug(
        "a box that isn't listed yet counts as gone",
        lambda: mock.patch.object(recovery, "VISIBLE_AFTER", timedelta(0)),
        kinds=(Kind.INVISIBLE,),
        operations=("run_instances",),
    ),
    Bug(
        "a box that is quiet is launched again, unasked and unpaid",
        _ended_when_quiet,
        kinds=(Kind.BOX_WEDGED,),
    ),
)
