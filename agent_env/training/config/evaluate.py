"""What an evaluation is told."""

from __future__ import annotations

from typing import ClassVar

from agent_env.training.config.base import Count, ProgramConfig
from agent_env.training.config.names import Names


class EvaluateConfig(ProgramConfig):
    """Sampled reward of a model over a split, or over one of each bundle."""

    takes_many: ClassVar[bool] = True

    split: Names = "coarse-eval"
    """The tasks to play."""
    samples: Count = 8
    """Rollouts a task."""
    tasks: Count | None = None
    """Only the first tasks of each split; all of them by default."""
