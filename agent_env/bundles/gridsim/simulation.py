"""A day of a small grid: load, wind and sun, a battery, a generator and a line to the big grid.

Pure arithmetic over 24 hours; power is in kW and constant within an hour, so that kW and kWh of
one hour are the same number. Costs are simulated dollars in floats, never somebody's bill.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import isfinite

HOURS = 24
ASKED_TOLERANCE_KW = 0.5
"""An hour counts as carried out as asked when no device is further than this from the request."""


class ScheduleError(ValueError):
    """The schedule can't be read as 24 numbers for each device."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Day:
    """What the weather, the people and the market do; each series has one value an hour."""

    load_kw: tuple[float, ...]
    wind_kw: tuple[float, ...]
    solar_kw: tuple[float, ...]
    price_usd_per_mwh: tuple[float, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Battery:
    """Limits and losses; power and efficiencies are seen from the grid's side of the battery."""

    capacity_kwh: float
    power_kw: float
    charge_efficiency: float
    discharge_efficiency: float
    start_kwh: float
    """Stored at hour 0, and owed again at the end of the day."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Generator:
    """Dispatchable, off before the day begins; runs at any power between 0 and its limit."""

    power_kw: float
    ramp_kw_per_hour: float
    cost_usd_per_mwh: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Connection:
    """The line to the big grid: bought at the price and a fee, sold at the price."""

    import_kw: float
    export_kw: float
    fee_usd_per_mwh: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Site:
    """Everything that is the same every day."""

    battery: Battery
    generator: Generator
    connection: Connection


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    """What is asked of each device; battery: above 0 charges, below 0 discharges."""

    battery_kw: tuple[float, ...]
    generator_kw: tuple[float, ...]

    @classmethod
    def of(cls, battery_kw: Sequence[float], generator_kw: Sequence[float]) -> "Schedule":
        """Check and build. Raises ScheduleError that names the device and what is wrong."""
        return cls(
            battery_kw=_series("battery_kw", battery_kw),
            generator_kw=_series("generator_kw", generator_kw),
        )


NOTHING = Schedule(battery_kw=(0.0,) * HOURS, generator_kw=(0.0,) * HOURS)


@dataclass(frozen=True, slots=True, kw_only=True)
class Hour:
    """What happened in one hour. Energy in = energy out:

    import + wind + solar + generator = load + battery + export + curtailed.
    """

    battery_kw: float
    generator_kw: float
    import_kw: float
    export_kw: float
    curtailed_kw: float
    stored_kwh: float
    cost_usd: float
    as_asked: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """A whole day as it went; `cost_usd` includes `owed_usd`."""

    hours: tuple[Hour, ...]
    owed_kwh: float
    owed_usd: float
    cost_usd: float

    @property
    def as_asked_share(self) -> float:
        return sum(hour.as_asked for hour in self.hours) / HOURS


def simulate(day: Day, schedule: Schedule, site: Site) -> Outcome:
    """Carry out a schedule, hour by hour. What a device can't do is clipped, in this order:

    1. the generator to its power and to its ramp from what it really did an hour ago;
    2. the battery to its power, then to what it can still store or still holds;
    3. charging to what the line can import once the load is served.

    Surplus beyond the export limit is curtailed, unpaid. Energy missing from the battery at the
    end is bought back at the day's highest price; energy left over is worth nothing. No schedule
    can leave the load unserved: a load above the import limit raises ValueError.
    """
    if max(day.load_kw) > site.connection.import_kw:
        raise ValueError(f"load {max(day.load_kw)} kW is above the import limit")
    stored, running = site.battery.start_kwh, 0.0
    hours: list[Hour] = []
    for index in range(HOURS):
        done = _hour(day, schedule, site, index, stored, running)
        stored, running = done.stored_kwh, done.generator_kw
        hours.append(done)
    owed_kwh = max(0.0, site.battery.start_kwh - stored)
    owed_usd = owed_kwh * owed_usd_per_kwh(day, site)
    return Outcome(
        hours=tuple(hours),
        owed_kwh=owed_kwh,
        owed_usd=owed_usd,
        cost_usd=owed_usd + sum(hour.cost_usd for hour in hours),
    )


def owed_usd_per_kwh(day: Day, site: Site) -> float:
    """Price of a kWh missing from the battery at midnight: dear enough never to be worth it."""
    price = max(day.price_usd_per_mwh) + site.connection.fee_usd_per_mwh
    return price / 1000 / site.battery.charge_efficiency


def value(cost_usd: float, *, nothing_usd: float, optimum_usd: float) -> float:
    """Where a cost lies between doing nothing (0) and the optimum (1), in [0, 1], 6 decimals.

    Raises ValueError when the optimum isn't cheaper than doing nothing.
    """
    if optimum_usd >= nothing_usd:
        raise ValueError(f"optimum {optimum_usd} isn't below doing nothing {nothing_usd}")
    share = (nothing_usd - cost_usd) / (nothing_usd - optimum_usd)
    return round(_clip(share, 0.0, 1.0), 6)


def _hour(
    day: Day, schedule: Schedule, site: Site, index: int, stored: float, running: float
) -> Hour:
    generator = _generator_kw(site.generator, schedule.generator_kw[index], running)
    residual = day.load_kw[index] - day.wind_kw[index] - day.solar_kw[index] - generator
    room = max(0.0, site.connection.import_kw - residual)
    battery = _battery_kw(site.battery, schedule.battery_kw[index], stored, room)
    balance = residual + battery
    bought, surplus = max(0.0, balance), max(0.0, -balance)
    sold = min(surplus, site.connection.export_kw)
    price = day.price_usd_per_mwh[index]
    spent = bought * (price + site.connection.fee_usd_per_mwh) - sold * price
    asked = (schedule.battery_kw[index], schedule.generator_kw[index])
    return Hour(
        battery_kw=battery,
        generator_kw=generator,
        import_kw=bought,
        export_kw=sold,
        curtailed_kw=surplus - sold,
        stored_kwh=_stored_kwh(site.battery, stored, battery),
        cost_usd=(spent + generator * site.generator.cost_usd_per_mwh) / 1000,
        as_asked=max(abs(asked[0] - battery), abs(asked[1] - generator)) <= ASKED_TOLERANCE_KW,
    )


def _generator_kw(generator: Generator, asked: float, running: float) -> float:
    reachable = _clip(
        asked, running - generator.ramp_kw_per_hour, running + generator.ramp_kw_per_hour
    )
    return _clip(reachable, 0.0, generator.power_kw)


def _battery_kw(battery: Battery, asked: float, stored: float, room: float) -> float:
    most = (battery.capacity_kwh - stored) / battery.charge_efficiency
    least = -stored * battery.discharge_efficiency
    limited = _clip(asked, -battery.power_kw, battery.power_kw)
    return min(_clip(limited, least, most), room)


def _stored_kwh(battery: Battery, stored: float, battery_kw: float) -> float:
    if battery_kw >= 0:
        return min(battery.capacity_kwh, stored + battery_kw * battery.charge_efficiency)
    return max(0.0, stored + battery_kw / battery.discharge_efficiency)


def _series(name: str, values: Sequence[float]) -> tuple[float, ...]:
    if len(values) != HOURS:
        raise ScheduleError(f"{name} has {len(values)} values, one an hour makes {HOURS}")
    series = tuple(float(value) for value in values)
    for index, number in enumerate(series):
        if not isfinite(number):
            raise ScheduleError(f"{name}[{index}] is {number}, not a number of kW")
    return series


def _clip(number: float, low: float, high: float) -> float:
    return max(low, min(high, number))
