"""Shares that must be revoked on a server although their session is removed, until that is done.

Each file is about one share, not one session: copies of a session in two stores may each be shared, and each share
has a secret of its own, which may be stored nowhere else.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from ..errors import RecordError
from ..records import codec, object_at, view
from ..records.session import Share
from . import paths
from .disk import Disk, names_in, read_file
from .keys import check_key
from .protocol import Damage, ignore_damage, log_damage, store_ids

if TYPE_CHECKING:
    from collections.abc import Iterator

    from .protocol import Report, Store

_OURS = "opensesh"


def note(session_id: str, share: Share, *, store: str = "", why: str = "") -> None:
    """Record that a share must be revoked: the store of its session, and why: ``removed`` or ``unshared``."""
    from hashlib import sha256  # most commands remove no share

    ours = {name: text for name, text in (("store", store), ("why", why)) if text}
    document = {name: value for name, value in share.document.items() if name != _OURS}
    identity = "\n".join((*_identity(share), share.secret)).encode("utf-8", "surrogatepass")
    path = os.path.join(_folder(), *check_key((session_id,))) + f".{sha256(identity).hexdigest()[:12]}.json"
    Disk().replace(path, codec.dumps(document | {_OURS: ours} if ours else document))


def store_of(share: Share) -> str:
    """Return the store that a recorded share was made in; empty if it is not known."""
    return _noted(share, "store")


def reason_of(share: Share) -> str:
    """Return ``removed`` or ``unshared``; empty if it is not known."""
    return _noted(share, "why")


def waiting(store: Store | None = None, *, report: Report = log_damage) -> Iterator[tuple[str, Share]]:
    """Iterate over the shares that must still be revoked, with their sessions: of one store, or of all.

    A share whose store is unknown or gone belongs to every store. A file that cannot be read is reported and stays.
    """
    for _, session_id, share in _files(report):
        made_in = store_of(share)
        if store is None or not os.path.exists(made_in) or os.path.realpath(made_in) in store_ids(store):
            yield session_id, share


def of(session_id: str) -> list[Share]:
    """Return the shares of a session that must still be revoked, as far as their files can be read."""
    return [share for _, _, share in _files(ignore_damage, session_id)]


def is_waiting(session_id: str, share: Share) -> bool:
    """Return whether a share must still be revoked."""
    return any(_identity(other) == _identity(share) for other in of(session_id))


def done(session_id: str, share: Share) -> None:
    """Forget a share, which the server has revoked."""
    for path, _, other in _files(ignore_damage, session_id):
        if _identity(other) == _identity(share):
            Disk().remove(path)


def _files(report: Report, session_id: str | None = None) -> Iterator[tuple[str, str, Share]]:
    """Iterate over the files with their session and share, all of them or those of one session."""
    prefix = "" if session_id is None else f"{check_key((session_id,))[0]}."
    for name in names_in(_folder()):
        if name.endswith(".json") and name.startswith(prefix) and name[0] != ".":
            path = os.path.join(_folder(), name)
            try:
                share = view(codec.loads_object(read_file(path), path), Share, path)
            except FileNotFoundError:
                continue  # done meanwhile, by another process
            except OSError as error:
                report(Damage(path, f"cannot be read: {error.strerror or error}"))
            except RecordError as error:
                report(Damage(path, error.reason))
            else:
                yield path, name.partition(".")[0], share


def _noted(share: Share, name: str) -> str:
    return str(object_at(share.document, _OURS).get(name, ""))


def _folder() -> str:
    return os.path.join(paths.state(), "unshare")


def _identity(share: Share) -> tuple[str, str]:
    """Return what identifies a share: an id alone may be used twice, by servers that name shares after sessions."""
    return share.id or "", share.url
