"""Money: Decimal dollars. What is spent is rounded up, what is free down; a float holds none."""

from __future__ import annotations

from decimal import ROUND_CEILING, ROUND_FLOOR, Decimal

CENT = Decimal("0.01")
MICRO_USD = Decimal("0.000001")
ZERO = Decimal("0.00")
SECONDS_PER_HOUR = Decimal(3600)
OLD_VERSION_DAYS = 90
"""How long the bucket keeps what was overwritten: its rule and the price both go by this."""
HOURS_PER_MONTH = Decimal(730)
_FEW_USD, _FINE_USD = Decimal("0.1"), Decimal("0.0001")


def cents_up(amount: Decimal) -> Decimal:
    """The smallest whole number of cents that is at least `amount`."""
    return amount.quantize(CENT, rounding=ROUND_CEILING)


def usd(amount: Decimal) -> str:
    """`$12.34`, rounded up; under ten cents `$0.0123`, as most that a local run costs."""
    step = _FINE_USD if 0 < abs(amount) < _FEW_USD else CENT
    return f"${amount.quantize(step, ROUND_CEILING):,}"


def usd_free(amount: Decimal) -> str:
    """`$12.34`, rounded down: never more than there is."""
    return f"${amount.quantize(CENT, rounding=ROUND_FLOOR):,}"


def usd_exact(*amounts: Decimal) -> list[str]:
    """Amounts with as many digits, two to six, as it takes for all to be told as they are."""
    for digits in range(2, 7):
        step = Decimal(1).scaleb(-digits)
        told = [amount.quantize(step, rounding=ROUND_CEILING) for amount in amounts]
        if told == list(amounts):
            break
    return [f"${amount:,}" for amount in told]


def hours_of(seconds: Decimal | int) -> Decimal:
    """Seconds as hours, exact to the Decimal context."""
    return Decimal(seconds) / SECONDS_PER_HOUR
