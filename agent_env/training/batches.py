"""Do the batches of a trainer's arguments divide? Told with the field to set.

A generation's rollouts are whole groups, cut into whole backward passes; and a checkpoint lies
between two generations: in the middle of one, what is left of its rollouts would be lost.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any


def generation_faults(told: Mapping[str, Any], processes: int) -> Iterator[str]:
    """What is wrong with the generations that these arguments, defaults among them, make.

    What TRL refuses once it is built, or Unsloth mends in silence; and `save_steps`, where it is
    set, that fall into the middle of a generation.
    """
    size, cut = told.get("generation_batch_size"), told.get("steps_per_generation")
    batch, groups = told["per_device_train_batch_size"], told["num_generations"]
    pass_size, pieces = batch * processes, told["gradient_accumulation_steps"]
    if size is not None and cut is not None:
        yield "generation_batch_size: steps_per_generation says the same: leave one of them out"
        return
    if size is not None and size % pass_size:
        yield (
            f"generation_batch_size: {size} is no multiple of a backward pass, {batch} ×"
            f" {processes} processes: set it or per_device_train_batch_size so that it is"
        )
        return
    generated = size or pass_size * (cut or pieces)
    if generated % groups:
        yield _no_whole_groups(told, processes, generated)
        return
    every = told.get("save_steps")
    passes = generated // pass_size * told.get("num_iterations", 1)
    if _saves_by_steps(told) and isinstance(every, int) and every * pieces % passes:
        steps = math.lcm(passes, pieces) // pieces
        yield (
            f"save_steps: {every} falls between two generations, which begin every {steps} steps;"
            f" a run that goes on from there generates anew and differs: make it a multiple of"
            f" {steps}"
        )


def _no_whole_groups(told: Mapping[str, Any], processes: int, generated: int) -> str:
    groups = told["num_generations"]
    for name in ("generation_batch_size", "steps_per_generation"):
        if told.get(name) is not None:
            return (
                f"{name}: {told[name]} makes {generated} rollouts at once, which is no multiple of"
                f" num_generations, {groups}: set one of them so that it is"
            )
    batch, pieces = told["per_device_train_batch_size"], told["gradient_accumulation_steps"]
    return (
        f"per_device_train_batch_size: {batch} × {pieces} accumulated × {processes} processes "
        f"is no multiple of num_generations, {groups}; Unsloth would make it "
        f"{groups}: set one of them so that it divides"
    )


def _saves_by_steps(told: Mapping[str, Any]) -> bool:
    strategy = told.get("save_strategy", "steps")
    return str(getattr(strategy, "value", strategy)) == "steps"
