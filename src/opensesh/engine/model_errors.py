"""Errors of model calls: the records that describe them, and when a call is retried."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from msgspec import Struct

from .. import errors
from ..errors import ModelError, RateLimitedError
from ..models.failures import retry_after_ms
from ..records import (
    APIError,
    BudgetExceededError,
    ContentFilterError,
    ContextOverflowError,
    Failure,
    ProviderAuthError,
    UnknownError,
)

if TYPE_CHECKING:
    from collections.abc import Callable


def failure_of(error: BaseException, provider_id: str) -> Failure:
    """Return the record for an exception. Of an exception group, the first exception counts."""
    while isinstance(error, BaseExceptionGroup):
        error = cast("BaseExceptionGroup[BaseException]", error).exceptions[0]
    match error:
        case errors.AuthFailedError(status=None):
            return ProviderAuthError(provider_id=provider_id, message=error.message)
        case errors.ContextExceededError():
            return ContextOverflowError(message=error.message, response_body=error.body)
        case errors.ContentFilteredError():
            return ContentFilterError(message=error.message)
        case errors.OverBudgetError():
            spent, budget = float(error.spent), float(error.budget)
            return BudgetExceededError(message=error.message, scope=error.scope, spent=spent, budget=budget)
        case errors.ModelError():
            return _api_error(error)
        case _:
            is_ours = isinstance(error, errors.OpenseshError)
            return UnknownError(message=error.message if is_ours else f"{type(error).__name__}: {error}")


def _api_error(error: ModelError) -> APIError:
    metadata = {"url": error.url} if error.url else {}
    if isinstance(error, errors.ModelConnectionError):
        metadata = {"code": "ECONNRESET", "message": error.message} | metadata
    return APIError(
        message=error.message,
        status_code=error.status,
        is_retryable=error.retryable,
        response_headers=error.headers or None,
        response_body=error.body,
        metadata=metadata or None,
    )


class RetryPolicy(Struct, frozen=True, kw_only=True):
    """When a model call is retried, and after which delay."""

    attempts: int = 5
    """Number of retries before the error is final."""
    initial_delay_ms: int = 2_000
    factor: float = 2.0
    max_delay_ms: int = 30_000
    """Longest delay where the provider does not name one."""
    max_requested_delay_ms: int = 86_400_000
    """Longest delay that a provider may ask for. A call that would have to wait longer is not retried."""
    jitter: float = 0.25
    """Random share of a delay that the provider did not name, so that many clients do not retry at the same moment."""

    def reason(self, error: BaseException, attempt: int) -> str | None:
        """Return why to retry, for a person to read; ``None`` if the error is final. ``attempt`` counts from 1."""
        if not isinstance(error, ModelError) or not error.retryable or attempt > self.attempts:
            return None
        return error.message if (_requested_delay_ms(error) or 0) <= self.max_requested_delay_ms else None

    def delay_ms(self, error: BaseException, attempt: int, chance: Callable[[], float] | None = None) -> int:
        """Return the delay before the next attempt: what the provider asked for, or one that grows."""
        from random import random

        requested = _requested_delay_ms(error)
        if requested is not None:
            return requested
        delay = min(self.initial_delay_ms * self.factor ** (attempt - 1), self.max_delay_ms)
        return int(delay * (1 - self.jitter * (chance or random)()))


def _requested_delay_ms(error: BaseException) -> int | None:
    headers = error.headers if isinstance(error, ModelError) else {}
    return retry_after_ms(headers, limited=isinstance(error, RateLimitedError))
