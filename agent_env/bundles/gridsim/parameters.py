"""The numbers behind gridsim: read from `parameters.json`, where each carries its source."""

import json
from functools import cache
from pathlib import Path
from typing import Any

from agent_env.bundles.gridsim.simulation import Battery, Connection, Generator, Site

PATH = Path(__file__).with_name("parameters.json")


@cache
def parameters() -> dict[str, Any]:
    """Values by name; units and sources are in the file."""
    table = json.loads(PATH.read_text(encoding="utf-8"))
    return {name: entry["value"] for name, entry in table.items()}


@cache
def site() -> Site:
    """The devices and the line, the same on every day of every split."""
    p = parameters()
    return Site(
        battery=Battery(
            capacity_kwh=p["battery_capacity_kwh"],
            power_kw=p["battery_power_kw"],
            charge_efficiency=p["battery_charge_efficiency"],
            discharge_efficiency=p["battery_discharge_efficiency"],
            start_kwh=p["battery_start_kwh"],
        ),
        generator=Generator(
            power_kw=p["generator_power_kw"],
            ramp_kw_per_hour=p["generator_ramp_kw_per_hour"],
            cost_usd_per_mwh=p["generator_cost_usd_per_mwh"],
        ),
        connection=Connection(
            import_kw=p["import_kw"],
            export_kw=p["export_kw"],
            fee_usd_per_mwh=p["fee_usd_per_mwh"],
        ),
    )
