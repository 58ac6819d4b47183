from __future__ import annotations

from decimal import Decimal
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from opensesh.models.model import Price, Rates, Tier
from opensesh.models.pricing import charge, rates_for, tokens
from opensesh.models.stream_events import Usage
from opensesh.records import document_of

BUCKETS = ("input", "output", "cache_read", "cache_write", "reasoning")
SONNET = Price(rates=Rates(input=3.0, output=15.0, cache_read=0.3, cache_write=3.75))
LONG = Rates(input=2.5, output=15.0, cache_read=0.25)
GEMINI = Price(rates=Rates(input=1.25, output=10.0, cache_read=0.125), tiers=(Tier(above=200_000, rates=LONG),))


def test_a_million_in_and_a_tenth_of_it_out_costs_four_dollars_fifty() -> None:
    usage = Usage(input=1_000_000, output=100_000)
    assert charge(SONNET, usage).cost == Decimal("4.5")
    assert charge(SONNET, usage).stored == 4.5


def test_every_bucket_has_its_own_rate_and_reasoning_that_of_output() -> None:
    usage = Usage(input=1_000_000, output=1_000_000, cache_read=1_000_000, cache_write=1_000_000, reasoning=1_000_000)
    assert charge(SONNET, usage).cost == Decimal("3") + 15 + Decimal("0.3") + Decimal("3.75") + 15


def test_reasoning_may_be_priced_apart() -> None:
    price = Price(rates=Rates(input=1.0, output=2.0, reasoning=8.0))
    assert charge(price, Usage(output=1_000_000, reasoning=1_000_000)).cost == Decimal(10)


def test_decimals_add_up_where_binary_fractions_do_not() -> None:
    price = Price(rates=Rates(input=0.1, output=0.2))
    assert charge(price, Usage(input=1_000_000, output=1_000_000)).cost == Decimal("0.3")
    assert charge(price, Usage(input=1_000_000, output=1_000_000)).stored == 0.3


def test_nothing_is_rounded_to_cents() -> None:
    assert charge(SONNET, Usage(input=1)).cost == Decimal("0.000003")


@pytest.mark.parametrize(
    ("read", "above"),
    [(0, None), (100_000, None), (100_001, 200_000)],
)
def test_a_tier_begins_above_its_size_counting_cache_reads(read: int, above: int | None) -> None:
    usage = Usage(input=100_000, cache_read=read)
    rates, reached = rates_for(GEMINI, usage)
    assert reached == above
    assert rates == (GEMINI.rates if above is None else LONG)


def test_what_is_written_to_the_cache_does_not_lift_a_call_into_a_tier() -> None:
    assert rates_for(GEMINI, Usage(input=200_000, cache_write=1_000_000))[1] is None


def test_the_largest_reached_tier_applies_in_any_order() -> None:
    tiers = (Tier(above=128_000, rates=Rates(input=3.0)), Tier(above=32_000, rates=Rates(input=2.0)))
    price = Price(rates=Rates(input=1.0), tiers=tiers)
    reached = [rates_for(price, Usage(input=size)) for size in (32_000, 32_001, 128_001)]
    assert [(rates.input, above) for rates, above in reached] == [(1.0, None), (2.0, 32_000), (3.0, 128_000)]


def test_a_charge_has_the_rates_that_applied() -> None:
    long = charge(GEMINI, Usage(input=300_000, output=1_000))
    assert (long.rates, long.above) == (LONG, 200_000)
    assert long.cost == Decimal("0.765")


def test_an_unknown_price_is_not_zero() -> None:
    assert charge(None, Usage(input=5)).cost is None
    assert charge(None, Usage()).cost is None
    assert charge(Price(), Usage(input=5)).cost is None
    assert charge(Price(rates=Rates(input=0.0, output=0.0)), Usage(input=5)).cost == 0


def test_one_bucket_without_a_rate_makes_the_whole_unknown_but_the_rest_is_still_stored() -> None:
    usage = Usage(input=1_000_000, cache_write=10)
    bill = charge(GEMINI, usage)
    assert bill.cost is None
    assert bill.unpriced == ("cache_write",)
    assert bill.stored == 2.5


def test_a_bucket_without_a_rate_does_not_matter_while_it_is_empty() -> None:
    assert charge(GEMINI, Usage(input=1_000)).cost == Decimal("0.00125")


def test_the_unknown_is_stored_as_zero_since_records_want_a_number() -> None:
    assert charge(None, Usage(input=5)).stored == 0.0


def test_negative_counts_cost_nothing_and_are_stored_as_zero() -> None:
    usage = Usage(input=-5, output=-1, reasoning=-2, cache_read=-3, cache_write=-4, total=-15)
    assert charge(SONNET, usage).cost == 0
    assert document_of(tokens(usage)) == {
        "total": 0,
        "input": 0,
        "output": 0,
        "reasoning": 0,
        "cache": {"read": 0, "write": 0},
    }


def test_tokens_keep_the_buckets_and_omit_a_missing_total() -> None:
    usage = Usage(input=1, output=2, reasoning=3, cache_read=4, cache_write=5)
    assert document_of(tokens(usage)) == {"input": 1, "output": 2, "reasoning": 3, "cache": {"read": 4, "write": 5}}


counts = st.integers(min_value=-10, max_value=10**10)
usages = st.builds(Usage, input=counts, output=counts, reasoning=counts, cache_read=counts, cache_write=counts)
dollars = st.one_of(
    st.decimals(min_value=0, max_value=1000, places=4).map(float), st.floats(min_value=0, max_value=1e6)
)
known_rates = st.builds(
    Rates,
    input=dollars,
    output=dollars,
    cache_read=dollars,
    cache_write=dollars,
    reasoning=st.none() | dollars,
)
prices = st.builds(
    Price,
    rates=known_rates,
    tiers=st.lists(st.builds(Tier, above=st.integers(1, 10**6), rates=known_rates), max_size=3).map(tuple),
)


def exactly(rates: Rates, usage: Usage) -> Fraction:
    """The same sum without any rounding; a rate is the shortest decimal that names it."""
    reasoning = rates.output if rates.reasoning is None else rates.reasoning
    item = dict(zip(BUCKETS, (rates.input, rates.output, rates.cache_read, rates.cache_write, reasoning), strict=True))
    terms = (max(getattr(usage, name), 0) * Fraction(repr(item[name] or 0.0)) for name in BUCKETS)
    return sum(terms, Fraction(0)) / 1_000_000


@given(prices, usages)
def test_a_cost_is_within_a_rounding_of_the_exact_sum(price: Price, usage: Usage) -> None:
    bill = charge(price, usage)
    assert bill.cost is not None
    exact = exactly(bill.rates, usage)
    assert bill.cost >= 0
    assert abs(Fraction(bill.cost) - exact) <= exact * Fraction(1, 10**18)


@given(prices, usages)
def test_the_tier_is_the_largest_below_the_context(price: Price, usage: Usage) -> None:
    context = max(usage.input, 0) + max(usage.cache_read, 0)
    below = [tier.above for tier in price.tiers if tier.above < context]
    assert charge(price, usage).above == (max(below) if below else None)


@given(prices, usages)
def test_what_is_stored_is_the_nearest_double(price: Price, usage: Usage) -> None:
    bill = charge(price, usage)
    assert bill.stored == float(str(bill.known))
