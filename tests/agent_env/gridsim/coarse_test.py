"""The coarse view: the words tell the plans apart, and the money agrees with the words."""

import statistics

import pytest

from agent_env.bundles.gridsim import coarse
from agent_env.bundles.gridsim.coarse import BLOCKS, PLANS, Plan
from agent_env.bundles.gridsim.frozen import COARSE_SPLITS, CoarseDay, coarse_days
from agent_env.bundles.gridsim.parameters import parameters, site
from agent_env.bundles.gridsim.simulation import HOURS, Day, simulate

CONTEXTS = 12


def all_days() -> list[CoarseDay]:
    return [day for split in COARSE_SPLITS for day in coarse_days(split)]


def day_at(prices: dict[Plan, float]) -> Day:
    series = [40.0] * HOURS
    for plan, price in prices.items():
        for hour in BLOCKS[plan]:
            series[hour] = price
    idle = (0.0,) * HOURS
    return Day(
        load_kw=(250.0,) * HOURS, wind_kw=idle, solar_kw=idle, price_usd_per_mwh=tuple(series)
    )


def test_words_follow_the_thresholds_of_the_parameters() -> None:
    mid = parameters()["coarse_mid_from_usd_per_mwh"]
    high = parameters()["coarse_high_from_usd_per_mwh"]
    below = day_at({"morning": mid - 1, "noon": mid, "evening": high - 1})
    assert coarse.words(below) == {"morning": "low", "noon": "mid", "evening": "mid"}
    assert coarse.words(day_at({"noon": high}))["noon"] == "high"


@pytest.mark.parametrize("plan", PLANS)
def test_a_plan_fills_the_battery_at_night_and_owes_nothing_at_midnight(plan: Plan) -> None:
    outcome = simulate(day_at({}), coarse.schedule(plan), site())
    stored = [hour.stored_kwh for hour in outcome.hours]
    assert max(stored) == pytest.approx(site().battery.capacity_kwh)
    assert outcome.owed_kwh == pytest.approx(0.0, abs=1e-6)
    assert outcome.as_asked_share == 1.0
    emptied = [hour for hour in range(HOURS) if outcome.hours[hour].battery_kw < 0]
    assert emptied == list(BLOCKS[plan])


def test_every_context_is_there_equally_often() -> None:
    for split in COARSE_SPLITS:
        days = coarse_days(split)
        seen = [tuple(coarse.words(day.day()).values()) for day in days]
        assert len(set(seen)) == CONTEXTS
        assert {seen.count(context) for context in seen} == {len(days) // CONTEXTS}


def test_the_best_plan_is_the_block_called_high() -> None:
    for frozen in all_days():
        assert coarse.words(frozen.day())[frozen.plan] == "high"


def test_plans_are_graded_by_their_words() -> None:
    low, high = parameters()["coarse_mid_value"]
    for frozen in all_days():
        words, values = coarse.words(frozen.day()), coarse.plan_values(frozen.day())
        assert values[frozen.plan] == 1.0
        for plan in PLANS:
            if words[plan] == "low":
                assert values[plan] == 0.0
            if words[plan] == "mid":
                assert low <= values[plan] <= high


def test_guessing_is_worth_well_under_half_of_knowing() -> None:
    values = [coarse.plan_values(frozen.day()) for frozen in coarse_days("coarse-eval")]
    assert statistics.mean(worth for each in values for worth in each.values()) < 0.42


@pytest.mark.parametrize("plan", PLANS)
def test_no_fixed_plan_does_better_than_guessing(plan: Plan) -> None:
    values = [coarse.plan_values(frozen.day())[plan] for frozen in coarse_days("coarse-eval")]
    assert statistics.mean(values) < 0.45
