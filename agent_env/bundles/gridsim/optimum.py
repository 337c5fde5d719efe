"""The cheapest schedule of a day, as a linear program. Needs scipy; only `generate` uses it.

Variables for each hour: charge, discharge, generator, import, export, curtailed, stored; and one
for the energy owed at midnight. The constraints are those that `simulation.simulate` enforces by
clipping, so no schedule whatever can cost less than the optimum.
"""

from typing import Any

import numpy as np
from scipy.optimize import linprog

from agent_env.bundles.gridsim.simulation import (
    HOURS,
    Day,
    Schedule,
    Site,
    owed_usd_per_kwh,
)

_KINDS = ("charge", "discharge", "generator", "import", "export", "curtailed", "stored")
_OWED = len(_KINDS) * HOURS
_COUNT = _OWED + 1


def optimum(day: Day, site: Site) -> tuple[Schedule, float]:
    """The optimal schedule and its cost in USD. Raises RuntimeError if HiGHS finds none."""
    equal, equal_to = _equalities(day, site)
    below, below_to = _ramps(site)
    found = linprog(
        _costs(day, site),
        A_eq=equal,
        b_eq=equal_to,
        A_ub=below,
        b_ub=below_to,
        bounds=_bounds(site),
        method="highs",
    )
    if not found.success:
        raise RuntimeError(f"no optimum: {found.message}")
    return _schedule(found.x, site), float(found.fun)


def _at(kind: str, hour: int) -> int:
    return _KINDS.index(kind) * HOURS + hour


def _costs(day: Day, site: Site) -> Any:
    costs = np.zeros(_COUNT)
    for hour, price in enumerate(day.price_usd_per_mwh):
        costs[_at("import", hour)] = (price + site.connection.fee_usd_per_mwh) / 1000
        costs[_at("export", hour)] = -price / 1000
        costs[_at("generator", hour)] = site.generator.cost_usd_per_mwh / 1000
    costs[_OWED] = owed_usd_per_kwh(day, site)
    return costs


def _bounds(site: Site) -> list[tuple[float, float | None]]:
    limits: dict[str, float | None] = {
        "charge": site.battery.power_kw,
        "discharge": site.battery.power_kw,
        "generator": site.generator.power_kw,
        "import": site.connection.import_kw,
        "export": site.connection.export_kw,
        "curtailed": None,
        "stored": site.battery.capacity_kwh,
    }
    bounds = [(0.0, limits[kind]) for kind in _KINDS for _ in range(HOURS)]
    return [*bounds, (0.0, site.battery.start_kwh)]


def _equalities(day: Day, site: Site) -> tuple[Any, Any]:
    """Energy in = energy out in each hour; what is stored follows from the hour before."""
    rows, right = np.zeros((2 * HOURS, _COUNT)), np.zeros(2 * HOURS)
    for hour in range(HOURS):
        balance = rows[hour]
        for kind in ("import", "generator", "discharge"):
            balance[_at(kind, hour)] = 1
        for kind in ("charge", "export", "curtailed"):
            balance[_at(kind, hour)] = -1
        right[hour] = day.load_kw[hour] - day.wind_kw[hour] - day.solar_kw[hour]
        storage = rows[HOURS + hour]
        storage[_at("stored", hour)] = 1
        storage[_at("charge", hour)] = -site.battery.charge_efficiency
        storage[_at("discharge", hour)] = 1 / site.battery.discharge_efficiency
        if hour:
            storage[_at("stored", hour - 1)] = -1
    right[HOURS] = site.battery.start_kwh
    return rows, right


def _ramps(site: Site) -> tuple[Any, Any]:
    """The generator's ramp both ways (off before hour 0), and the energy owed at midnight."""
    rows, right = np.zeros((2 * HOURS + 1, _COUNT)), np.zeros(2 * HOURS + 1)
    for hour in range(HOURS):
        for row, sign in ((2 * hour, 1), (2 * hour + 1, -1)):
            rows[row, _at("generator", hour)] = sign
            if hour:
                rows[row, _at("generator", hour - 1)] = -sign
            right[row] = site.generator.ramp_kw_per_hour
    rows[-1, _at("stored", HOURS - 1)] = rows[-1, _OWED] = -1
    right[-1] = -site.battery.start_kwh
    return rows, right


def _schedule(x: Any, site: Site) -> Schedule:
    """Charge and discharge of one hour, which may both be above 0 at no cost, become one flow."""
    battery_kw = []
    for hour in range(HOURS):
        gained = x[_at("charge", hour)] * site.battery.charge_efficiency
        gained -= x[_at("discharge", hour)] / site.battery.discharge_efficiency
        charging = gained > 0
        battery_kw.append(
            gained / site.battery.charge_efficiency
            if charging
            else gained * site.battery.discharge_efficiency
        )
    generator = slice(_at("generator", 0), _at("generator", HOURS - 1) + 1)
    return Schedule.of(battery_kw, [float(kw) for kw in x[generator]])
