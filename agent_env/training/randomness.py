"""Random numbers that an eval may use up without changing the training around it."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import torch


def seed_everything(seed: int) -> None:
    """Seed Python, numpy and torch on every device."""
    random.seed(seed)
    np.random.seed(seed)
    torch.manual_seed(seed)


@contextmanager
def own_randomness(seed: int) -> Iterator[None]:
    """Inside, every generator starts from `seed`; afterwards each goes on where it was.

    So an eval gives the same result whether or not it is the second try of a disturbed run.
    """
    python, numpy = random.getstate(), np.random.get_state()
    with torch.random.fork_rng():
        seed_everything(seed)
        try:
            yield
        finally:
            random.setstate(python)
            np.random.set_state(numpy)
