"""Draws a day: load, wind, sun and price. Every number's meaning and source: parameters.json.

Random numbers come from a generator that the caller seeds with text, so that a day depends on
nothing but its split and index. Series are rounded to whole kW and USD/MWh.
"""

import math
import random
from collections.abc import Mapping
from statistics import NormalDist
from typing import Any

from agent_env.bundles.gridsim.coarse import BLOCKS, Plan
from agent_env.bundles.gridsim.parameters import parameters
from agent_env.bundles.gridsim.simulation import HOURS, Day


def draw_day(rng: random.Random) -> Day:
    """A day with duck-shaped prices, as the fine splits have it."""
    return _day(rng, _prices(rng, parameters()))


def draw_coarse_day(rng: random.Random, levels: Mapping[Plan, str]) -> Day:
    """A day whose blocks have prices of the levels asked for ("low", "mid", "high")."""
    return _day(rng, _block_prices(rng, levels, parameters()))


def _day(rng: random.Random, prices: list[float]) -> Day:
    p = parameters()
    return Day(
        load_kw=_rounded(_load(rng, p), 0, p["import_kw"]),
        wind_kw=_rounded(_wind(rng, p), 0, p["wind_rated_kw"]),
        solar_kw=_rounded(_solar(rng, p), 0, p["solar_peak_kw"]),
        price_usd_per_mwh=_rounded(prices, p["price_floor_usd_per_mwh"], math.inf),
    )


def _load(rng: random.Random, p: dict[str, Any]) -> list[float]:
    level = p["load_mean_kw"] * (1 + rng.gauss(0, p["load_day_sd"]))
    return [level * share * (1 + rng.gauss(0, p["load_hour_sd"])) for share in p["load_shape"]]


def _wind(rng: random.Random, p: dict[str, Any]) -> list[float]:
    """Weibull speeds through an autoregressive normal (a Gaussian copula), then a power curve."""
    keep = p["wind_hour_correlation"]
    scale = p["wind_mean_m_per_s"] / math.gamma(1 + 1 / p["wind_weibull_shape"])
    normal, powers = rng.gauss(0, 1), []
    for _ in range(HOURS):
        calm = 1 - NormalDist().cdf(normal)
        speed = scale * (-math.log(max(calm, 1e-12))) ** (1 / p["wind_weibull_shape"])
        powers.append(_turbine_kw(speed, p))
        normal = keep * normal + math.sqrt(1 - keep**2) * rng.gauss(0, 1)
    return powers


def _turbine_kw(speed: float, p: dict[str, Any]) -> float:
    start, rated = p["wind_cut_in_m_per_s"], p["wind_rated_m_per_s"]
    if not start <= speed < p["wind_cut_out_m_per_s"]:
        return 0.0
    share: float = (speed**3 - start**3) / (rated**3 - start**3)
    return min(1.0, share) * float(p["wind_rated_kw"])


def _solar(rng: random.Random, p: dict[str, Any]) -> list[float]:
    sunrise, sunset = rng.uniform(*p["solar_sunrise_hour"]), rng.uniform(*p["solar_sunset_hour"])
    clearness = rng.uniform(*p["solar_clearness"])
    powers = []
    for hour in range(HOURS):
        height = math.sin(math.pi * (hour + 0.5 - sunrise) / (sunset - sunrise))
        daylight = sunrise < hour + 0.5 < sunset
        cloud = 1 + rng.gauss(0, p["solar_hour_sd"]) * (1.25 - clearness)
        powers.append(p["solar_peak_kw"] * clearness * height * cloud if daylight else 0.0)
    return powers


def _prices(rng: random.Random, p: dict[str, Any]) -> list[float]:
    level = p["price_mean_usd_per_mwh"] * (1 + rng.gauss(0, p["price_day_sd"]))
    swing, shift = rng.uniform(*p["price_swing"]), rng.randint(*p["price_shift_hours"])
    prices = [
        level * (1 + swing * p["price_shape"][(hour - shift) % HOURS])
        + level * rng.gauss(0, p["price_hour_sd"])
        for hour in range(HOURS)
    ]
    if rng.random() < p["price_spike_chance"]:
        first, factor = rng.randrange(HOURS - 1), rng.uniform(*p["price_spike_factor"])
        prices[first : first + 2] = [price * factor for price in prices[first : first + 2]]
    return prices


def _block_prices(
    rng: random.Random, levels: Mapping[Plan, str], p: dict[str, Any]
) -> list[float]:
    ranges, spread = p["coarse_block_price"], p["coarse_price_hour_sd"]
    prices = [rng.uniform(*ranges["night"])] * HOURS
    for plan, hours in BLOCKS.items():
        level = rng.uniform(*ranges[levels[plan]])
        prices[hours.start : hours.stop] = [level] * len(hours)
    return [price * (1 + rng.gauss(0, spread)) for price in prices]


def _rounded(series: list[float], low: float, high: float) -> tuple[float, ...]:
    return tuple(float(round(min(max(number, low), high))) for number in series)
