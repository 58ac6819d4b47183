"""Responses: JSON, and errors in the forms that OpenCode's clients read."""

from __future__ import annotations

import logging
import re
import secrets
from typing import TYPE_CHECKING, Any

from starlette.responses import Response

from .. import errors
from ..records import dumps_compact

if TYPE_CHECKING:
    import msgspec

    from ..records import Document

log = logging.getLogger("opensesh.server")
_STEP = re.compile(r"\.([^.\[\]]+)|\[(\d+|\.\.\.)\]")
_MISSING_FIELD = re.compile(r"missing required field `([^`]+)`")
_STATUSES: tuple[tuple[type[errors.OpenseshError], int, str], ...] = (
    (errors.NotFoundError, 404, "NotFoundError"),
    (errors.ModelNotFoundError, 400, "ProviderModelNotFoundError"),
    (errors.BusyError, 409, "SessionBusyError"),
    (errors.RevertConflictError, 409, "RevertConflictError"),
    (errors.PreviewChangedError, 409, "PreviewChangedError"),
    (errors.ReadOnlyStoreError, 409, "ReadOnlyStoreError"),
    (errors.PermissionRefusedError, 403, "PermissionDeniedError"),
    (errors.ConfigError, 400, "ConfigInvalidError"),
    (errors.InvalidIDError, 400, "BadRequest"),
    (errors.InvalidKeyError, 400, "BadRequest"),
    (errors.UsageError, 400, "BadRequest"),
    (errors.AmbiguousError, 400, "BadRequest"),
    (errors.ShareError, 502, "ShareError"),
)


class RequestError(errors.OpenseshError):
    """A request that is refused, with the status and the name of OpenCode's error."""

    def __init__(self, status: int, name: str, message: str, **data: Any) -> None:
        super().__init__(message, **data)
        self.status = status
        self.name = name


def json_response(value: Any, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    """Return a response with a JSON document, with the content type of OpenCode: without a character set."""
    response = Response(dumps_compact(value), status, headers)
    response.headers["content-type"] = "application/json"
    return response


def empty_response() -> Response:
    """Return OpenCode's response to a prompt that could not be answered: the reason is published as an event."""
    response = Response(b"", 200)
    response.headers["content-type"] = "application/json"
    return response


def error_response(error: Exception) -> Response:
    """Return the response to a failure. One that was not expected is logged; its details are not sent."""
    if isinstance(error, RequestError):
        return _named(error.status, error.name, {"message": error.message, **error.data})
    for kind, status, name in _STATUSES:
        if isinstance(error, kind):
            return _named(status, name, {"message": error.message})
    if isinstance(error, errors.OpenseshError):
        return _named(500, "UnknownError", {"message": error.message})
    reference = f"err_{secrets.token_hex(4)}"
    log.error("a request failed (%s)", reference, exc_info=error)
    return _named(500, "UnknownError", {"message": f"internal error; see the log of the server, {reference}"})


def _named(status: int, name: str, data: Document) -> Response:
    return json_response({"name": name, "data": data}, status)


def validation_response(error: msgspec.ValidationError | errors.RecordError, document: Any) -> Response:
    """Return the response to a request that does not match its declaration: what was sent, and what is wrong."""
    reason, _, position = str(error).partition(" - at `$")
    path: list[str | int] = [
        name or (int(index) if index.isdecimal() else index) for name, index in _STEP.findall(position.rstrip("`"))
    ]
    missing = _MISSING_FIELD.search(reason)
    if missing:
        path.append(missing[1])
    code = "invalid_type" if missing or reason.startswith("Expected") else "invalid_value"
    issue = {"code": code, "path": path, "message": reason.replace("`", "")}
    return json_response({"data": document, "error": [issue], "success": False}, 400)


def malformed_json() -> Response:
    """Return OpenCode's response to a body that is not JSON."""
    response = Response(b"Malformed JSON in request body", 400)
    response.headers["content-type"] = "application/octet-stream"
    return response
