"""What an expert would do, spoiled on purpose by as much noise as a warm start wants."""

import random

from agent_env.bundle import Calls
from agent_env.bundles.gridsim.coarse import PLANS
from agent_env.bundles.gridsim.frozen import CoarseDay, FineDay
from agent_env.bundles.gridsim.parameters import site


def fine_calls(day: FineDay, noise: float, rng: random.Random) -> Calls:
    """The optimal schedule; each hour of each device is random with probability `noise`."""
    battery, generator = round(site().battery.power_kw), round(site().generator.power_kw)
    schedule = {
        "battery_kw": _spoiled(day.battery_kw, -battery, battery, noise, rng),
        "generator_kw": _spoiled(day.generator_kw, 0, generator, noise, rng),
    }
    return [("read_day", {}), ("commit_schedule", schedule)]


def coarse_calls(day: CoarseDay, noise: float, rng: random.Random) -> Calls:
    """The best plan; with probability `noise` one of the other two."""
    plan = day.plan
    if rng.random() < noise:
        plan = rng.choice([other for other in PLANS if other != day.plan])
    return [("read_day", {}), ("commit_schedule", {"plan": plan})]


def _spoiled(
    series: tuple[int, ...], low: int, high: int, noise: float, rng: random.Random
) -> list[int]:
    return [rng.randint(low, high) if rng.random() < noise else number for number in series]
