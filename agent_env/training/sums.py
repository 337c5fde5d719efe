"""What a batch's episodes come to beside their reward, by the names that trainers log."""

from __future__ import annotations

from collections.abc import Hashable, Sequence

from agent_env.training._episode import Rollout

NO_SPREAD = 1e-8
"""Rewards that are this close are one: their differences are a float's."""


def episode_numbers(episodes: Sequence[Rollout]) -> dict[str, float]:
    """Shares and means over all of them, `env/…`; the mean of each score that any has, `score/…`.

    `waited_s` (seconds), `reopened` and `continued` are sums. Empty without an episode.
    """
    if not episodes:
        return {}
    numbers = {
        "env/unscored": _mean([float(one.reward is None) for one in episodes]),
        "env/tool_calls": _mean([float(one.tool_calls) for one in episodes]),
        "env/tool_failures": _mean([float(one.tool_failures) for one in episodes]),
        "env/turns": _mean([float(one.turns) for one in episodes]),
        "env/reopened": float(sum(one.reopened for one in episodes)),
        "env/continued": float(sum(one.continued for one in episodes)),
        "env/waited_s": sum(one.waited_s for one in episodes),
    }
    for score in sorted({name for one in episodes for name in one.scores}):
        values = [one.scores[score] for one in episodes if score in one.scores]
        numbers[f"score/{score}"] = _mean(values)
    return numbers


def flat_share(rewards: Sequence[float | None], groups: Sequence[Hashable]) -> float | None:
    """Of the groups with at least two scored rollouts the share whose rewards are all equal.

    `groups` names each reward's. Advantages are differences from the group's mean, so such a group
    teaches nothing. None without a group to tell it of: what is unscored isn't flat.
    """
    scored: dict[Hashable, list[float]] = {}
    for reward, group in zip(rewards, groups, strict=True):
        if reward is not None:
            scored.setdefault(group, []).append(reward)
    told = [values for values in scored.values() if len(values) > 1]
    flat = [float(max(values) - min(values) <= NO_SPREAD) for values in told]
    return _mean(flat) if flat else None


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)
