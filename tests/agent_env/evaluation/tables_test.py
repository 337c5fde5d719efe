"""What is printed of results: means, differences, transcripts, data to fine-tune on."""

from __future__ import annotations

import json
from typing import Any

import pytest

from agent_env.errors import ResultsError, TaskNotFound
from agent_env.evaluation.comparison import compare, difference
from agent_env.evaluation.results import Row
from agent_env.evaluation.sft import as_lines, examples
from agent_env.evaluation.summary import powers, table
from agent_env.evaluation.transcript import overview, transcripts
from agent_env.statistics import estimate

from .made import header, row

ROWS = [
    row(index=0, attempt=0, reward=1.0),
    row(index=0, attempt=1, reward=0.0),
    row(index=1, attempt=0, reward=0.5, tries=2),
    row(index=1, attempt=1, reward=None, code="ServerDown", error="it is\ngone"),
]


def test_a_table_has_means_rates_and_every_attempt() -> None:
    assert table(header(), ROWS, threshold=0.5).splitlines() == [
        "counter 00000000 · eval · 2 tasks × 2 · random:0 · seed 0",
        "                         mean   95 % interval",
        "reward                 0.5000   0.5000 to 0.5000",
        "score near             0.5000   0.5000 to 0.5000",
        "pass@1                 0.7500   reward ≥ 0.5",
        "pass@2                 1.0000   reward ≥ 0.5; left out 1 with fewer scored",
        "pass^2                 0.0000   reward ≥ 0.5; left out 1 with fewer scored",
        "scored 3 of 4 attempts",
        "unscored 1: ServerDown, such as eval-1 attempt 1: it is",
        "played again after being unscored: 1",
    ]


def test_an_interval_is_of_tasks_and_not_of_attempts() -> None:
    rows = [row(index=n, attempt=k, reward=float(n % 2)) for n in range(6) for k in range(50)]
    found = estimate([each.reward for each in rows], [each.task for each in rows])
    shown = table(header(tasks=6, attempts=50), rows, threshold=1.0)
    assert f"reward                 0.5000   {found.low:.4f} to {found.high:.4f}\n" in shown
    assert found.low is not None
    assert found.low < 0


@pytest.mark.parametrize(
    "rows, expected",
    [
        ([], "reward                      –   nothing scored"),
        (ROWS[:2], "reward                 0.5000   one task: no interval"),
    ],
)
def test_what_has_no_interval_has_none(rows: list[Row], expected: str) -> None:
    assert expected in table(header(), rows, threshold=1.0).splitlines()


def test_attempts_that_are_missing_or_were_stopped_are_counted() -> None:
    shown = table(header(), [row(cut=True)], threshold=1.0).splitlines()
    assert shown[-3:] == [
        "scored 1 of 4 attempts",
        "missing 3: not played yet",
        "stopped at 64 tool calls: 1",
    ]


@pytest.mark.parametrize(
    "attempts, ks", [(1, [1]), (2, [1, 2]), (6, [1, 2, 4, 6]), (8, [1, 2, 4, 8])]
)
def test_rates_are_of_powers_of_two_and_all_attempts(attempts: int, ks: list[int]) -> None:
    assert powers(attempts) == ks


BETTER = [
    row(index=0, attempt=0, reward=1.0),
    row(index=0, attempt=1, reward=0.75),
    row(index=1, attempt=0, reward=0.25),
    row(index=1, attempt=1, reward=1.0),
]


def test_two_results_are_compared_pair_by_pair() -> None:
    found = difference(ROWS, BETTER)
    assert (found.wins, found.losses, found.ties) == (1, 1, 1)
    by_hand = estimate([0.0, 0.75, -0.25], ["eval-0", "eval-0", "eval-1"])
    assert found.estimate.low == by_hand.low
    shown = compare((header(), ROWS), (header(policy="expert"), BETTER[:-1])).splitlines()
    assert shown == [
        "A  counter 00000000 · eval · 2 tasks × 2 · random:0 · seed 0",
        "B  counter 00000000 · eval · 2 tasks × 2 · expert · seed 0",
        "                         mean   95 % interval",
        "A reward               0.5000   0.5000 to 0.5000",
        shown[4],
        f"B − A, paired          0.1667   {by_hand.low:.4f} to {by_hand.high:.4f}",
        "B is better 1, worse 1, equal 1",
        "left out, in one file only: 1",
    ]


def test_pairs_without_a_score_and_other_seeds_are_told() -> None:
    shown = compare((header(), ROWS), (header(seed=1), BETTER)).splitlines()
    assert "left out, unscored on a side: 1" in shown
    assert shown[-1].startswith("the seeds differ")


@pytest.mark.parametrize(
    "other", [{"bundle_hash": "f" * 64}, {"split": "train"}, {"env": "x"}, {"reward": "near"}]
)
def test_results_of_different_things_are_not_compared(other: dict[str, Any]) -> None:
    (name,) = other
    with pytest.raises(ResultsError, match=f"can't be compared: {name} is"):
        compare((header(), ROWS), (header(**other), BETTER))


TALK: list[dict[str, Any]] = [
    {"role": "user", "content": "Count.\n"},
    {
        "role": "assistant",
        "content": "",
        "tool_calls": [{"type": "function", "function": {"name": "add", "arguments": {"n": 4}}}],
    },
    {"role": "tool", "name": "add", "content": "4"},
    {"role": "assistant", "content": "four"},
]


def test_a_transcript_can_be_read() -> None:
    rows = [row(messages=TALK, tool_calls=1, cut=True), ROWS[3]]
    assert transcripts(rows, "0").splitlines() == [
        "eval-0 · attempt 0 · 1.0000 · 1 calls · 0.5 s",
        "-- user",
        "Count.",
        "-- assistant",
        "-> add(n=4)",
        "-- tool add",
        "4",
        "-- assistant",
        "four",
        "== score near: 1.0000",
        "== the policy was stopped at the limit of its tool calls",
    ]
    assert transcripts(rows, "eval-1").splitlines()[-2:] == [
        "== unscored, ServerDown: it is",
        "gone",
    ]
    assert overview(rows).splitlines()[1] == "eval-1\tattempt 1\tunscored\t0 calls\t0.5 s"
    with pytest.raises(TaskNotFound, match="no attempt at the task 'eval-9'"):
        transcripts(rows, "eval-9")


def test_only_good_attempts_are_exported() -> None:
    tools = [{"type": "function", "function": {"name": "add"}}]
    found = examples(header(tools=tools), [row(messages=TALK), *ROWS[1:]], 0.5)
    assert len(found) == 2
    assert json.loads(as_lines(found).splitlines()[0]) == {"messages": TALK, "tools": tools}
    assert len(examples(header(), ROWS, 0.0)) == 3
