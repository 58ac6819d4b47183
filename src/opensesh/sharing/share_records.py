"""What was shared from this machine, noted apart from the sessions: by whom else could it be taken back?

Whoever removes a session, or its ``session_share`` record, removes the only secret that ends the share. A note here
outlives both. It also says what ``session_share``, which is OpenCode's, has no room for: the server, and the terms.
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
    """A share that stands."""

    session: str
    id: str
    secret: str
    url: str
    server: str
    """The base of its address."""
    store: str = ""
    """The store that the session is in."""
    redact: bool = True
    unsent: bool = False
    """Whether the session knows more than the server was told."""

    @property
    def share(self) -> Share:
        """As OpenCode stores it."""
        return view({"id": self.id, "url": self.url, "secret": self.secret}, Share)


def note(standing: ShareRecord, *, durable: bool = True) -> None:
    """Remember a share, in place of what was known of it."""
    Disk(durable=durable).replace(_file(standing.session), msgspec.json.encode(standing))


def find(session_id: str) -> ShareRecord | None:
    """The share of a session; ``None`` if nothing that can be read is known of one."""
    try:
        return msgspec.json.decode(read_file(_file(session_id)), type=ShareRecord)
    except (OSError, msgspec.MsgspecError):
        return None


def standing() -> Iterator[ShareRecord]:
    """All that is known, by session."""
    try:
        names = sorted(os.listdir(_folder()))
    except FileNotFoundError:
        return
    for name in names:
        found = find(name.removesuffix(".json")) if name.endswith(".json") and name[0] != "." else None
        if found is not None:
            yield found


def mark(session_id: str, *, unsent: bool) -> None:
    """Say whether there is more to send. This need not survive a power cut: what is sent twice harms nobody."""
    found = find(session_id)
    if found is not None and found.unsent != unsent:
        note(msgspec.structs.replace(found, unsent=unsent), durable=False)


def forget(session_id: str) -> None:
    """The share is no more."""
    Disk().remove(_file(session_id))


def _folder() -> str:
    return os.path.join(paths.state(), "shares")


def _file(session_id: str) -> str:
    return os.path.join(_folder(), *check_key((session_id,))) + ".json"
