"""The linear program: cheaper than anything that can be tried, and what the frozen data says."""

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agent_env.bundles.gridsim.frozen import FINE_SPLITS, fine_days
from agent_env.bundles.gridsim.optimum import optimum
from agent_env.bundles.gridsim.parameters import site
from agent_env.bundles.gridsim.simulation import HOURS, NOTHING, Day, Schedule, simulate
from agent_env.bundles.gridsim.weather import draw_day

SLACK_USD = 1e-6

seeds = st.integers(0, 10_000)
requests = st.lists(st.floats(-250, 250), min_size=HOURS, max_size=HOURS)
nudges = st.lists(st.floats(-60, 60), min_size=HOURS, max_size=HOURS)


def a_day(seed: int) -> Day:
    return draw_day(random.Random(seed))


@settings(max_examples=80, deadline=None, derandomize=True)
@given(seeds, requests, requests)
def test_no_random_schedule_beats_the_optimum(
    seed: int, battery_kw: list[float], generator_kw: list[float]
) -> None:
    day = a_day(seed)
    _, optimum_usd = optimum(day, site())
    tried = simulate(day, Schedule.of(battery_kw, generator_kw), site())
    assert tried.cost_usd >= optimum_usd - SLACK_USD
    assert simulate(day, NOTHING, site()).cost_usd >= optimum_usd - SLACK_USD


@settings(max_examples=80, deadline=None, derandomize=True)
@given(seeds, nudges, nudges)
def test_no_schedule_near_the_optimum_beats_it(
    seed: int, battery_kw: list[float], generator_kw: list[float]
) -> None:
    day = a_day(seed)
    best, optimum_usd = optimum(day, site())
    near = Schedule.of(
        [kw + nudge for kw, nudge in zip(best.battery_kw, battery_kw, strict=True)],
        [kw + nudge for kw, nudge in zip(best.generator_kw, generator_kw, strict=True)],
    )
    assert simulate(day, near, site()).cost_usd >= optimum_usd - SLACK_USD


@pytest.mark.parametrize("index", range(0, 200, 25))
def test_a_search_that_keeps_what_helps_never_gets_below_the_frozen_optimum(index: int) -> None:
    frozen, rng = fine_days("eval")[index], random.Random(index)
    kept, least_usd = NOTHING, frozen.nothing_usd
    for _ in range(1500):
        tried = _nudged(kept, rng)
        cost_usd = simulate(frozen.day(), tried, site()).cost_usd
        if cost_usd < least_usd:
            kept, least_usd = tried, cost_usd
    assert frozen.worth(kept) > 0.5, "the search finds nothing: it proves nothing"
    assert least_usd >= frozen.optimum_usd - 1e-3


def _nudged(schedule: Schedule, rng: random.Random) -> Schedule:
    """One to three hours of either device asked for something else."""
    battery, generator = list(schedule.battery_kw), list(schedule.generator_kw)
    for _ in range(rng.randint(1, 3)):
        series, most = rng.choice([(battery, 100), (generator, 180)])
        series[rng.randrange(HOURS)] = rng.uniform(-most, most)
    return Schedule.of(battery, generator)


@pytest.mark.parametrize("seed", range(20))
def test_the_simulation_carries_the_optimal_schedule_out_at_the_optimal_cost(seed: int) -> None:
    day = a_day(seed)
    best, optimum_usd = optimum(day, site())
    outcome = simulate(day, best, site())
    assert outcome.cost_usd == pytest.approx(optimum_usd, abs=SLACK_USD)
    assert outcome.as_asked_share == 1.0


@pytest.mark.parametrize("split", FINE_SPLITS)
def test_the_frozen_optimum_is_the_optimum(split: str) -> None:
    for frozen in fine_days(split)[::40]:
        _, optimum_usd = optimum(frozen.day(), site())
        assert frozen.optimum_usd == pytest.approx(optimum_usd, abs=1e-3)
