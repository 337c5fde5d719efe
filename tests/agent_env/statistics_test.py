"""The estimators equal their definitions, other people's code and, where there is one, scipy."""

from __future__ import annotations

import math
from itertools import combinations

import pytest
import scipy.stats
from hypothesis import given
from hypothesis import strategies as st

from agent_env.statistics import (
    clustered_stderr,
    estimate,
    mean,
    paired,
    pass_all,
    pass_at,
    rate,
    stderr,
    t_quantile,
)

Rewards = dict[tuple[str, int], float | None]

NUMBERS = st.floats(-1e3, 1e3, allow_nan=False)
TABLES = st.lists(st.tuples(NUMBERS, st.integers(0, 5)), min_size=1, max_size=40)

# From inspect_ai 0.3.285: mean(), stderr(cluster=…), ci(cluster=…, method="t").
CLUSTERED = [
    (
        [0.64, 0.03, 0.28, 0.22, 0.74, 0.68, 0.89, 0.09],
        [0, 0, 0, 0, 1, 1, 1, 1],
        (0.44625, 0.15375, -1.5073289781868537, 2.3998289781868536),
    ),
    (
        [0.42, 0.03, 0.22, 0.51, 0.03, 0.2, 0.65, 0.54, 0.22, 0.59, 0.81, 0.01],
        [0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2],
        (0.3525, 0.03250000000000001, 0.21266378628314264, 0.4923362137168573),
    ),
    (
        [0.81, 0.7, 0.34, 0.16, 0.96, 0.34, 0.09, 0.1, 0.85],
        [0, 1, 2, 3, 4, 5, 6, 7, 8],
        (0.4833333333333333, 0.11562631380634965, 0.21669857555747657, 0.7499680911091899),
    ),
]
# From the same: pass_at(k) and pass_k(k) of n attempts of which c passed.
PASSES = [
    ((4, 1, 2), 0.5, 0.0),
    ((8, 3, 4), 0.9285714285714286, 0.0),
    ((10, 9, 5), 1.0, 0.5),
    ((5, 5, 5), 1.0, 1.0),
    ((6, 2, 1), 0.33333333333333326, 0.3333333333333333),
]


@pytest.mark.parametrize("values, clusters, expected", CLUSTERED)
def test_an_interval_is_the_one_that_others_publish(
    values: list[float], clusters: list[int], expected: tuple[float, ...]
) -> None:
    found = estimate(values, clusters)
    assert (found.mean, found.stderr, found.low, found.high) == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("counts, at, all_", PASSES)
def test_passes_are_those_that_others_publish(
    counts: tuple[int, int, int], at: float, all_: float
) -> None:
    assert (pass_at(*counts), pass_all(*counts)) == pytest.approx((at, all_), abs=1e-12)


@given(TABLES)
def test_a_clustered_interval_is_its_definition(table: list[tuple[float, int]]) -> None:
    values, clusters = [value for value, _ in table], [cluster for _, cluster in table]
    middle, names = sum(values) / len(values), sorted(set(clusters))
    sums = [sum(v - middle for v, c in table if c == name) for name in names]
    count = len(names)
    spread = 0.0
    if count > 1:
        spread = math.sqrt(sum(s * s for s in sums) * count / (count - 1)) / len(values)
    reach = float(scipy.stats.t.ppf(0.975, max(count - 1, 1))) * spread
    found = estimate(values, clusters)
    assert found.mean == pytest.approx(middle, abs=1e-9)
    assert found.stderr == pytest.approx(spread, abs=1e-9)
    assert (found.low, found.high) == pytest.approx((middle - reach, middle + reach), abs=1e-7)


@given(st.lists(NUMBERS, min_size=2, max_size=40))
def test_values_that_go_alone_have_the_plain_standard_error(values: list[float]) -> None:
    expected = float(scipy.stats.sem(values))
    assert stderr(values) == pytest.approx(expected, abs=1e-9)
    assert clustered_stderr(values, range(len(values))) == pytest.approx(expected, abs=1e-9)


@given(st.floats(1e-4, 1 - 1e-4), st.integers(1, 3000))
def test_t_quantiles_are_scipys(p: float, df: int) -> None:
    assert t_quantile(p, df) == pytest.approx(float(scipy.stats.t.ppf(p, df)), rel=1e-8, abs=1e-8)


