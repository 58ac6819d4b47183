"""Amounts of money as integers, so that sums are exact and do not depend on the order of addition."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from decimal import Decimal

DOLLAR = 10**15
"""Units in a US dollar; finer than the price of any token."""


def dollars(amount: int) -> float:
    """Convert units to US dollars."""
    return amount / DOLLAR


def units(amount: float | Decimal) -> int:
    """Convert US dollars to units, exactly by their shortest decimal form. Not-a-number and infinity are 0."""
    if not amount or amount is True:
        return 0
    if isinstance(amount, float):
        whole, _, fraction = repr(amount).partition(".")
        if fraction.isdecimal() and len(fraction) <= 15 and whole.isdecimal():
            return int(whole + fraction.ljust(15, "0"))  # the same result as below, several times as fast
    from decimal import ROUND_HALF_UP, Decimal

    exact = amount if isinstance(amount, Decimal) else Decimal(repr(amount))
    if not exact.is_finite():
        return 0
    return int(exact.scaleb(15).to_integral_value(ROUND_HALF_UP))
