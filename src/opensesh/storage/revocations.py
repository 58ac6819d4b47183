"""Shares whose session is gone but which still stand on a server: noted here until they are taken back."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from ..errors import RecordError
from ..records import as_object, codec, view
from ..records.session import Share
from . import paths
from .disk import Disk
from .json_tree import read_file
from .keys import check_key
from .store import Damage, log_damage
from .union import places

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from .store import Store

_OURS = "opensesh"


def note(session_id: str, share: Share, *, store: str = "", why: str = "") -> None:
    """Remember that this share is to be revoked: in which store it was made, and whether its session was ``removed``
    or it was to be ``unshared``, if that is known."""
    ours = {name: text for name, text in (("store", store), ("why", why)) if text}
    document = {name: value for name, value in share.document.items() if name != _OURS}
    Disk().replace(_file(session_id), codec.dumps(document | {_OURS: ours} if ours else document))


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
    for session_id, share in _every(report):
        if store is None or _concerns(share, store):
            yield session_id, share


def _every(report: Callable[[Damage], None]) -> Iterator[tuple[str, Share]]:
    try:
        names = sorted(os.listdir(_folder()))
    except FileNotFoundError:
        return
    for name in names:
        if name.endswith(".json") and name[0] != ".":
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
                yield name.removesuffix(".json"), share


def find(session_id: str) -> Share | None:
    """The share of this session that is still to be revoked, if there is one that can be read."""
    path = _file(session_id)
    try:
        return view(codec.loads_object(read_file(path), path), Share, path)
    except (OSError, RecordError):
        return None


def done(session_id: str) -> None:
    """The server has taken the share down."""
    Disk().remove(_file(session_id))


def _concerns(share: Share, store: Store) -> bool:
    made_in = store_of(share)
    return not os.path.exists(made_in) or os.path.realpath(made_in) in places(store)


def _noted(share: Share, name: str) -> str:
    return str((as_object(share.document.get(_OURS)) or {}).get(name, ""))


def _folder() -> str:
    return os.path.join(paths.state(), "unshare")


def _file(session_id: str) -> str:
    return os.path.join(_folder(), *check_key((session_id,))) + ".json"
