"""Unscored rollouts in SkyRL's output: they teach nothing, and shift nobody's baseline.

GRPO's baseline is the mean over a group's rewards, those of masked rollouts among them. So an
unscored one gets a mask of zeros *and* the mean reward of its scored siblings: the group's mean
stays theirs, its own advantage is 0. Nothing here needs torch.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from agent_env.statistics import mean
from agent_env.training._episode import Rollout
from agent_env.training.sums import episode_numbers


def at_the_end(reward: float, tokens: int) -> list[float]:
    """A reward for each token, all of it on the last."""
    return [0.0] * (tokens - 1) + [reward]


def masked(output: dict[str, Any], unscored: Sequence[bool]) -> None:
    """Take those rows out of the loss, in place; a log probability there is 0, never NaN."""
    logprobs = output.get("rollout_logprobs")
    for row, lost in enumerate(unscored):
        if lost:
            tokens = len(output["response_ids"][row])
            output["loss_masks"][row] = [0] * tokens
            if logprobs is not None:
                logprobs[row] = [0.0] * tokens


def imputed(
    rewards: Sequence[list[float]],
    groups: Sequence[str],
    unscored: Sequence[bool],
    *,
    of_none: float = 0.0,
) -> list[list[float]]:
    """The rewards by token, with the siblings' mean for each unscored row.

    `of_none` is for a group without any scored rollout.
    """
    totals: dict[str, list[float]] = {}
    for reward, group, lost in zip(rewards, groups, unscored, strict=True):
        if not lost:
            totals.setdefault(group, []).append(sum(reward))
    return [
        at_the_end(mean(totals[group]) if group in totals else of_none, len(reward))
        if lost
        else reward
        for reward, group, lost in zip(rewards, groups, unscored, strict=True)
    ]


def numbers(
    rewards: Sequence[list[float]], unscored: Sequence[bool], episodes: Sequence[Rollout]
) -> dict[str, float]:
    """What the tracker is told; the mean is over the scored rollouts, and missing without any."""
    scored = [sum(reward) for reward, lost in zip(rewards, unscored, strict=True) if not lost]
    counts = {"env/rollouts": float(len(unscored)), "env/scored": float(len(scored))}
    means = {"env/reward_mean": mean(scored)} if scored else {}
    return {**counts, **means, **episode_numbers(episodes)}
