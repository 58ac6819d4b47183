"""Responses: JSON, errors in the forms that OpenCode's clients read, answers of the history, and files of sessions."""

from __future__ import annotations

import logging
import re
import secrets
from hashlib import blake2b
from typing import TYPE_CHECKING, Annotated, Any
from urllib.parse import quote

import msgspec
from starlette.responses import Response

from .. import errors
from ..history.rendering.pictures import data_url_content, picture_type
from ..history.transcript import FileBlock, ToolBlock, part_block
from ..records import dumps_compact
from ..redaction import Redactor, known_secrets

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..history.library import Library
    from ..records import Document
    from .operations import Call

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
_FILE_HEADERS = {
    "content-security-policy": "sandbox; default-src 'none'",
    "x-content-type-options": "nosniff",
    "cross-origin-resource-policy": "same-origin",
    "cache-control": "private, no-store",
}
_UNSAFE_IN_NAMES = re.compile(r"[^\w .()+=@,-]")


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


async def history_answer(call: Call, read: Callable[[Library], Document]) -> Response:
    """Return the document that ``read`` makes, with an ``ETag``."""
    return answer_with_etag(call, await call.state.read_history(read))


def answer_with_etag(call: Call, document: Document) -> Response:
    """Return a document, or 304 if the client has it already."""
    content = dumps_compact(document)
    etag = f'"{blake2b(content, digest_size=12).hexdigest()}"'
    headers = {"etag": etag, "cache-control": "private, no-cache"}
    if etag in call.request.headers.get("if-none-match", ""):
        return Response(status_code=304, headers=headers)
    return Response(content, headers=headers | {"content-type": "application/json"})


async def call_redactor(call: Call) -> Redactor:
    """Return a redactor that knows the secrets of this machine and of the directory of the request."""
    async with call.engine() as engine:
        return Redactor(known_secrets(engine.config.document))


class AttachmentQuery(msgspec.Struct, frozen=True):
    """The number of a file among those that a tool returned; absent for the file of a file part."""

    attachment: Annotated[int, msgspec.Meta(ge=0)] | None = None


def attachment_response(part: Document, attachment: int | None) -> Response:
    """Return the file that is in a part: its own, or one of those that a tool returned."""
    block = part_block(part)
    if isinstance(block, ToolBlock) and attachment is not None and attachment < len(block.attachments):
        block = block.attachments[attachment]
    content = data_url_content(block.url) if isinstance(block, FileBlock) else None
    if not isinstance(block, FileBlock) or content is None:
        raise errors.NotFoundError("this part holds no file", part=str(part.get("id")))
    if kind := picture_type(content):
        return Response(content, headers=_FILE_HEADERS | {"content-type": kind})
    last_element = re.split(r"[/\\]", block.name)[-1]
    name = _UNSAFE_IN_NAMES.sub("_", last_element).strip(" .")[:120] or "file"
    disposition = f"attachment; filename*=UTF-8''{quote(name, safe='')}"
    headers = {"content-type": "application/octet-stream", "content-disposition": disposition}
    return Response(content, headers=_FILE_HEADERS | headers)
