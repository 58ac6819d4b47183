"""The errors that an assistant message may contain.

A stored error is ``{"name": ..., "data": {...}}``. Some trees have a flat form, with name and fields side by side, and
some call the unknown error ``Unknown``; both are read, and only the nested form is written.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias, cast, get_args

import msgspec

from ..errors import RecordError
from .view import View, document_of

if TYPE_CHECKING:
    from .codec import Document


class ProviderAuthError(View, frozen=True, kw_only=True):
    """Missing API key, or one that the provider rejected."""

    provider_id: str = ""
    message: str = ""


class UnknownError(View, frozen=True, kw_only=True):
    """Any other error."""

    message: str = ""
    ref: str | None = None


class MessageOutputLengthError(View, frozen=True, kw_only=True):
    """The answer reached the output limit."""


class MessageAbortedError(View, frozen=True, kw_only=True):
    """The run was aborted."""

    message: str = ""


class StructuredOutputError(View, frozen=True, kw_only=True):
    """The model did not give the structured answer it was asked for."""

    message: str = ""
    retries: int = 0


class ContextOverflowError(View, frozen=True, kw_only=True):
    """The request was longer than the context window."""

    message: str = ""
    response_body: str | None = None


class ContentFilterError(View, frozen=True, kw_only=True):
    """The provider withheld the answer (OpenCode 1.2 and later)."""

    message: str = ""


class BudgetExceededError(View, frozen=True, kw_only=True):
    """The budget did not cover the request, was exceeded, or ended the answer early.

    An extension of opensesh. Amounts are in US dollars.
    """

    message: str = ""
    scope: str = "run"
    """``run``, ``session`` or ``task``."""
    spent: float = 0
    budget: float = 0


class APIError(View, frozen=True, kw_only=True):
    """The provider rejected the request."""

    message: str = ""
    status_code: int | None = None
    is_retryable: bool = False
    response_headers: dict[str, str] | None = None
    response_body: str | None = None
    metadata: dict[str, str] | None = None


class OtherError(View, frozen=True, kw_only=True):
    """An error that this version does not know."""

    name: str
    data: dict[str, Any]

    @property
    def message(self) -> str:
        """The error's own message."""
        return str(self.data.get("message", ""))


Failure: TypeAlias = (
    ProviderAuthError
    | UnknownError
    | MessageOutputLengthError
    | MessageAbortedError
    | StructuredOutputError
    | ContextOverflowError
    | ContentFilterError
    | BudgetExceededError
    | APIError
    | OtherError
)

_KINDS: dict[str, type[View]] = {kind.__name__: kind for kind in get_args(Failure) if kind is not OtherError}
_KINDS["Unknown"] = UnknownError


def read_failure(document: Document, path: str = "") -> Failure:
    """Return the error in ``document``, nested or flat; :class:`OtherError` for an unknown name."""
    name = document.get("name")
    if not isinstance(name, str):
        raise RecordError("an error without a name", path=path, place="$.error")
    data = document.get("data")
    if not isinstance(data, dict):
        data = {key: value for key, value in document.items() if key != "name"}
    kind = _KINDS.get(name)
    if kind is None:
        return OtherError(name=name, data=cast("dict[str, Any]", data))
    try:
        return cast("Failure", msgspec.convert(data, kind))
    except msgspec.ValidationError as error:
        raise RecordError(str(error).replace("`", ""), path=path, place="$.error.data") from None


def write_failure(failure: Failure) -> Document:
    """Return the stored form of an error: ``{"name": ..., "data": {...}}``."""
    if isinstance(failure, OtherError):
        return {"name": failure.name, "data": failure.data}
    return {"name": type(failure).__name__, "data": document_of(failure)}
