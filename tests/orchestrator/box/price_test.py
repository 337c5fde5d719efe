"""What a box says it has cost is counted at the price of the type that it really is."""

from __future__ import annotations

from decimal import Decimal
from typing import NoReturn

import pytest

from orchestrator.aws import tags
from orchestrator.box import __main__ as main

PLANNED = Decimal("3.00424")


def test_the_price_is_that_of_the_launched_type(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def tag(path: str) -> str:
        asked.append(path)
        return "1.3232"

    monkeypatch.setattr(main, "metadata", tag)
    assert main.price_of(PLANNED) == Decimal("1.3232")
    assert asked == [f"tags/instance/{tags.PRICE}"]


@pytest.mark.parametrize("said", ["", "dear", "NaN", "Infinity"])
def test_what_is_no_price_is_not_taken(said: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(main, "metadata", lambda _: said)
    assert main.price_of(PLANNED) == PLANNED


@pytest.mark.parametrize(("said", "attempt"), [("2", 2), ("", 0), ("second", 0)])
def test_a_box_knows_by_its_tag_whether_it_took_anothers_place(
    said: str, attempt: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(main, "metadata", {f"tags/instance/{tags.ATTEMPT}": said}.__getitem__)
    assert main.attempt_of_box() == attempt


def test_without_metadata_it_is_the_planned_price(monkeypatch: pytest.MonkeyPatch) -> None:
    def nothing(_: str) -> NoReturn:
        raise OSError

    monkeypatch.setattr(main, "metadata", nothing)
    assert main.price_of(PLANNED) == PLANNED
    assert main.attempt_of_box() == 0
