"""Shares whose session is gone but which still stand on a server: noted here until they are taken back."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from ..errors import RecordError
from ..records import codec, view
from ..records.session import Share
from . import paths
from .disk import Disk
from .json_tree import read_file
from .keys import check_key
from .store import Damage, log_damage

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


def note(session_id: str, share: Share) -> None:
    """Remember that this share is to be revoked."""
    Disk().replace(_file(session_id), codec.dumps(share.document))


def waiting(*, report: Callable[[Damage], None] = log_damage) -> Iterator[tuple[str, Share]]:
    """The shares that are still to be revoked, by session. A note that cannot be read is reported and stays."""
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


def _folder() -> str:
    return os.path.join(paths.state(), "unshare")


def _file(session_id: str) -> str:
    return os.path.join(_folder(), *check_key((session_id,))) + ".json"
