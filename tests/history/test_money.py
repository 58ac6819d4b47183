from __future__ import annotations

import math
import subprocess
import sys
from decimal import ROUND_HALF_UP, Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from opensesh.history.stats.money import units
from opensesh.history.stats.session_usage import UsageEntry


@given(st.floats(-1e30, 1e30) | st.floats(0, 100) | st.decimals(0, 9, places=6).map(float))
def test_an_amount_is_what_its_shortest_decimal_form_says(amount: float) -> None:
    exact = Decimal(repr(amount)) * 10**15
    assert units(amount) == int(exact.to_integral_value(ROUND_HALF_UP))


@pytest.mark.parametrize(
    ("amount", "expected"),
    [
        (0.25, 25 * 10**13),
        (1e-16, 0),
        (-0.5, -5 * 10**14),
        (3, 3 * 10**15),
        (1e22, 10**37),
        (0.1234567890123456, 123456789012346),
        (math.inf, 0),
        (math.nan, 0),
        (True, 0),
    ],
)
def test_small_large_and_strange_amounts(amount: float, expected: int) -> None:
    assert units(amount) == expected


def test_a_likeness_is_the_same_in_every_process() -> None:
    entry = UsageEntry("msg_1", "assistant", 1, 2, "anthropic", "claude", "build", 3, 4, 5, 6, 7, 8, 9)
    code = f"from opensesh.history.stats.session_usage import UsageEntry; print(UsageEntry{tuple(entry)!r}.fingerprint)"
    seen = {
        subprocess.run(
            [sys.executable, "-c", code],
            env={"PYTHONHASHSEED": seed, "PYTHONPATH": ":".join(sys.path)},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("0", "1", "77")
    }
    assert seen == {f"{entry.fingerprint}\n"}


def test_a_fingerprint_depends_on_everything_but_id_and_new_price() -> None:
    entry = UsageEntry("msg_1", "assistant", 1, 2, "anthropic", "claude", "build", 3, 4, 5, 6, 7, 8, 9)
    same = [entry._replace(id="msg_2"), entry._replace(repriced=None)]
    assert {item.fingerprint for item in same} == {entry.fingerprint}
    texts = dict.fromkeys(("role", "provider", "model", "agent"), "other")
    counts = dict.fromkeys(UsageEntry._fields[7:13], 99)
    others = [
        entry._replace(**{name: value}) for name, value in {**texts, **counts, "created": 9, "completed": 9}.items()
    ]
    assert len({item.fingerprint for item in (entry, *others)}) == len(others) + 1
