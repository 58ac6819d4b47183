"""What went wrong, as a record."""

from __future__ import annotations

from typing import cast

from .. import errors
from ..records import (
    APIError,
    BudgetExceededError,
    ContentFilterError,
    ContextOverflowError,
    Failure,
    ProviderAuthError,
    UnknownError,
)


def failure_of(error: BaseException, provider_id: str) -> Failure:
    """The record for an exception."""
    error = first_of(error)
    match error:
        case errors.AuthFailedError(status=None):
            return ProviderAuthError(provider_id=provider_id, message=error.message)
        case errors.ContextExceededError():
            return ContextOverflowError(message=error.message, response_body=error.body)
        case errors.ContentFilteredError():
            return ContentFilterError(message=error.message)
        case errors.ModelError():
            return _of_model(error)
        case errors.OpenseshError():
            return UnknownError(message=error.message)
        case _:
            return UnknownError(message=f"{type(error).__name__}: {error}")


def first_of(error: BaseException) -> BaseException:
    """The exception that began it all, where a group of tasks wrapped it up."""
    while isinstance(error, BaseExceptionGroup):
        group = cast("BaseExceptionGroup[BaseException]", error)
        error = group.exceptions[0]
    return error


def _of_model(error: errors.ModelError) -> Failure:
    if isinstance(error, errors.OverBudgetError):
        spent, budget = float(error.spent), float(error.budget)
        return BudgetExceededError(message=error.message, scope=error.scope, spent=spent, budget=budget)
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
