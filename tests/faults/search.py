"""The search: every single fault of the undisturbed life, and seeded samples of several at once.

Calls that the undisturbed life makes in one and the same situation (what is asked, how far the log
and the boxes are) stand for each other: the first of them is struck. A failing schedule is made
minimal, and printed as text that one command replays.
"""

from __future__ import annotations

import gc
import logging
import random
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import cache, partial

from tests.faults.clock import START, seconds
from tests.faults.fault import AT_BOXES, AT_CALLS, AT_TIMES, CONTROLLER, Fault, Kind, parse
from tests.faults.life import Life, live, the_plan
from tests.faults.machine import Machine
from tests.faults.promises import breaches
from tests.faults.remembered import Remembered
from tests.faults.strikes import Seen, Strikes, is_read
from tests.faults.trace import Traces
from tests.faults.world import Enforcers, World

START_S = START.timestamp()
EVERY_S = 120
"""How far apart the moments lie at which something happens that no call marks."""
SPOT_BOX = "short"
_AT_READS = (Kind.KILLED_BEFORE, Kind.GONE_BEFORE, Kind.THROTTLED, Kind.EXPIRED)
_KILLED, _GONE = (Kind.KILLED_BEFORE, Kind.KILLED_AFTER), (Kind.GONE_BEFORE, Kind.GONE_AFTER)


_traces = Traces()
_ASKED = {
    Kind.CLOCK_AHEAD: "clock",
    Kind.CLOCK_BEHIND: "clock",
    Kind.DISK_FULL: "disk",
    Kind.SPOT_TAKEN: "spot",
    Kind.INVISIBLE: "late",
}


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
        gc.freeze()  # what is loaded by now stays: no life's garbage is looked for in it


def forget() -> None:
    """The code is another one now, so its calls are, too."""
    for known in (undisturbed, singles, stand_ins, everything):
        known.cache_clear()
    _traces.forget()


@cache
def singles() -> tuple[Fault, ...]:
    """Every fault at every distinct call, and at every moment, each situation once.

    A call that only reads changes nothing: dying after it is dying before the next one, and losing
    its answer is asking again, as after a refusal. And of faults that can't be told apart by what
    they leave, the first stands for all.
    """
    return tuple(dict.fromkeys(stand_ins().values()))


@cache
def stand_ins() -> dict[Fault, Fault]:
    """For each fault that is new by its kind, the one that is lived through in its place."""
    calls = {(seen.actor, seen.operation, seen.nth): seen for seen in undisturbed()}
    first: dict[object, Fault] = {}
    found = {}
    for fault in filter(_is_new, everything()):
        call = calls.get((fault.actor, fault.operation, fault.nth))
        found[fault] = first.setdefault(_what_it_leaves(fault, call) if call else fault, fault)
    return found


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
    """Each schedule with what broke under it, as they are done.

    What a box did in one of these lives it repeats in the others (`remembered`).
    """
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
    return fault.actor != CONTROLLER or not is_read(fault.operation) or fault.kind in _AT_READS


def _what_it_leaves(fault: Fault, call: Seen) -> object:
    """Equal for faults after which the world, and whoever still lives in it, are the same.

    A controller that died has left what its calls did and nothing else, and so has a box. A lost
    answer and an error are one to whoever asks again. What a trainer's end does is seen at the
    agent's next look; what another fault does, by the first who asks for what it changed.
    """
    if fault.kind in _KILLED + _GONE:
        after = fault.kind in (Kind.KILLED_AFTER, Kind.GONE_AFTER)
        return fault.kind in _GONE, call.world_after if after else call.world
    if fault.kind in (Kind.LOST, Kind.ERROR_AFTER) and call.is_tried_again:
        return Kind.LOST, fault.operation, fault.nth
    if fault.kind is Kind.TRAINER_KILLED:
        return fault.kind, fault.actor, call.agent_look
    if fault.kind in (Kind.BOX_LOST, Kind.BOX_WEDGED):
        return fault.kind, fault.actor, call.world, call.asked["written"]
    if fault.kind in _ASKED:
        moment = call.world[0] if fault.kind is Kind.SPOT_TAKEN else None
        return fault.kind, fault.actor, call.asked.get(_ASKED[fault.kind], 0), moment
    return fault


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
    return faults, tuple(lived(faults, enforcers, _traces)[0])


def lived(
    faults: Sequence[Fault], enforcers: Enforcers | None, traces: Traces | None = None
) -> tuple[list[str], Life]:
    quiet()
    kind = Machine if traces is None else partial(Remembered, traces)
    world = World(Strikes(tuple(faults)), enforcers or Enforcers(), kind=kind)
    try:
        life = live(world)
        return breaches(life), life
    finally:
        world.close()


def quiet() -> None:
    """Lives end badly by design: their log would drown what matters."""
    logging.getLogger("gpurun").setLevel(logging.CRITICAL)
    logging.getLogger("orchestrator").setLevel(logging.CRITICAL)
