"""Answers from the history: with an ``ETag``, or without secrets."""

from __future__ import annotations

from hashlib import blake2b
from typing import TYPE_CHECKING

from starlette.responses import Response

from ..records import dumps_compact
from ..redaction import Redactor, known_secrets

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..history.library import Library
    from ..records import Document
    from .operations import Call


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
