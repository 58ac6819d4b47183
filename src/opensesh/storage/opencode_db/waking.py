"""Making an OpenCode server announce what was written into its database.

No server notices the writes of another process, so its clients show an old state. A server that is asked to set the
title that a session has anyway, or to store a part as it is, tells its clients what is in the database now. That is
done for the server that the user names, after a write and never inside a transaction.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from base64 import b64encode
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlsplit

from ...errors import OpenseshError, StoreError
from ...records.codec import dumps_compact

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from ...records import Document

    Announced = tuple[Document, Document | None]
    """A session, and the last finished part of its newest answer if there is one."""

_SETTLE_SECONDS = 0.2
"""How long nothing must have been written to a session before it is announced."""
_AT_LEAST_EVERY_SECONDS = 2.0
"""How often a session is announced that is written to all the time."""
_TIMEOUT_SECONDS = 2.0

_log = logging.getLogger("opensesh.storage")


class ClientWaker:
    """Announces changed sessions to one server, from a thread that ends when there is nothing to announce."""

    def __init__(self, address: str, read: Callable[[str], Announced | None]) -> None:
        self._address = urlsplit(address.rstrip("/"))
        if self._address.scheme not in ("http", "https") or not self._address.hostname:
            raise StoreError(f"{address} is not the address of a server, such as http://127.0.0.1:4096")
        self._read = read
        self._lock = threading.Lock()
        self._changed: dict[str, tuple[float, float]] = {}
        """The times of the first and of the last change of each session that is to be announced."""
        self._thread: threading.Thread | None = None
        self._is_closing = threading.Event()
        self._has_failed = False

    def close(self) -> None:
        """Announce what is to be announced now, and return when that is done."""
        self._is_closing.set()
        with self._lock:
            thread = self._thread
        if thread is not None and thread is not threading.current_thread():
            thread.join()

    def note(self, sessions: Iterable[str]) -> None:
        """Announce these sessions soon."""
        now = time.monotonic()
        with self._lock:
            for session in sessions:
                self._changed[session] = self._changed.get(session, (now,))[0], now
            if self._changed and self._thread is None and not self._has_failed:
                # Not a daemon: a short command must not end before it has announced what it did.
                self._thread = threading.Thread(target=self._announce_all, name="opensesh-wake", daemon=False)
                self._thread.start()

    def _announce_all(self) -> None:
        while True:
            is_closing = self._is_closing.wait(_SETTLE_SECONDS)
            now = time.monotonic()
            with self._lock:
                due = [
                    session
                    for session, (first, last) in self._changed.items()
                    if is_closing or now - last >= _SETTLE_SECONDS or now - first >= _AT_LEAST_EVERY_SECONDS
                ]
                for session in due:
                    del self._changed[session]
            for session in due:
                self._announce(session)
            with self._lock:
                if not self._changed or self._has_failed:
                    self._thread = None
                    return

    def _announce(self, session_id: str) -> None:
        try:
            announced = self._read(session_id)
            if announced is None:
                return  # removed: no request makes a server tell that
            session, part = announced
            self._patch(session, f"/session/{session_id}", {"title": session["title"]})
            if part is not None:
                path = f"/session/{session_id}/message/{part['messageID']}/part/{part['id']}"
                self._patch(session, path, part)
        except (OSError, HTTPException, OpenseshError) as error:
            self._has_failed = True  # until this store is opened again
            _log.warning("%s does not announce what was written: %s", self._address.geturl(), error)

    def _patch(self, session: Document, path: str, body: dict[str, Any]) -> None:
        headers = {"content-type": "application/json", "x-opencode-directory": quote(str(session.get("directory", "")))}
        password = os.environ.get("OPENCODE_SERVER_PASSWORD")
        if password:
            user = os.environ.get("OPENCODE_SERVER_USERNAME") or "opencode"
            headers["authorization"] = f"Basic {b64encode(f'{user}:{password}'.encode()).decode()}"
        secure = self._address.scheme == "https"
        connect = HTTPSConnection if secure else HTTPConnection
        connection = connect(self._address.hostname or "", self._address.port, timeout=_TIMEOUT_SECONDS)
        try:
            connection.request("PATCH", self._address.path + path, dumps_compact(body), headers)
            answer = connection.getresponse()
            answer.read()
        finally:
            connection.close()
        if answer.status >= 400:
            _log.warning("%s answered %s to PATCH %s", self._address.geturl(), answer.status, path)
