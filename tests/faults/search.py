"""The search: every single fault of the undisturbed life, and seeded samples of several at once.

Calls that the undisturbed life makes in one and the same situation (what is asked, how far the log
and the boxes are) stand for each other: the first of them is struck. A failing schedule is made
minimal, and printed as text that one command replays.
"""

from __future__ import annotations

import logging
import random
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import cache

from tests.faults.clock import START, seconds
from tests.faults.fault import AT_BOXES, AT_CALLS, AT_TIMES, CONTROLLER, Fault, Kind, parse
from tests.faults.life import Life, live, the_plan
from tests.faults.promises import breaches
from tests.faults.strikes import Seen, Strikes
from tests.faults.world import Enforcers, World

START_S = START.timestamp()
EVERY_S = 120
"""How far apart the moments lie at which something happens that no call marks."""
SPOT_BOX = "short"
_READS = ("describe_", "get_", "list_", "head_")
_AT_READS = (Kind.KILLED_BEFORE, Kind.GONE_BEFORE, Kind.THROTTLED, Kind.EXPIRED)


@dataclass(frozen=True)
class Found:
    """A schedule under which a promise broke."""

    faults: tuple[Fault, ...]
    breaches: tuple[str, ...]

    @property
    def schedule(self) -> str:
        return " ".join(str(fault) for fault in self.faults)

    def __str__(self) -> str:
        said = "\n".join(f"    {breach}" for breach in self.breaches)
        return f'{said}\n    replay: make faults REPLAY="{self.schedule}"'


def run(faults: Sequence[Fault], enforcers: Enforcers | None = None) -> tuple[str, ...]:
    """Live one life with those faults; the promises that broke in it."""
    return tuple(lived(faults, enforcers)[0])


def replay(schedule: str) -> tuple[list[str], Life]:
    """One life with the faults of a printed schedule. Raises ValueError for no schedule."""
    return lived(parse(schedule), None)


@cache
def undisturbed() -> tuple[Seen, ...]:
    """The calls of a life in which nothing goes wrong."""
    quiet()
    world = World(Strikes(watch_calls=True))
    try:
        found = breaches(live(world))
        if found:
            raise AssertionError(f"the undisturbed life breaks a promise: {found}")
        return tuple(world.strikes.calls)
    finally:
        world.close()


@cache
def singles() -> tuple[Fault, ...]:
    """Every fault at every distinct call, and at every moment, each situation once.

    A call that only reads changes nothing: dying after it is dying before the next one, and losing
    its answer is asking again, as after a refusal.
    """
    return tuple(fault for fault in everything() if _is_new(fault))


@cache
def everything() -> tuple[Fault, ...]:
    """Every fault at every distinct call and moment, equal ones too: what samples draw from."""
    return tuple(dict.fromkeys([*_at_calls(), *_at_moments()]))


def some_singles(count: int | None, seed: int) -> tuple[Fault, ...]:
    """So many of the single faults, the same ones for the same seed; all of them without."""
    if count is None or count >= len(singles()):
        return singles()
    return tuple(random.Random(seed).sample(singles(), count))


def samples(count: int, seed: int) -> Iterator[tuple[Fault, ...]]:
    """Pairs and triples of single faults, the same ones for the same seed."""
    chance, all_ = random.Random(seed), everything()
    for _ in range(count):
        yield tuple(chance.sample(all_, chance.choice((2, 2, 3))))


def search(
    schedules: Iterable[tuple[Fault, ...]], workers: int, enforcers: Enforcers | None = None
) -> Iterator[tuple[tuple[Fault, ...], tuple[str, ...]]]:
    """Each schedule with what broke under it, as they are done."""
    jobs = [(schedule, enforcers) for schedule in schedules]
    if workers == 1:
        yield from map(_judge, jobs)
        return
    with ProcessPoolExecutor(workers) as pool:
        yield from pool.map(_judge, jobs, chunksize=8)


def minimal(faults: tuple[Fault, ...], enforcers: Enforcers | None = None) -> Found:
    """The schedule without the faults that it doesn't need to break a promise."""
    found = Found(faults, run(faults, enforcers))
    for fault in faults:
        fewer = tuple(other for other in found.faults if other != fault)
        said = run(fewer, enforcers)
        if said:
            found = Found(fewer, said)
    return found


def _is_new(fault: Fault) -> bool:
    reads = fault.operation.startswith(_READS)
    return fault.actor != CONTROLLER or not reads or fault.kind in _AT_READS


def _at_calls() -> Iterator[Fault]:
    for seen in _distinct(undisturbed()):
        kinds = AT_CALLS if seen.actor == CONTROLLER else AT_BOXES
        for kind in kinds:
            if _can_be(kind, seen):
                yield Fault(kind, seen.actor, seen.operation, seen.nth)


def _can_be(kind: Kind, seen: Seen) -> bool:
    if kind is Kind.CAPACITY:
        return seen.operation == "run_instances"
    return kind is not Kind.SPOT_TAKEN or seen.actor == SPOT_BOX


def _at_moments() -> Iterator[Fault]:
    end = seconds(max(box.cloud_at for box in the_plan().boxes))
    for at_s in range(0, end, EVERY_S):
        for kind in AT_TIMES:
            yield Fault(kind, at_s=at_s)


def _distinct(calls: Iterable[Seen]) -> Iterator[Seen]:
    known: set[tuple[object, ...]] = set()
    for seen in calls:
        if seen.signature not in known:
            known.add(seen.signature)
            yield seen


def _judge(
    job: tuple[tuple[Fault, ...], Enforcers | None],
) -> tuple[tuple[Fault, ...], tuple[str, ...]]:
    faults, enforcers = job
    return faults, run(faults, enforcers)


def lived(faults: Sequence[Fault], enforcers: Enforcers | None) -> tuple[list[str], Life]:
    quiet()
    world = World(Strikes(tuple(faults)), enforcers or Enforcers())
    try:
        life = live(world)
        return breaches(life), life
    finally:
        world.close()


def quiet() -> None:
    """Lives end badly by design: their log would drown what matters."""
    logging.getLogger("gpurun").setLevel(logging.CRITICAL)
    logging.getLogger("orchestrator").setLevel(logging.CRITICAL)
