"""Money: Decimal dollars, rounded up. A float never holds an amount."""

from __future__ import annotations

from decimal import ROUND_CEILING, Decimal

CENT = Decimal("0.01")
ZERO = Decimal("0.00")
SECONDS_PER_HOUR = Decimal(3600)
HOURS_PER_MONTH = Decimal(730)


def cents_up(amount: Decimal) -> Decimal:
    """The smallest whole number of cents that is at least `amount`."""
    return amount.quantize(CENT, rounding=ROUND_CEILING)


def usd(amount: Decimal) -> str:
    """`$12.34`, rounded up."""
    return f"${cents_up(amount):,}"


def hours_of(seconds: Decimal | int) -> Decimal:
    """Seconds as hours, exact to the Decimal context."""
    return Decimal(seconds) / SECONDS_PER_HOUR
