"""Amounts of money as whole numbers, so that a sum is exact and does not depend on the order of its terms."""

from __future__ import annotations

DOLLAR = 10**15
"""How many of our units a US dollar has; finer than any price a token has had."""


def dollars(amount: int) -> float:
    """The number closest to so many units."""
    return amount / DOLLAR
