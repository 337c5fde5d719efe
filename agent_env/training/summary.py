"""What a training comes to in the end, out of its own metrics lines: the `final` line's numbers.

Means are over rollouts, so that a step with lost ones weighs less. A number that nothing measured
is None, never 0.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from statistics import median

from agent_env.training.metrics import Line

Numbers = dict[str, float | None]


def training_numbers(lines: Iterable[Line]) -> Numbers:
    """Of the `train` lines: rewards, tool calls and tokens a rollout, seconds a step; and the
    share of flat groups, and the GPU's memory also of evals, where the lines tell them.
    """
    lines = list(lines)
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
        "step_seconds": median_of(trained, "seconds"),
        **_flat(trained),
        **memory_numbers(lines),
    }


def eval_numbers(lines: Iterable[Line], steps: int) -> Numbers:
    """Of the `eval` lines: tool calls a rollout, seconds an eval, the reward half way."""
    evals = [line for line in lines if line["kind"] == "eval"]
    middle = [line for line in evals if line["step"] == steps // 2 and steps > 1]
    return {
        "eval_reward_middle": _mean(middle, "reward", "scored"),
        "eval_tool_calls": _mean(evals, "env/tool_calls"),
        "eval_seconds": median_of(evals, "seconds"),
    }


def memory_numbers(lines: Iterable[Line]) -> dict[str, float]:
    """`gpu_gb`, the most of the GPU's memory that any line tells; empty on a CPU."""
    told = [value for line in lines if (value := _number(line, "gpu_gb")) is not None]
    return {"gpu_gb": max(told)} if told else {}


def flat_warning(numbers: Mapping[str, float | None]) -> str | None:
    """What to say of a training in which no group of any step had two different rewards."""
    reward = numbers.get("train_reward")
    if numbers.get("flat_groups") != 1 or reward is None:
        return None
    return (
        f"warning: no group of any step had two different rewards (their mean is {reward:.3f}), "
        "so the model learned nothing from them: take easier tasks if that is low, harder ones if "
        "it is high, or raise temperature or rollouts_per_task"
    )


def median_of(lines: Sequence[Line], name: str) -> float | None:
    """Of the lines that have that number."""
    values = [value for line in lines if (value := _number(line, name)) is not None]
    return median(values) if values else None


def _flat(trained: Sequence[Line]) -> Numbers:
    """Nothing of a trainer that doesn't tell it."""
    if not any("flat_groups" in line for line in trained):
        return {}
    return {"flat_groups": _mean(trained, "flat_groups", "scored")}


def _mean(lines: Sequence[Line], name: str, weight: str = "rollouts") -> float | None:
    told = [
        (value, count)
        for line in lines
        if (value := _number(line, name)) is not None and (count := _number(line, weight))
    ]
    total = sum(count for _, count in told)
    return sum(value * count for value, count in told) / total if total else None


def _number(line: Line, name: str) -> float | None:
    value = line.get(name)
    return None if isinstance(value, str) or value is None else float(value)
