"""Which fields of a program's config ask for more sessions than its env server has."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from agent_env.training.config import (
    AsyncGrpoConfig,
    EvaluateConfig,
    GrpoConfig,
    ProgramConfig,
    SftConfig,
    TrainingConfig,
    VerlGrpoConfig,
)


@dataclass(frozen=True)
class _Play:
    """What plays so many rollouts at once, and the fields that say how many."""

    who: str
    rollouts: int
    fields: tuple[tuple[str, int], ...]

    def over(self, most: int) -> Iterator[str]:
        """The fields that are to be lowered to `most`."""
        if self.rollouts > most:
            yield from (name for name, value in self.fields if value > most)


def room_fault(config: ProgramConfig, sessions: int, most: int) -> str:
    """The fault of a config that wants `sessions` for each bundle of a server with `most` in all.

    What is over the config's own rollouts is for the expert's play.
    """
    plays = sorted(_plays(config), key=lambda play: -play.rollouts)
    first, *others = plays
    bundles, besides = len(config.bundles), sessions - first.rollouts
    room = most // bundles - besides
    fields = [name for play in plays for name in play.over(room)]
    lower = f", or set {' and '.join(fields)} to {room} at most" if room > 0 else ""
    also = "".join(f" ({play.who} {play.rollouts})" for play in others)
    more = f", {besides} more for the expert" if besides else ""
    each = f", each of {bundles} bundles as many" if bundles > 1 else ""
    return (
        f"config.{first.fields[0][0]}: {first.who} plays {first.rollouts} rollouts at once{also}"
        f"{more}{each}; the server has {most} sessions: start it with --max-sessions"
        f" {sessions * bundles}{lower}"
    )


def _plays(config: ProgramConfig) -> Iterator[_Play]:
    match config:
        case AsyncGrpoConfig():
            yield _Play("training", config.inflight, (("max_inflight", config.inflight),))
        case TrainingConfig():
            rollouts = config.rollouts_per_step
            yield _Play("training", rollouts, (("rollouts_per_step", rollouts),))
    match config:
        case VerlGrpoConfig():
            # All of an eval is given to verl at once; its workers play `batch` together.
            yield _Play("an eval", config.batch, (("batch", config.batch),))
        case GrpoConfig() | SftConfig():
            yield _eval(config, config.eval_samples, config.eval_tasks, "eval_samples")
        case EvaluateConfig():
            yield _eval(config, config.samples, config.tasks, "samples")


def _eval(config: ProgramConfig, samples: int, tasks: int | None, named: str) -> _Play:
    fields = (("batch", config.batch), (named, samples))
    return _Play("an eval", config.eval_rollouts(samples, tasks), fields)
