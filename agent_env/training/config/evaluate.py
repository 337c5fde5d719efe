"""What an evaluation is told."""

from __future__ import annotations

from agent_env.training.config.base import Count, ProgramConfig


class EvaluateConfig(ProgramConfig):
    """Sampled reward of a model over a split."""

    split: str = "coarse-eval"
    samples: Count = 8
    """Rollouts a task."""
    tasks: Count | None = None
    """Only the first tasks of the split; all of them by default."""
