"""Errors of model calls: the records that describe them, and when a call is retried."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from .. import errors
from ..containment import describe
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
    from ..retry import RetryPolicy


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
        case _:
            is_ours = isinstance(error, errors.OpenseshError)
            return UnknownError(message=error.message if is_ours else describe(error))


def retry_delay_ms(policy: RetryPolicy, error: ModelError, attempt: int) -> int | None:
    """Return how long to wait before a model call is retried; ``None`` if the error is final. ``attempt`` counts from
    1."""
    requested = retry_after_ms(error.headers, limited=isinstance(error, RateLimitedError))
    return policy.delay_ms(attempt, requested) if error.retryable and policy.allows(attempt, requested) else None
