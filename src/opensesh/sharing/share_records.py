"""Records of the shares made on this machine, stored outside of the sessions.

Removing a session, or its ``session_share`` record, removes the only secret that can end the share; a record here
survives both. It also holds what OpenCode's ``session_share`` has no field for: the server, and whether to redact.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import msgspec
from msgspec import Struct

from ..records import Share, view
from ..storage import paths
from ..storage.disk import Disk, read_file
from ..storage.keys import check_key

if TYPE_CHECKING:
    from collections.abc import Iterator


class ShareRecord(Struct, frozen=True, kw_only=True):
    """A share that exists on a server."""

    session: str
    id: str
    secret: str
    url: str
    server: str
    """The base URL of the server."""
    store: str = ""
    """The store that holds the session."""
    redact: bool = True
    unsent: bool = False
    """Whether the session may have changes that the server does not have."""

    @property
    def share(self) -> Share:
        """The share in the form that OpenCode stores."""
        return view({"id": self.id, "url": self.url, "secret": self.secret}, Share)


def save(record: ShareRecord, *, durable: bool = True) -> None:
    """Store the record of a share, replacing an earlier one of the same session."""
    Disk(durable=durable).replace(_path(record.session), msgspec.json.encode(record))


def find(session_id: str) -> ShareRecord | None:
    """Return the record of a session's share; ``None`` without a readable one."""
    try:
        return msgspec.json.decode(read_file(_path(session_id)), type=ShareRecord)
    except (OSError, msgspec.MsgspecError):
        return None


def find_share(session_id: str, share: Share) -> ShareRecord | None:
    """Return the record of this share of a session; ``None`` if it has none, or the session has another share."""
    record = find(session_id)
    return record if record is not None and record.id == share.id else None


def list_all() -> Iterator[ShareRecord]:
    """Yield every readable record, in order of session ids."""
    try:
        names = sorted(os.listdir(_folder()))
    except FileNotFoundError:
        return
    for name in names:
        record = find(name.removesuffix(".json")) if name.endswith(".json") and name[0] != "." else None
        if record is not None:
            yield record


def mark(session_id: str, *, unsent: bool) -> None:
    """Set whether there are unsent changes. Not synced to disk: sending something twice does no harm."""
    record = find(session_id)
    if record is not None and record.unsent != unsent:
        save(msgspec.structs.replace(record, unsent=unsent), durable=False)


def delete(session_id: str) -> None:
    """Delete the record of a share that has ended."""
    Disk().remove(_path(session_id))


def _folder() -> str:
    return os.path.join(paths.state(), "shares")


def _path(session_id: str) -> str:
    return os.path.join(_folder(), *check_key((session_id,))) + ".json"
