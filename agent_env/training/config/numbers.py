"""The numbers that each program's `final` line of metrics tells, by program.

A runbook's `expect` and `reference` may name these and no others; one that ends in `/` stands for
all that begin so: one for each of several bundles, say. A program may leave one out, or tell null,
where there was nothing to measure.
"""

from __future__ import annotations

_EPISODES = ("env/", "score/")
_TRAINING = (
    *("train_reward", "train_reward_first", "train_reward_last"),
    *("tool_calls", "tool_calls_first", "tool_calls_last", "tokens", "step_seconds", "unscored"),
)
_TRL = ("flat_groups", "gpu_gb")
_EVALS = ("eval_reward_before", "eval_reward_after", "rise")
_OF_EVALS = ("eval_reward_middle", "eval_tool_calls", "eval_seconds")
_RAY = (*_TRAINING, *_EVALS, *_OF_EVALS)
_OUTAGE = tuple(
    f"{part}_{count}"
    for part in ("interrupted", "next", "after")
    for count in ("rollouts", "scored", "unscored", "seconds")
)

NUMBERS: dict[str, tuple[str, ...]] = {
    "sft": ("eval_reward", "unscored", "gpu_gb"),
    "grpo": (
        *(*_TRAINING, *_TRL, *_EVALS, *_OF_EVALS, *(f"{name}/" for name in _EVALS)),
        "env/",
    ),
    "async_grpo": (*_TRAINING, *_TRL, "env/"),
    "verl_grpo": _RAY,
    "skyrl_grpo": _RAY,
    "evaluate": (
        *("eval_reward", "reward", "eval_reward/", "reward/", "stderr"),
        *("rollouts", "scored", "unscored", "gpu_gb", *_EPISODES),
    ),
    "outage": (
        *(*_OUTAGE, "interrupted_reward", "interrupted_continued", "interrupted_zero"),
        *("stopped_after_s", "down_s", "gpu_gb"),
    ),
}
