from __future__ import annotations

import pytest

from opensesh.engine.model_errors import retry_delay_ms
from opensesh.errors import ModelConnectionError, ModelError, OverloadedError, RateLimitedError
from opensesh.models.failures import retry_after_ms
from opensesh.retry import RetryPolicy

NOW = 1_790_000_000_000


@pytest.mark.parametrize(
    ("headers", "wait"),
    [
        ({}, None),
        ({"retry-after-ms": "1500"}, 1500),
        ({"retry-after-ms": "0.4", "retry-after": "9"}, 0),
        ({"retry-after": "30"}, 30_000),
        ({"retry-after": "0.0015"}, 2),
        ({"retry-after": "700"}, 700_000),
        ({"retry-after": "Mon, 21 Sep 2026 14:13:25 GMT"}, 5_000),
        ({"retry-after": "Mon, 21 Sep 2026 14:13:15 GMT"}, None),
        ({"retry-after": "soon"}, None),
        ({"retry-after": "-3"}, None),
        ({"retry-after": "nan"}, None),
        ({"retry-after": "inf"}, None),
        ({"anthropic-ratelimit-unified-reset": "1790000060"}, 60_000),
        ({"x-ratelimit-reset": "1790000060000"}, 60_000),
        ({"x-ratelimit-reset-requests": "1m30.5s"}, 90_500),
        ({"x-ratelimit-reset-tokens": "12"}, 12_000),
        ({"x-ratelimit-reset": "2026-09-21T14:14:20+00:00"}, 60_000),
        ({"x-ratelimit-reset": "6ms"}, None),
        ({"x-ratelimit-reset": "whenever"}, None),
    ],
)
def test_a_wish_to_be_left_alone_is_understood_in_every_form(headers: dict[str, str], wait: int | None) -> None:
    assert retry_after_ms(headers, NOW) == wait


@pytest.mark.parametrize("days", [-9, 0, 9])
def test_a_retry_time_is_read_by_the_clock_of_the_server(days: int) -> None:
    here = NOW + days * 86_400_000
    sent = {"date": "Mon, 21 Sep 2026 14:13:20 GMT"}
    for lifted in ({"retry-after": "Mon, 21 Sep 2026 14:13:25 GMT"}, {"x-ratelimit-reset": "1790000005"}):
        assert retry_after_ms(sent | lifted, here) == 5_000
    assert retry_after_ms(sent | {"retry-after": "Mon, 21 Sep 2026 14:13:15 GMT"}, here) is None
    assert retry_after_ms({"date": "yesterday", "retry-after": "30"}, here) == 30_000


def test_when_a_limit_is_lifted_matters_only_to_who_met_it() -> None:
    headers = {"x-ratelimit-reset-tokens": "6m0s"}
    policy = RetryPolicy(jitter=0)
    assert retry_delay_ms(policy, RateLimitedError("slow down", headers=headers), 1) == 360_000
    assert retry_delay_ms(policy, OverloadedError("busy", headers=headers), 1) == 2_000
    assert retry_delay_ms(policy, OverloadedError("busy", headers=headers | {"retry-after": "3"}), 1) == 3_000


def test_waits_that_are_guessed_grow_and_have_a_ceiling() -> None:
    policy = RetryPolicy(jitter=0.25)
    waits = [policy.delay_ms(attempt, chance=lambda: 0.0) for attempt in (1, 2, 3, 5, 9)]
    assert waits == [2_000, 4_000, 8_000, 30_000, 30_000]
    assert policy.delay_ms(1, chance=lambda: 1.0) == 1_500
    delay = retry_delay_ms(policy, ModelConnectionError("gone"), 1)
    assert delay is not None
    assert 1_500 <= delay <= 2_000


@pytest.mark.parametrize(
    "headers", [{"retry-after": str(25 * 86_400)}, {"x-ratelimit-reset": str(NOW // 1000 + 40 * 365 * 86_400)}]
)
def test_who_wants_to_be_left_alone_for_weeks_is_not_waited_for(headers: dict[str, str]) -> None:
    error = RateLimitedError("the month is used up", headers=headers)
    assert retry_delay_ms(RetryPolicy(), error, 1) is None
    assert retry_delay_ms(RetryPolicy(max_requested_delay_ms=10**14), error, 1) is not None
    hours = RateLimitedError("slow down", headers={"retry-after": str(5 * 3_600)})
    assert retry_delay_ms(RetryPolicy(), hours, 1) == 5 * 3_600_000


def test_patience_is_for_what_may_well_succeed_and_has_an_end() -> None:
    policy = RetryPolicy(max_retries=5)
    assert retry_delay_ms(policy, ModelConnectionError("gone"), 5) is not None
    assert retry_delay_ms(policy, ModelConnectionError("gone"), 6) is None
    assert retry_delay_ms(policy, ModelError("no"), 1) is None
    assert retry_delay_ms(policy, ModelError("no", retryable=True), 1) is not None
