"""What a training comes to in the end, out of its own metrics lines: the `final` line's numbers.

Means are over rollouts, so that a step with lost ones weighs less. A number that nothing measured
is None, never 0.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from statistics import median

from agent_env.training.metrics import Line

Numbers = dict[str, float | None]


def training_numbers(lines: Iterable[Line]) -> Numbers:
    """Of the `train` lines: rewards, tool calls and tokens a rollout, seconds a step."""
    trained = [line for line in lines if line["kind"] == "train"]
    first, last = trained[:1], trained[-1:]
    return {
        "train_reward": _mean(trained, "reward", "scored"),
        "train_reward_first": _mean(first, "reward", "scored"),
        "train_reward_last": _mean(last, "reward", "scored"),
        "tool_calls": _mean(trained, "env/tool_calls"),
        "tool_calls_first": _mean(first, "env/tool_calls"),
        "tool_calls_last": _mean(last, "env/tool_calls"),
        "tokens": _mean(trained, "tokens"),
        "step_seconds": _median(trained, "seconds"),
    }


def eval_numbers(lines: Iterable[Line], steps: int) -> Numbers:
    """Of the `eval` lines: tool calls a rollout, seconds an eval, the reward half way."""
    evals = [line for line in lines if line["kind"] == "eval"]
    middle = [line for line in evals if line["step"] == steps // 2 and steps > 1]
    return {
        "eval_reward_middle": _mean(middle, "reward", "scored"),
        "eval_tool_calls": _mean(evals, "env/tool_calls"),
        "eval_seconds": _median(evals, "seconds"),
    }


def _mean(lines: Sequence[Line], name: str, weight: str = "rollouts") -> float | None:
    told = [
        (value, count)
        for line in lines
        if (value := _number(line, name)) is not None and (count := _number(line, weight))
    ]
    total = sum(count for _, count in told)
    return sum(value * count for value, count in told) / total if total else None


def _median(lines: Sequence[Line], name: str) -> float | None:
    values = [value for line in lines if (value := _number(line, name)) is not None]
    return median(values) if values else None


def _number(line: Line, name: str) -> float | None:
    value = line.get(name)
    return None if isinstance(value, str) or value is None else float(value)
