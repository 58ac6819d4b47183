"""Shares whose session is gone but which still stand on a server: noted here until they are taken back.

A note is of one share, not of one session: copies of a session in two stores may each be shared, and each share has a
secret of its own, which the note may be the only place to hold.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from ..errors import RecordError
from ..records import as_object, codec, view
from ..records.session import Share
from . import paths
from .disk import Disk, read_file
from .keys import check_key
from .protocol import Damage, log_damage, store_ids

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from .protocol import Store

_OURS = "opensesh"


def note(session_id: str, share: Share, *, store: str = "", why: str = "") -> None:
    """Remember that this share is to be revoked: in which store it was made, and whether its session was ``removed``
    or it was to be ``unshared``, if that is known."""
    ours = {name: text for name, text in (("store", store), ("why", why)) if text}
    document = {name: value for name, value in share.document.items() if name != _OURS}
    Disk().replace(_file(session_id, share), codec.dumps(document | {_OURS: ours} if ours else document))


def store_of(share: Share) -> str:
    """The store that a share that waits was made in; empty if nobody noted it."""
    return _noted(share, "store")


def reason_of(share: Share) -> str:
    """``removed`` or ``unshared``; empty if nobody noted why it waits."""
    return _noted(share, "why")


def waiting(
    store: Store | None = None, *, report: Callable[[Damage], None] = log_damage
) -> Iterator[tuple[str, Share]]:
    """The shares that are still to be revoked, by session: of one store, or of all. Where nobody noted the store, or
    it is there no more, a share is a matter of every store. A note that cannot be read is reported and stays."""
    for _, session_id, share in _every(report):
        if store is None or _concerns(share, store):
            yield session_id, share


def of(session_id: str) -> list[Share]:
    """The shares of this session that are still to be revoked, as far as their notes can be read."""
    return [share for _, _, share in _every(_unheard, session_id)]


def is_waiting(session_id: str, share: Share) -> bool:
    """Whether this share is still to be revoked."""
    return any(_place(each) == _place(share) for each in of(session_id))


def done(session_id: str, share: Share) -> None:
    """The server has taken this share down, by whichever secret."""
    for path, _, each in _every(_unheard, session_id):
        if _place(each) == _place(share):
            Disk().remove(path)


def _every(report: Callable[[Damage], None], session_id: str | None = None) -> Iterator[tuple[str, str, Share]]:
    """The file, session and share of every note, or of those about one session."""
    wanted = "" if session_id is None else f"{check_key((session_id,))[0]}."
    try:
        names = sorted(os.listdir(_folder()))
    except FileNotFoundError:
        return
    for name in names:
        if name.endswith(".json") and name.startswith(wanted) and name[0] != ".":
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


def _unheard(damage: Damage) -> None:
    """For who looks for one share, and can do nothing about the others."""


def _concerns(share: Share, store: Store) -> bool:
    made_in = store_of(share)
    return not os.path.exists(made_in) or os.path.realpath(made_in) in store_ids(store)


def _noted(share: Share, name: str) -> str:
    return str((as_object(share.document.get(_OURS)) or {}).get(name, ""))


def _folder() -> str:
    return os.path.join(paths.state(), "unshare")


def _file(session_id: str, share: Share) -> str:
    from hashlib import sha256

    mark = sha256("\n".join((*_place(share), share.secret)).encode("utf-8", "surrogatepass")).hexdigest()[:12]
    return os.path.join(_folder(), *check_key((session_id,))) + f".{mark}.json"


def _place(share: Share) -> tuple[str, str]:
    """What makes a share this one: servers that name shares after sessions give one name twice."""
    return share.id or "", share.url