@given(st.lists(st.booleans(), min_size=1, max_size=9), st.integers(1, 9))
def test_passes_are_counted_over_all_choices_of_k(attempts: list[bool], k: int) -> None:
    n, c = len(attempts), sum(attempts)
    chosen = list(combinations(attempts, k))
    if not chosen:
        assert pass_at(n, c, k) is None
        assert pass_all(n, c, k) is None
        return
    assert pass_at(n, c, k) == pytest.approx(sum(map(any, chosen)) / len(chosen))
    assert pass_all(n, c, k) == pytest.approx(sum(map(all, chosen)) / len(chosen))


@given(TABLES, st.lists(st.integers(0, 5), max_size=10))
def test_unscored_values_change_nothing_but_their_count(
    table: list[tuple[float, int]], lost: list[int]
) -> None:
    values, clusters = [value for value, _ in table], [cluster for _, cluster in table]
    before = estimate(values, clusters)
    after = estimate([*values, *[None] * len(lost)], [*clusters, *lost])
    assert vars(after) == vars(before) | {"unscored": len(lost)}


def test_nothing_scored_has_no_mean() -> None:
    found = estimate([None, None], ["a", "b"])
    assert (found.mean, found.low, found.high, found.unscored) == (None, None, None, 2)
    with pytest.raises(ValueError, match="no mean"):
        mean([])


def test_one_task_says_nothing_of_the_spread() -> None:
    found = estimate([0.0, 1.0], ["a", "a"])
    assert (found.mean, found.stderr, found.low, found.high) == (0.5, 0.0, 0.5, 0.5)
    assert found.clusters == 1


@pytest.mark.parametrize("cluster", [None, math.nan])
def test_a_value_without_a_cluster_is_refused(cluster: float | None) -> None:
    with pytest.raises(ValueError, match="no cluster"):
        estimate([0.5, 1.0], ["a", cluster])


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_a_value_that_is_no_number_is_refused(value: float) -> None:
    with pytest.raises(ValueError, match="an unscored one is None"):
        estimate([0.5, value], ["a", "b"])


@pytest.mark.parametrize("counts", [(2, 3, 1), (2, -1, 1), (2, 1, 0)])
def test_counts_that_can_not_be_are_refused(counts: tuple[int, int, int]) -> None:
    for estimator in (pass_at, pass_all):
        with pytest.raises(ValueError, match="that can't be"):
            estimator(*counts)


def test_a_rate_leaves_out_tasks_with_too_few_scored_attempts() -> None:
    tasks: dict[str, list[float | None]] = {"a": [1.0, 0.0], "b": [1.0, 1.0], "c": [1.0, None]}
    found = rate(pass_all, tasks, 2, threshold=1.0)
    assert (found.value, found.tasks, found.left_out) == (0.5, 2, 1)
    assert rate(pass_all, tasks, 1, threshold=1.0).value == pytest.approx(2.5 / 3)
    assert rate(pass_at, {"c": [None]}, 1, threshold=1.0).value is None


def test_a_sum_of_floats_that_is_a_1_passes_as_one() -> None:
    assert rate(pass_at, {"a": [0.1 * 3 + 0.7 - 2e-16, 0.999]}, 1, threshold=1.0).value == 0.5


def test_pairs_are_compared_with_each_other_and_the_rest_is_counted() -> None:
    first: Rewards = {("a", 0): 0.0, ("a", 1): 0.5, ("b", 0): 1.0, ("c", 0): None, ("d", 0): 1.0}
    second: Rewards = {("a", 0): 1.0, ("a", 1): 0.5, ("b", 0): 0.5, ("c", 0): 1.0}
    found = paired(first, second, lambda key: key[0])
    assert (found.wins, found.losses, found.ties, found.unpaired) == (1, 1, 1, 1)
    by_hand = estimate([1.0, 0.0, -0.5, None], ["a", "a", "b", "c"])
    assert found.estimate == by_hand
    assert by_hand.mean == pytest.approx(1 / 6)
    assert by_hand.unscored == 1
