"""The server that ``--attach URL`` names: how to connect to it, and what its answers mean."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import httpx2

from ..errors import BusyError, NotFoundError, OpenseshError, ReadOnlyStoreError, UsageError
from ..records import as_object, loads

if TYPE_CHECKING:
    from ..records import Document

_ERRORS: dict[str, type[OpenseshError]] = {"SessionBusyError": BusyError, "ReadOnlyStoreError": ReadOnlyStoreError}
"""By the name of the server's error."""
_ERRORS_BY_STATUS: dict[int, type[OpenseshError]] = {400: UsageError, 404: NotFoundError}


def client_options(url: str, directory: str) -> Document:
    """Return the options of an HTTP client for requests about a directory, with the password of the environment."""
    password = os.environ.get("OPENCODE_SERVER_PASSWORD")
    user = os.environ.get("OPENCODE_SERVER_USERNAME") or "opencode"
    return {
        "base_url": url.rstrip("/"),
        "auth": (user, password) if password else None,
        "headers": {"x-opencode-directory": directory},
        "timeout": httpx2.Timeout(30, read=None),  # a compaction or a prompt may take any time
    }


def answer_of(response: httpx2.Response, url: str) -> Any:
    """Return the JSON of an answer. A failure raises the error that the command would raise without a server."""
    try:
        value = loads(response.content) if response.content else None
    except OpenseshError:
        value = None
    if response.status_code < 400:
        return value
    error = as_object(value) or {}
    message = (as_object(error.get("data")) or {}).get("message") or response.text[:200]
    if response.status_code == 401:
        message = "the password is missing or wrong; set OPENCODE_SERVER_PASSWORD"
    kind = _ERRORS.get(str(error.get("name"))) or _ERRORS_BY_STATUS.get(response.status_code, OpenseshError)
    raise kind(f"{url} answered {response.status_code}: {message}")
