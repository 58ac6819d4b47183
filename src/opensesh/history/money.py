"""Amounts of money as whole numbers, so that a sum is exact and does not depend on the order of its terms."""

from __future__ import annotations

from decimal import ROUND_HALF_UP, Decimal

DOLLAR = 10**15
"""How many of our units a US dollar has; finer than any price a token has had."""


def units(amount: float | Decimal) -> int:
    """An amount in US dollars, as its shortest decimal form says it. What is no number is nothing."""
    if not amount:
        return 0
    exact = amount if isinstance(amount, Decimal) else Decimal(repr(amount))
    if not exact.is_finite():
        return 0
    return int(exact.scaleb(15).to_integral_value(ROUND_HALF_UP))


def dollars(amount: int) -> float:
    """The number closest to so many units."""
    return amount / DOLLAR
