"""Amounts of money as whole numbers, so that a sum is exact and does not depend on the order of its terms."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from decimal import Decimal

DOLLAR = 10**15
"""How many of our units a US dollar has; finer than any price a token has had."""


def dollars(amount: int) -> float:
    """The number closest to so many units."""
    return amount / DOLLAR


def units(amount: float | Decimal) -> int:
    """An amount in US dollars, as its shortest decimal form says it. What is no number is nothing."""
    if not amount or amount is True:
        return 0
    if isinstance(amount, float):
        whole, _, fraction = repr(amount).partition(".")
        if fraction.isdecimal() and len(fraction) <= 15 and whole.isdecimal():
            return int(whole + fraction.ljust(15, "0"))  # as below, and several times as fast
    from decimal import ROUND_HALF_UP, Decimal

    exact = amount if isinstance(amount, Decimal) else Decimal(repr(amount))
    if not exact.is_finite():
        return 0
    return int(exact.scaleb(15).to_integral_value(ROUND_HALF_UP))
