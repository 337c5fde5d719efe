"""Writes the frozen days: `python -m agent_env.bundles.gridsim.generate [FOLDER]`.

Needs scipy. A day depends only on the seed, its split and its index; a day that isn't worth
playing is drawn again. Gzip carries no time, so that the same days make the same bytes.
"""

import gzip
import itertools
import random
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

from agent_env.bundles.gridsim import coarse
from agent_env.bundles.gridsim.coarse import PLANS, Plan
from agent_env.bundles.gridsim.frozen import (
    COARSE_SPLITS,
    FOLDER,
    CoarseDay,
    FineDay,
    FrozenDay,
)
from agent_env.bundles.gridsim.optimum import optimum
from agent_env.bundles.gridsim.parameters import parameters, site
from agent_env.bundles.gridsim.simulation import NOTHING, Day, simulate
from agent_env.bundles.gridsim.weather import draw_coarse_day, draw_day


def fine_day(split: str, index: int) -> FineDay:
    """The first of this index's draws that is worth playing, with its optimum."""
    least = parameters()["least_saving_usd"]
    days = (_with_optimum(draw_day(rng)) for rng in _draws(split, index))
    return next(day for day in days if day.nothing_usd - day.optimum_usd >= least)


def coarse_day(split: str, index: int) -> CoarseDay:
    """A day of context `index % 12` whose plans are worth what its words promise."""
    levels = contexts()[index % len(contexts())]
    days = (draw_coarse_day(rng, levels) for rng in _draws(split, index))
    day = next(day for day in days if coarse.words(day) == levels and _keeps_promise(day))
    costs = coarse.plan_costs_usd(day)
    plan = min(PLANS, key=lambda each: costs[each])
    return CoarseDay(
        **_inputs(day),
        nothing_usd=_nothing_usd(day),
        optimum_usd=round(costs[plan], 4),
        plan=plan,
    )


def contexts() -> list[dict[Plan, str]]:
    """The twelve coarse days in words: one block is high, the other two are low or mid."""
    return [
        dict(zip(PLANS, levels, strict=True))
        for levels in itertools.product(coarse.WORDS, repeat=len(PLANS))
        if levels.count("high") == 1
    ]


def write(folder: Path) -> None:
    """All splits, as `<folder>/<split>.jsonl.gz`."""
    folder.mkdir(parents=True, exist_ok=True)
    for split, count in parameters()["days"].items():
        make: Callable[[str, int], FrozenDay]
        make = coarse_day if split in COARSE_SPLITS else fine_day
        lines = (make(split, index).model_dump_json() + "\n" for index in range(count))
        packed = gzip.compress("".join(lines).encode(), compresslevel=9, mtime=0)
        (folder / f"{split}.jsonl.gz").write_bytes(packed)
        sys.stdout.write(f"{split}: {count} days, {len(packed)} bytes\n")


def _with_optimum(day: Day) -> FineDay:
    best, optimum_usd = optimum(day, site())
    return FineDay(
        **_inputs(day),
        nothing_usd=_nothing_usd(day),
        optimum_usd=round(optimum_usd, 4),
        battery_kw=tuple(round(kw) for kw in best.battery_kw),
        generator_kw=tuple(round(kw) for kw in best.generator_kw),
    )


def _draws(split: str, index: int) -> Iterator[random.Random]:
    seed = parameters()["seed"]
    for attempt in itertools.count():
        yield random.Random(f"{seed}/{split}/{index}/{attempt}")  # noqa: S311


def _keeps_promise(day: Day) -> bool:
    if min(coarse.plan_costs_usd(day).values()) >= _nothing_usd(day):
        return False
    low, high = parameters()["coarse_mid_value"]
    fits = {
        "low": lambda worth: worth == 0.0,
        "mid": lambda worth: low <= worth <= high,
        "high": lambda worth: worth == 1.0,
    }
    values, words = coarse.plan_values(day), coarse.words(day)
    return all(fits[words[plan]](values[plan]) for plan in PLANS)


def _nothing_usd(day: Day) -> float:
    return round(simulate(day, NOTHING, site()).cost_usd, 4)


def _inputs(day: Day) -> dict[str, tuple[int, ...]]:
    names = ("load_kw", "wind_kw", "solar_kw", "price_usd_per_mwh")
    return {name: tuple(round(number) for number in getattr(day, name)) for name in names}


if __name__ == "__main__":
    write(Path(sys.argv[1]) if len(sys.argv) > 1 else FOLDER)
