"""The coarse view of a day: three blocks, words for prices, one word for a plan.

The battery is filled at night and emptied in one block of the day; the only question is which.
Same simulation, same battery, same money as the fine view.
"""

from typing import Literal, get_args

from agent_env.bundles.gridsim.parameters import parameters, site
from agent_env.bundles.gridsim.simulation import (
    HOURS,
    NOTHING,
    Day,
    Schedule,
    simulate,
    value,
)

Plan = Literal["morning", "noon", "evening"]
PLANS: tuple[Plan, ...] = get_args(Plan)
WORDS = ("low", "mid", "high")

NIGHT = range(6)
BLOCKS: dict[Plan, range] = {
    "morning": range(6, 11),
    "noon": range(11, 16),
    "evening": range(16, 21),
}


def words(day: Day) -> dict[Plan, str]:
    """Each block's mean price as a word, by the thresholds of the parameters."""
    return {plan: _word(_mean_price(day, hours)) for plan, hours in BLOCKS.items()}


def schedule(plan: Plan) -> Schedule:
    """The plan hour by hour: fill the battery over the night, empty it evenly in the block.

    It ends the day with what it began with, so nothing is owed.
    """
    battery = site().battery
    room_kwh = battery.capacity_kwh - battery.start_kwh
    charge_kw = room_kwh / battery.charge_efficiency / len(NIGHT)
    discharge_kw = room_kwh * battery.discharge_efficiency / len(BLOCKS[plan])
    battery_kw = [0.0] * HOURS
    for hour in NIGHT:
        battery_kw[hour] = charge_kw
    for hour in BLOCKS[plan]:
        battery_kw[hour] = -discharge_kw
    return Schedule.of(battery_kw, NOTHING.generator_kw)


def plan_costs_usd(day: Day) -> dict[Plan, float]:
    """What the day costs under each plan."""
    return {plan: simulate(day, schedule(plan), site()).cost_usd for plan in PLANS}


def plan_values(day: Day) -> dict[Plan, float]:
    """Each plan's value: 1 for the best plan, 0 for those no better than doing nothing."""
    costs = plan_costs_usd(day)
    nothing_usd = simulate(day, NOTHING, site()).cost_usd
    best_usd = min(costs.values())
    return {
        plan: value(cost, nothing_usd=nothing_usd, optimum_usd=best_usd)
        for plan, cost in costs.items()
    }


def _mean_price(day: Day, hours: range) -> float:
    return sum(day.price_usd_per_mwh[hour] for hour in hours) / len(hours)


def _word(price_usd_per_mwh: float) -> str:
    if price_usd_per_mwh >= parameters()["coarse_high_from_usd_per_mwh"]:
        return "high"
    if price_usd_per_mwh >= parameters()["coarse_mid_from_usd_per_mwh"]:
        return "mid"
    return "low"
