"""The frozen days: one gzipped JSON line each, written by `generate`, read here."""

import gzip
import json
from functools import cache
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field

from agent_env.bundles.gridsim.coarse import Plan
from agent_env.bundles.gridsim.parameters import site
from agent_env.bundles.gridsim.simulation import HOURS, Day, Outcome, Schedule, simulate, value

FOLDER = Path(__file__).with_name("data")
FINE_SPLITS = ("train", "eval")
COARSE_SPLITS = ("coarse-train", "coarse-eval")

Series = Annotated[tuple[int, ...], Field(min_length=HOURS, max_length=HOURS)]


class FrozenDay(BaseModel):
    """A day's inputs, what it costs to do nothing, and the least it can cost."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    load_kw: Series
    wind_kw: Series
    solar_kw: Series
    price_usd_per_mwh: Series
    nothing_usd: float
    optimum_usd: float
    """Fine days: the linear program's optimum. Coarse days: the best of the three plans."""

    def day(self) -> Day:
        return Day(
            load_kw=self.load_kw,
            wind_kw=self.wind_kw,
            solar_kw=self.solar_kw,
            price_usd_per_mwh=self.price_usd_per_mwh,
        )

    def worth(self, schedule: Schedule) -> float:
        """What a schedule is worth on this day, in [0, 1]: the whole of scoring it."""
        return self.value(simulate(self.day(), schedule, site()))

    def value(self, outcome: Outcome) -> float:
        """What a day that went so is worth, in [0, 1]."""
        return value(outcome.cost_usd, nothing_usd=self.nothing_usd, optimum_usd=self.optimum_usd)


class FineDay(FrozenDay):
    """With the optimal schedule, rounded to whole kW."""

    battery_kw: Series
    generator_kw: Series

    def best(self) -> Schedule:
        return Schedule.of(self.battery_kw, self.generator_kw)


class CoarseDay(FrozenDay):
    """With the best plan."""

    plan: Plan


@cache
def fine_days(split: str) -> tuple[FineDay, ...]:
    """The days of "train" or "eval", in order."""
    return tuple(FineDay.model_validate(record) for record in records(split))


@cache
def coarse_days(split: str) -> tuple[CoarseDay, ...]:
    """The days of "coarse-train" or "coarse-eval", in order."""
    return tuple(CoarseDay.model_validate(record) for record in records(split))


@cache
def records(split: str) -> tuple[dict[str, Any], ...]:
    """The days of any split as they lie in the file: a server of thousands reads few of them."""
    return tuple(json.loads(line) for line in content(split).splitlines())


@cache
def content(split: str) -> bytes:
    """The file's text, unpacked."""
    return gzip.decompress((FOLDER / f"{split}.jsonl.gz").read_bytes())
