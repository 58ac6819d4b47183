"""Logins to MCP servers, in ``mcp-auth.json`` of OpenCode's data folder: those that OpenCode made and those made here.

A login for another or an unknown address does not count: a project's configuration may give any address a server's
name.
"""

from __future__ import annotations

import logging
import os
import time
from typing import TYPE_CHECKING

import msgspec
from msgspec import Struct

from ...errors import RecordError
from ...records import loads_object
from ...storage import paths
from ...storage.disk import read_file
from ...storage.locks import Locks
from ...storage.login_files import change_entry

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from ...records import Document

log = logging.getLogger("opensesh.tools")


class SavedTokens(Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """The tokens of a login."""

    access_token: str
    refresh_token: str | None = None
    expires_at: float | None = None
    """Seconds since 1970."""
    scope: str | None = None

    @property
    def expired(self) -> bool:
        """Whether the access token has expired."""
        return self.expires_at is not None and self.expires_at <= time.time()

    def __repr__(self) -> str:
        return "SavedTokens(...)"


class SavedClient(Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """A client that an authorization server registered."""

    client_id: str
    client_secret: str | None = None
    client_id_issued_at: float | None = None
    client_secret_expires_at: float | None = None
    """Seconds since 1970; 0 for never."""

    @property
    def expired(self) -> bool:
        """Whether its secret has expired."""
        return bool(self.client_secret_expires_at) and (self.client_secret_expires_at or 0) <= time.time()

    def __repr__(self) -> str:
        return "SavedClient(...)"


class SavedLogin(Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    """The entry of a server. OpenCode also keeps the state of a login that is not finished in it."""

    tokens: SavedTokens | None = None
    client_info: SavedClient | None = None
    server_url: str | None = None


def logins_path() -> str:
    """Return where the logins are kept."""
    return os.path.join(paths.data(), "mcp-auth.json")


def logins_stamp() -> int:
    """Return a number that changes whenever a login does."""
    try:
        return os.stat(logins_path()).st_mtime_ns
    except OSError:
        return 0


def saved_login(name: str, url: str) -> SavedLogin:
    """Return the login to the server ``name`` at ``url``; an empty one if there is none."""
    try:
        entry = loads_object(read_file(logins_path()), logins_path()).get(name)
        login = SavedLogin() if entry is None else msgspec.convert(entry, SavedLogin)
    except FileNotFoundError:
        return SavedLogin()
    except (OSError, RecordError, msgspec.ValidationError) as error:
        log.warning("cannot use the login to the MCP server %s: %s", name, error)
        return SavedLogin()
    return login if login.server_url == url else SavedLogin()


def save_login(name: str, login: SavedLogin) -> None:
    """Keep a login, in place of the one before."""
    document: Document = msgspec.to_builtins(login)
    change_entry(logins_path(), name, lambda _: document)


def remove_login(name: str) -> bool:
    """Forget the login to a server; return whether there was one."""
    removed: list[Document] = []

    def remove(entry: Document | None) -> None:
        removed.extend([entry] if entry is not None else [])

    change_entry(logins_path(), name, remove)
    return bool(removed)


def renewal_lock(name: str) -> AbstractContextManager[None]:
    """Return the lock to hold while tokens are renewed: many servers accept a refresh token only once."""
    return Locks(os.path.join(paths.state(), "locks", "mcp-renewal")).hold(name)
