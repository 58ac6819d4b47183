"""Files that describe the running servers of this user, so that ``opensesh web`` finds the one of a store.

They contain the control token of the server, and only the user can read them. A file that is left over after a crash is
removed when its server does not answer.
"""

from __future__ import annotations

import os
import secrets
import time
from contextlib import suppress
from html import escape
from typing import TYPE_CHECKING

import httpx2
from msgspec import DecodeError, Struct, ValidationError, json

from ...storage import paths
from ...storage.locations import default_place
from .browsers import TICKET_SECONDS

if TYPE_CHECKING:
    from collections.abc import Iterator

_CONNECT_SECONDS = 5.0


class ServerFile(Struct, frozen=True):
    """A running server."""

    url: str
    """On loopback, even if it listens on other addresses too."""
    pid: int
    place: str
    """The place of its store, absolute."""
    token: str
    """The control token."""


def absolute_place(store: str | None) -> str:
    """Return the name of a store's place that does not depend on the current directory."""
    store = store or default_place()
    return store if "://" in store else os.path.realpath(os.path.expanduser(store))


def write_server_file(server: ServerFile) -> str:
    """Write the file of a server and return its path; the server removes it when it ends."""
    folder = _folder()
    os.makedirs(folder, mode=0o700, exist_ok=True)
    path = os.path.join(folder, f"{paths.digest(server.place)}-{server.url.rpartition(':')[2]}.json")
    with suppress(FileNotFoundError):
        os.unlink(path)  # of an earlier server on this port
    _write_private(path, json.encode(server))
    return path


def write_redirect(address: str) -> str:
    """Write a page that leads to an address with a ticket, and return its path. Earlier ones are removed."""
    folder = _folder()
    for name in os.listdir(folder):
        path = os.path.join(folder, name)
        with suppress(OSError):
            if name.endswith(".html") and os.stat(path).st_mtime < time.time() - TICKET_SECONDS:
                os.unlink(path)
    path = os.path.join(folder, f"enter-{secrets.token_hex(8)}.html")
    page = f'<!doctype html><meta charset="utf-8"><meta http-equiv="refresh" content="0; url={escape(address)}">'
    _write_private(path, page.encode())
    return path


def _write_private(path: str, content: bytes) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(content)


def request_ticket(store: str | None) -> tuple[str, str] | None:
    """Return the address of a running server of a store, and a ticket for it; ``None`` if no server runs."""
    for path, server in _server_files(absolute_place(store)):
        try:
            response = httpx2.post(
                f"{server.url}/ui/tickets",
                headers={"authorization": f"Bearer {server.token}"},
                timeout=_CONNECT_SECONDS,
                trust_env=False,
            )
            if response.status_code == 200:
                return server.url, response.json()["ticket"]
        except httpx2.TimeoutException:
            continue  # it exists, but is busy or stopped
        except httpx2.HTTPError:
            pass
        with suppress(OSError):
            os.unlink(path)
    return None


def _server_files(store: str) -> Iterator[tuple[str, ServerFile]]:
    prefix = paths.digest(store) + "-"
    try:
        names = sorted(name for name in os.listdir(_folder()) if name.startswith(prefix) and name.endswith(".json"))
    except OSError:
        return
    for name in names:
        path = os.path.join(_folder(), name)
        with suppress(OSError, DecodeError, ValidationError), open(path, "rb") as file:
            yield path, json.decode(file.read(), type=ServerFile)


def _folder() -> str:
    return os.path.join(paths.state(), "servers")
