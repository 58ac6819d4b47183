"""What went wrong with an assistant message: every error a record may hold, in its true shape.

On disk an error is ``{"name": ..., "data": {...}}``. Some trees hold it flat, name and fields side by side, and some
call the unknown one ``Unknown``; both are read, and only the true shape is written.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias, cast

import msgspec

from ..errors import RecordError
from .view import View, document_of

if TYPE_CHECKING:
    from .codec import Document


class ProviderAuthError(View, frozen=True, kw_only=True):
    """No key, or one the provider did not take."""

    provider_id: str = ""
    message: str = ""


class UnknownError(View, frozen=True, kw_only=True):
    """Anything without a name of its own."""

    message: str = ""
    ref: str | None = None


class MessageOutputLengthError(View, frozen=True, kw_only=True):
    """The answer ran into the output limit."""


class MessageAbortedError(View, frozen=True, kw_only=True):
    """Someone stopped it."""

    message: str = ""


class StructuredOutputError(View, frozen=True, kw_only=True):
    """The model never gave the structure it was asked for."""

    message: str = ""
    retries: int = 0


class ContextOverflowError(View, frozen=True, kw_only=True):
    """More was sent than the model can hold."""

    message: str = ""
    response_body: str | None = None


class ContentFilterError(View, frozen=True, kw_only=True):
    """The provider withheld the answer; since the database era."""

    message: str = ""


class BudgetExceededError(View, frozen=True, kw_only=True):
    """Ours: nothing was sent, since as much had been spent as was allowed. Amounts are US dollars."""

    message: str = ""
    scope: str = "run"
    """``run``, ``session`` or ``task``."""
    spent: float = 0
    budget: float = 0


class APIError(View, frozen=True, kw_only=True):
    """The provider said no."""

    message: str = ""
    status_code: int | None = None
    is_retryable: bool = False
    response_headers: dict[str, str] | None = None
    response_body: str | None = None
    metadata: dict[str, str] | None = None


class OtherError(View, frozen=True, kw_only=True):
    """An error from a version newer than this one."""

    name: str
    data: dict[str, Any]

    @property
    def message(self) -> str:
        """What it says of itself."""
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

_NAMED: tuple[type[View], ...] = (
    ProviderAuthError,
    UnknownError,
    MessageOutputLengthError,
    MessageAbortedError,
    StructuredOutputError,
    ContextOverflowError,
    ContentFilterError,
    BudgetExceededError,
    APIError,
)
_KINDS = {kind.__name__: kind for kind in _NAMED} | {"Unknown": UnknownError}


def read_failure(document: Document, path: str = "") -> Failure:
    """The error in ``document``, nested or flat; one of a name not known here as :class:`OtherError`."""
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
    """``{"name": ..., "data": {...}}``."""
    if isinstance(failure, OtherError):
        return {"name": failure.name, "data": failure.data}
    return {"name": type(failure).__name__, "data": document_of(failure)}
