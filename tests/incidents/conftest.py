"""A run that a test may disturb, and then look at what the account and the bucket hold."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.incidents.scene import Scene, opened


@pytest.fixture
def scene() -> Iterator[Scene]:
    """One box with one short job."""
    with opened() as one:
        yield one
