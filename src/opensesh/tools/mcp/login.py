"""Who has logged in where: OpenCode's ``mcp-auth.json``, read and never written.

Logging in, and renewing a login, is OpenCode's part: a renewed token would have to be written back, or the one that
OpenCode holds would be void.
"""

from __future__ import annotations

import logging
import os
import time
from typing import Any

import msgspec
from msgspec import Struct

from ...models.auth import Secret
from ...storage import paths

log = logging.getLogger("opensesh.tools")


class _Tokens(Struct, frozen=True, kw_only=True, rename="camel"):
    access_token: str
    expires_at: float | None = None
    """Seconds since 1970."""


class _Entry(Struct, frozen=True, kw_only=True):
    tokens: _Tokens | None = None
    server_url: str | None = msgspec.field(default=None, name="serverUrl")


class McpLogin(Struct, frozen=True):
    """What is known of a login."""

    token: Secret | None = None
    """To be sent, if there is one that still holds."""
    expired: bool = False


def login(name: str, url: str, *, now: float | None = None) -> McpLogin:
    """The login for the server ``name`` at ``url``; one that was made for another address, or for nobody
    knows which, does not count: a project's configuration may give any address a server's name."""
    entry = _entry(os.path.join(paths.data(), "mcp-auth.json"), name)
    if entry is None or entry.tokens is None or entry.server_url != url:
        return McpLogin()
    until = entry.tokens.expires_at
    if until is not None and until <= (time.time() if now is None else now):
        return McpLogin(expired=True)
    return McpLogin(Secret(entry.tokens.access_token))


def _entry(path: str, name: str) -> _Entry | None:
    try:
        with open(path, "rb") as file:
            found = msgspec.json.decode(file.read(), type=dict[str, Any]).get(name)
        return None if found is None else msgspec.convert(found, _Entry)
    except FileNotFoundError:
        return None
    except (OSError, msgspec.MsgspecError) as error:
        log.warning("%s cannot be used: %s", path, error)
        return None
