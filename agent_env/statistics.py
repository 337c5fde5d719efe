"""How sure a mean is, and how often k tries succeed. Plain arithmetic on rewards.

None is an unscored attempt: it leaves before anything is computed, is counted, and never becomes
a 0. Attempts at one task resemble each other, so intervals are clustered by task: their standard
error is that of Miller, "Adding Error Bars to Evals" (arXiv 2411.00640, appendix A), with the
correction G/(G−1) for G clusters and Student's t with G−1 degrees of freedom. pass@k is the
unbiased estimator of Chen et al. (arXiv 2107.03374); pass^k is that of Yao et al. (2406.12045).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

K = TypeVar("K", bound=Hashable)

LEVEL = 0.95

SLACK = 1e-9
"""A reward this much below a threshold reaches it: sums of floats end at 0.9999999999999999."""


@dataclass(frozen=True, kw_only=True)
class Estimate:
    """A mean over the scored values, and where it lies with 95 % confidence."""

    mean: float | None
    """None when nothing was scored; then so are the rest."""
    stderr: float | None
    low: float | None
    high: float | None
    scored: int
    unscored: int
    clusters: int
    """Those with a scored value. Fewer than two say nothing of the spread: low = mean = high."""


@dataclass(frozen=True, kw_only=True)
class Rate:
    """How often k attempts at a task succeed, over the tasks that have k scored attempts."""

    k: int
    value: float | None
    tasks: int
    left_out: int
    """Tasks with fewer than k scored attempts."""


@dataclass(frozen=True, kw_only=True)
class Difference:
    """What changed from one set of rewards to another, pair by pair."""

    estimate: Estimate
    """Of second − first; `unscored` counts the pairs in which one side has no score."""
    wins: int
    """Pairs in which the second is above the first."""
    losses: int
    ties: int
    unpaired: int
    """Keys that only one side has."""


def mean(values: Sequence[float]) -> float:
    """The arithmetic mean. Raises ValueError when there is no value."""
    if not values:
        raise ValueError("nothing has no mean")
    return math.fsum(values) / len(values)


def stderr(values: Sequence[float]) -> float:
    """Standard error of the mean of independent values; 0 for fewer than two."""
    if len(values) < 2:
        return 0.0
    middle = mean(values)
    squares = math.fsum((value - middle) ** 2 for value in values)
    return math.sqrt(squares / (len(values) - 1) / len(values))


def clustered_stderr(values: Sequence[float], clusters: Sequence[Hashable]) -> float:
    """Standard error of the mean when values of one cluster go together; 0 for one cluster.

    Raises ValueError when a value has no cluster.
    """
    groups = _grouped(values, clusters)
    if len(groups) < 2:
        return 0.0
    middle = mean(values)
    squares = math.fsum(
        math.fsum(value - middle for value in group) ** 2 for group in groups.values()
    )
    return math.sqrt(squares * len(groups) / (len(groups) - 1)) / len(values)


def estimate(values: Sequence[float | None], clusters: Sequence[Hashable]) -> Estimate:
    """Mean and 95 % confidence interval of the scored values, clustered.

    Raises ValueError for a value that is no number, or belongs to no cluster.
    """
    pairs = list(zip(values, clusters, strict=True))
    kept = [(value, cluster) for value, cluster in pairs if value is not None]
    if any(not math.isfinite(value) for value, _ in kept):
        raise ValueError("a value is NaN or infinite; an unscored one is None")
    scored, groups = [value for value, _ in kept], [cluster for _, cluster in kept]
    count = len(_grouped(scored, groups))
    spread = clustered_stderr(scored, groups)
    reach = spread * t_quantile((1 + LEVEL) / 2, max(count - 1, 1))
    middle = mean(scored) if scored else None
    return Estimate(
        mean=middle,
        stderr=None if middle is None else spread,
        low=None if middle is None else middle - reach,
        high=None if middle is None else middle + reach,
        scored=len(scored),
        unscored=len(pairs) - len(kept),
        clusters=count,
    )


def pass_at(attempts: int, passed: int, k: int) -> float | None:
    """pass@k: the chance that one of k attempts passes, from `passed` of `attempts`.

    None when there are fewer than k attempts. Raises ValueError for counts that can't be.
    """
    _check_counts(attempts, passed, k)
    if attempts < k:
        return None
    failed = attempts - passed
    return (
        1 - math.prod(1 - k / i for i in range(failed + 1, attempts + 1)) if failed >= k else 1.0
    )


def pass_all(attempts: int, passed: int, k: int) -> float | None:
    """pass^k: the chance that all of k attempts pass; None when there are fewer than k."""
    _check_counts(attempts, passed, k)
    return None if attempts < k else math.comb(passed, k) / math.comb(attempts, k)


def rate(
    of: Callable[[int, int, int], float | None],
    tasks: Mapping[K, Sequence[float | None]],
    k: int,
    *,
    threshold: float,
) -> Rate:
    """The mean over tasks of `pass_at` or `pass_all`; an attempt passes as `reaches` says."""
    rates = []
    for attempts in tasks.values():
        scored = [value for value in attempts if value is not None]
        rates.append(of(len(scored), sum(reaches(each, threshold) for each in scored), k))
    known = [each for each in rates if each is not None]
    value = mean(known) if known else None
    return Rate(k=k, value=value, tasks=len(known), left_out=len(rates) - len(known))


def reaches(value: float, threshold: float) -> bool:
    """Whether it is at the threshold or above, give or take `SLACK`."""
    return value >= threshold - SLACK


def paired(
    first: Mapping[K, float | None],
    second: Mapping[K, float | None],
    cluster: Callable[[K], Hashable],
) -> Difference:
    """The difference second − first over the keys of both, clustered by `cluster(key)`."""
    keys = [key for key in first if key in second]
    differences = [_minus(second[key], first[key]) for key in keys]
    known = [each for each in differences if each is not None]
    return Difference(
        estimate=estimate(differences, [cluster(key) for key in keys]),
        wins=sum(each > 0 for each in known),
        losses=sum(each < 0 for each in known),
        ties=sum(each == 0 for each in known),
        unpaired=len(first) + len(second) - 2 * len(keys),
    )


def t_quantile(p: float, df: float) -> float:
    """Student's t below which the share `p` lies, for `df` degrees of freedom.

    Bisection on the distribution, which is a regularised incomplete beta function (Abramowitz and
    Stegun 26.7.1). Raises ValueError for p outside (0, 1) or df below 1.
    """
    if not 0 < p < 1 or not df >= 1:
        raise ValueError(f"no t quantile for p={p}, df={df}")
    if p < 0.5:
        return -t_quantile(1 - p, df)
    low, high = 0.0, 1.0
    while _t_upper_tail(high, df) > 1 - p:
        low, high = high, 2 * high
    while (middle := (low + high) / 2) not in (low, high):
        low, high = (middle, high) if _t_upper_tail(middle, df) > 1 - p else (low, middle)
    return low


def _t_upper_tail(t: float, df: float) -> float:
    return 0.5 * _incomplete_beta(df / (df + t * t), t * t / (df + t * t), df / 2, 0.5)


def _incomplete_beta(x: float, y: float, a: float, b: float) -> float:
    """I_x(a, b); `y` is 1 − x, given apart because it may be too small to be a difference."""
    if x <= 0 or y <= 0:
        return float(y <= 0)
    if x > (a + 1) / (a + b + 2):
        return 1 - _incomplete_beta(y, x, b, a)
    log_beta = math.lgamma(a) + math.lgamma(b) - math.lgamma(a + b)
    return math.exp(a * math.log(x) + b * math.log(y) - log_beta) / a * _fraction(x, a, b)


def _fraction(x: float, a: float, b: float) -> float:
    """The continued fraction of the incomplete beta function (DLMF 8.17.22), by Lentz's method."""
    c, d = 1.0, 1 / (1 - (a + b) * x / (a + 1))
    value = d
    for m in range(1, 10_000):
        even = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m))
        odd = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1))
        for term in (even, odd):
            d, c = 1 / (1 + term * d), 1 + term / c
            value *= c * d
        if abs(c * d - 1) < 1e-16:
            break
    return value


def _grouped(values: Sequence[float], clusters: Sequence[Hashable]) -> dict[Hashable, list[float]]:
    groups: dict[Hashable, list[float]] = {}
    for value, cluster in zip(values, clusters, strict=True):
        if cluster is None or cluster != cluster:  # NaN is no cluster either
            raise ValueError("a value belongs to no cluster")
        groups.setdefault(cluster, []).append(value)
    return groups


def _minus(one: float | None, other: float | None) -> float | None:
    return None if one is None or other is None else one - other


def _check_counts(attempts: int, passed: int, k: int) -> None:
    if not (0 <= passed <= attempts and k >= 1):
        raise ValueError(f"{passed} of {attempts} attempts passed, k={k}: that can't be")
