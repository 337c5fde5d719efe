"""The accounts that the contract is tested on."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.faults.cloud.kit import TestAccount, open_account


@pytest.fixture(params=["model", "moto", pytest.param("aws", marks=pytest.mark.aws)])
def account(request: pytest.FixtureRequest) -> Iterator[TestAccount]:
    """The model, strict moto, and where asked for a real account: each does the same."""
    with open_account(request.param) as opened:
        yield opened
