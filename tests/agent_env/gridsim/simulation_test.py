"""The simulation by itself: energy, limits, and what it costs to do nothing."""

import random
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agent_env.bundles.gridsim.parameters import site
from agent_env.bundles.gridsim.simulation import (
    HOURS,
    NOTHING,
    Day,
    Outcome,
    Schedule,
    ScheduleError,
    simulate,
    value,
)
from agent_env.bundles.gridsim.weather import draw_day

CAREFUL = settings(max_examples=60, deadline=None, derandomize=True)

days = st.integers(0, 10_000).map(lambda seed: draw_day(random.Random(seed)))
requests = st.lists(
    st.floats(-1e4, 1e4) | st.sampled_from([-100.0, 0.0, 100.0]), min_size=HOURS, max_size=HOURS
)
schedules = st.builds(Schedule.of, requests, requests)


def flat_day(**changes: float) -> Day:
    series = {"load_kw": 100.0, "wind_kw": 0.0, "solar_kw": 0.0, "price_usd_per_mwh": 50.0}
    return Day(**{name: (number,) * HOURS for name, number in {**series, **changes}.items()})


def asking(battery: dict[int, float] | None = None, generator: float = 0.0) -> Schedule:
    battery_kw = [(battery or {}).get(hour, 0.0) for hour in range(HOURS)]
    return Schedule.of(battery_kw, [generator] * HOURS)


def run(day: Day, schedule: Schedule) -> Outcome:
    return simulate(day, schedule, site())


@CAREFUL
@given(days, schedules)
def test_energy_in_is_energy_out_in_every_hour(day: Day, schedule: Schedule) -> None:
    for index, hour in enumerate(run(day, schedule).hours):
        into = hour.import_kw + day.wind_kw[index] + day.solar_kw[index] + hour.generator_kw
        out = day.load_kw[index] + hour.battery_kw + hour.export_kw + hour.curtailed_kw
        assert into == pytest.approx(out)


@CAREFUL
@given(days, schedules)
def test_what_the_battery_holds_follows_from_its_losses(day: Day, schedule: Schedule) -> None:
    battery = site().battery
    stored = battery.start_kwh
    for hour in run(day, schedule).hours:
        charged, taken = max(0.0, hour.battery_kw), max(0.0, -hour.battery_kw)
        stored += charged * battery.charge_efficiency - taken / battery.discharge_efficiency
        assert hour.stored_kwh == pytest.approx(stored, abs=1e-6)


@CAREFUL
@given(days, schedules)
def test_no_schedule_drives_a_device_over_its_limits(day: Day, schedule: Schedule) -> None:
    battery, generator, line = site().battery, site().generator, site().connection
    running = 0.0
    for hour in run(day, schedule).hours:
        assert abs(hour.battery_kw) <= battery.power_kw
        assert 0 <= hour.stored_kwh <= battery.capacity_kwh
        assert 0 <= hour.generator_kw <= generator.power_kw
        assert abs(hour.generator_kw - running) <= generator.ramp_kw_per_hour + 1e-9
        assert 0 <= hour.import_kw <= line.import_kw + 1e-9
        assert 0 <= hour.export_kw <= line.export_kw
        assert hour.curtailed_kw >= 0
        running = hour.generator_kw


def test_doing_nothing_buys_the_load_at_the_price_and_the_fee() -> None:
    cost = run(flat_day(), NOTHING).cost_usd
    assert cost == pytest.approx(100 * HOURS * (50 + site().connection.fee_usd_per_mwh) / 1000)


def test_a_surplus_is_sold_without_the_fee_up_to_the_export_limit() -> None:
    limit = site().connection.export_kw
    hour = run(flat_day(wind_kw=100 + limit + 30), NOTHING).hours[0]
    assert (hour.export_kw, hour.curtailed_kw) == (limit, 30)
    assert hour.cost_usd == pytest.approx(-limit * 50 / 1000)


def test_the_generator_climbs_by_its_ramp_from_cold() -> None:
    ramp, most = site().generator.ramp_kw_per_hour, site().generator.power_kw
    ran = [hour.generator_kw for hour in run(flat_day(), asking(generator=1e6)).hours]
    assert ran[:5] == [ramp, 2 * ramp, 3 * ramp, 4 * ramp, most]


def test_energy_missing_at_midnight_is_bought_back_at_the_highest_price() -> None:
    outcome = run(flat_day(), asking({3: -92.0}))
    price = 50 + site().connection.fee_usd_per_mwh
    assert outcome.owed_kwh == pytest.approx(100.0)
    assert outcome.owed_usd == pytest.approx(100 * price / 1000 / 0.92)
    assert outcome.cost_usd > run(flat_day(), NOTHING).cost_usd


def test_an_empty_battery_gives_what_it_holds_and_the_hour_is_not_as_asked() -> None:
    outcome = run(flat_day(), asking({0: -100.0, 1: -100.0}))
    assert [hour.as_asked for hour in outcome.hours[:3]] == [True, False, True]
    assert outcome.hours[1].battery_kw == pytest.approx(-84.0)
    assert outcome.as_asked_share == pytest.approx(23 / 24)


def test_charging_yields_to_the_load_when_the_line_is_full() -> None:
    limit = site().connection.import_kw
    hour = run(flat_day(load_kw=limit - 40), asking({0: 100.0})).hours[0]
    assert (hour.battery_kw, hour.import_kw) == (40, limit)


def test_a_load_that_the_line_cannot_carry_is_refused() -> None:
    with pytest.raises(ValueError, match="above the import limit"):
        run(flat_day(load_kw=site().connection.import_kw + 1), NOTHING)


@pytest.mark.parametrize(
    "battery_kw,complaint",
    [
        ([0.0] * 23, "battery_kw has 23 values"),
        ([0.0] * 25, "battery_kw has 25 values"),
        ([float("nan"), *[0.0] * 23], r"battery_kw\[0\] is nan"),
        ([*[0.0] * 23, float("inf")], r"battery_kw\[23\] is inf"),
    ],
)
def test_a_schedule_that_is_not_24_numbers_is_rejected(
    battery_kw: list[float], complaint: str
) -> None:
    with pytest.raises(ScheduleError, match=complaint):
        Schedule.of(battery_kw, [0.0] * HOURS)


def test_value_is_0_at_nothing_1_at_the_optimum_and_never_outside() -> None:
    costs = (120.0, 100.0, 75.0, 50.0, 49.0)
    found = [value(cost, nothing_usd=100.0, optimum_usd=50.0) for cost in costs]
    assert found == [0.0, 0.0, 0.5, 1.0, 1.0]


def test_value_without_anything_to_gain_is_refused() -> None:
    with pytest.raises(ValueError, match="isn't below doing nothing"):
        value(1.0, nothing_usd=5.0, optimum_usd=5.0)


def test_a_dearer_hour_makes_a_dearer_day() -> None:
    day = flat_day()
    dearer = replace(day, price_usd_per_mwh=(60.0, *day.price_usd_per_mwh[1:]))
    assert run(dearer, NOTHING).cost_usd > run(day, NOTHING).cost_usd
