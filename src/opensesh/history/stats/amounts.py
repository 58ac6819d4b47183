"""From dollars to the whole numbers that ledgers keep."""

from __future__ import annotations

from decimal import ROUND_HALF_UP, Decimal


def units(amount: float | Decimal) -> int:
    """An amount in US dollars, as its shortest decimal form says it. What is no number is nothing."""
    if not amount or amount is True:
        return 0
    if isinstance(amount, float):
        whole, _, fraction = repr(amount).partition(".")
        if fraction.isdecimal() and len(fraction) <= 15 and whole.isdecimal():
            return int(whole + fraction.ljust(15, "0"))  # as below, and several times as fast
    exact = amount if isinstance(amount, Decimal) else Decimal(repr(amount))
    if not exact.is_finite():
        return 0
    return int(exact.scaleb(15).to_integral_value(ROUND_HALF_UP))
