"""The ledger: the cap holds in every order of things, and the log alone rebuilds it."""

from __future__ import annotations

from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.errors import OverCap
from orchestrator.ledger import Ledger, LedgerEntry

CAP = Decimal(40)
CENTS = st.integers(0, 5000).map(lambda cents: Decimal(cents) / 100)
STEPS = st.lists(
    st.tuples(st.sampled_from(["reserve", "settle"]), st.sampled_from("abcdef"), CENTS),
    max_size=40,
)


@given(STEPS)
def test_money_never_passes_the_cap_in_any_order_of_reserving_and_settling(
    steps: list[tuple[str, str, Decimal]],
) -> None:
    ledger = Ledger(CAP)
    for kind, line, amount in steps:
        try:
            if kind == "reserve":
                ledger = ledger.reserve(line, amount)
            else:
                ledger = ledger.settle(line, min(amount, ledger.reserved.get(line, amount)))
        except (OverCap, ValueError):
            pass
        assert ledger.reserved_usd + ledger.settled_usd <= CAP
        assert ledger.free_usd == CAP - ledger.reserved_usd - ledger.settled_usd


@given(STEPS)
def test_a_ledger_is_rebuilt_from_its_entries_alone(steps: list[tuple[str, str, Decimal]]) -> None:
    ledger, entries = Ledger(CAP), []
    for kind, line, amount in steps:
        try:
            ledger = getattr(ledger, kind)(line, amount)
        except (OverCap, ValueError):
            continue
        entries.append(LedgerEntry.model_validate({"kind": kind, "line": line, "usd": amount}))

    lines = [entry.model_dump_json() for entry in entries]
    read = [LedgerEntry.model_validate_json(line) for line in lines]

    assert Ledger.replay(CAP, read) == ledger


def test_the_last_cent_fits_and_the_next_does_not() -> None:
    ledger = Ledger(CAP).reserve("l40s", Decimal("30.00")).reserve("l4", Decimal("10.00"))

    assert ledger.free_usd == 0
    with pytest.raises(OverCap, match=r"\$0.01.*cap of \$40.00.*only \$0.00 is free") as refused:
        ledger.reserve("one more", Decimal("0.01"))
    assert "Raise the cap by $0.01" in refused.value.hint
    assert refused.value.exit_code == 4


def test_a_refusal_never_says_that_as_much_is_free_as_is_asked_for() -> None:
    ledger = Ledger(Decimal(1)).reserve("l4", Decimal(1)).settle("l4", Decimal("0.4899"))

    with pytest.raises(OverCap) as refused:
        ledger.reserve("l4#2", Decimal("0.52"))
    assert refused.value.message == (
        "l4#2 may cost $0.5200, but of the cap of $1.00 only $0.5101 is free "
        "($0.0000 reserved, $0.4899 spent)"
    )


def test_a_settled_line_gives_back_what_it_did_not_use() -> None:
    ledger = Ledger(CAP).reserve("l40s", Decimal(30)).settle("l40s", Decimal("12.34"))

    assert ledger.reserved_usd == 0
    assert ledger.settled_usd == Decimal("12.34")
    assert ledger.free_usd == Decimal("27.66")


def test_reserving_or_settling_twice_changes_nothing() -> None:
    once = Ledger(CAP).reserve("l4", Decimal(3))
    settled = once.settle("l4", Decimal(2))

    assert once.reserve("l4", Decimal(3)) is once
    assert settled.settle("l4", Decimal(2)) is settled


def test_a_line_is_not_reserved_anew_at_another_price() -> None:
    with pytest.raises(ValueError, match="a new attempt is a new line"):
        Ledger(CAP).reserve("l4", Decimal(3)).reserve("l4", Decimal(4))


def test_a_line_that_cost_more_than_reserved_is_recorded_and_stops_the_rest() -> None:
    ledger = Ledger(CAP).reserve("l4", Decimal(39)).settle("l4", Decimal(41))

    assert ledger.settled_usd == 41
    assert ledger.free_usd == 0
    with pytest.raises(OverCap):
        ledger.reserve("more", Decimal("0.01"))


@pytest.mark.parametrize("amount", ["-0.01", "NaN", "Infinity"])
def test_what_is_no_amount_is_refused(amount: str) -> None:
    with pytest.raises(ValueError, match="no amount of money"):
        Ledger(CAP).reserve("l4", Decimal(amount))


def test_a_line_that_was_never_reserved_is_not_settled() -> None:
    with pytest.raises(ValueError, match="isn't reserved"):
        Ledger(CAP).settle("l4", Decimal(1))
