"""The server itself: health, documentation, logs, and what opensesh does not have."""

from __future__ import annotations

import logging
from typing import Any, Literal

from msgspec import Struct

from ... import __version__
from ...records import dumps_compact
from ..operations import Call, Routes

routes = Routes()
log = logging.getLogger("opensesh.client")
_LEVELS = {"debug": logging.DEBUG, "info": logging.INFO, "warn": logging.WARNING, "error": logging.ERROR}


class Health(Struct, frozen=True):
    """The state of the server, and its version."""

    healthy: bool
    version: str


class LogEntry(Struct, frozen=True):
    """A log entry of a client."""

    service: str
    level: Literal["debug", "info", "error", "warn"]
    message: str
    extra: dict[str, Any] | None = None


@routes.get("/global/health", "global.health", response=Health)
async def health(call: Call) -> object:
    """Check that the server answers."""
    return {"healthy": True, "version": f"opensesh-{__version__}"}


@routes.get("/doc", "doc", response=dict[str, Any])
async def documentation(call: Call) -> object:
    """Get this document: the operations of the API in OpenAPI's format."""
    from ..openapi import document

    return document()


@routes.post("/log", "app.log", response=bool, errors=(400,))
async def write_log(call: Call, body: LogEntry) -> object:
    """Write an entry to the log of the server."""
    extra = f" {dumps_compact(body.extra).decode()}" if body.extra else ""
    log.log(_LEVELS[body.level], "%s: %s%s", body.service, body.message, extra)
    return True


@routes.get("/lsp", "lsp.status", response=list[dict[str, Any]])
async def lsp_status(call: Call) -> object:
    """List the language servers; opensesh starts none."""
    return []


@routes.get("/formatter", "formatter.status", response=list[dict[str, Any]])
async def formatter_status(call: Call) -> object:
    """List the formatters; opensesh runs none."""
    return []
