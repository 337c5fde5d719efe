"""The training rows in an order that a run which goes on keeps to."""

from __future__ import annotations

from typing import Any

import torch
from torchdata.stateful_dataloader import (  # type: ignore[import-not-found]  # SkyRL's
    StatefulDataLoader,
)
from torchdata.stateful_dataloader.sampler import (  # type: ignore[import-not-found]
    RandomSampler,
)


def exact(loader: Any, seed: int) -> Any:
    """A loader like SkyRL's own that is given, whose state brings back every row that comes.

    SkyRL's shuffles by a generator that also seeds each pass: gone on with, it has drawn once
    more, and every later epoch has another order.
    """
    shuffled = RandomSampler(loader.dataset, generator=torch.Generator().manual_seed(seed))
    return StatefulDataLoader(
        loader.dataset,
        batch_size=loader.batch_size,
        sampler=shuffled,
        collate_fn=loader.collate_fn,
        num_workers=loader.num_workers,
        persistent_workers=loader.persistent_workers,
        multiprocessing_context=loader.multiprocessing_context,
        drop_last=loader.drop_last,
    )
