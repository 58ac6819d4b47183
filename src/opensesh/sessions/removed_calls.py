"""The model calls of messages that were removed from a session: what they cost stays spent.

A revert that is made final, a compaction that is undone and a removed message leave one small file a message in the
state folder, ``removed_calls/<store>/<session>/<message>.json``. Statistics, budgets and costs add them to the
session's own. A session that goes to the trash takes them along; when it is deleted for good, they go with it.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from ..errors import RecordError
from ..records import EXTENSION_KEY, as_object, dumps, loads, object_at, side_calls
from ..storage import keys
from ..storage.disk import Disk, read_file
from ..storage.protocol import member_stores, read_or_none
from ..storage.session_state import store_folder

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from ..records import Document
    from ..storage.protocol import Store

_FIELDS = ("id", "role", "time", "agent", "mode", "providerID", "modelID", "cost", "tokens", "finish", EXTENSION_KEY)


def record(store: Store, session_id: str, message_id: str) -> None:
    """Record the model calls of a message that is about to be removed. Doing it again changes nothing."""
    key = keys.message(session_id, message_id)
    for member in member_stores(store):
        info = as_object(read_or_none(member, key))
        if info is None:
            continue
        tokens = object_at(info, "tokens")
        has_usage = info.get("cost") or any(value for value in tokens.values() if not isinstance(value, dict))
        if not (has_usage or side_calls(info)):
            continue
        calls = {name: info[name] for name in _FIELDS if name in info} | {"id": message_id}
        Disk().replace(os.path.join(_folder(member.id, session_id), f"{message_id}.json"), dumps(calls))


def read(store_ids: Iterable[str], session_id: str) -> Iterator[Document]:
    """Yield what is left of the removed messages of a session: their times, model, tokens, cost and side calls."""
    seen: set[str] = set()
    for store_id in store_ids:
        folder = _folder(store_id, session_id)
        try:
            names = sorted(os.listdir(folder))
        except OSError:  # nothing was removed
            continue
        for name in names:
            try:
                info = as_object(loads(read_file(os.path.join(folder, name))))
            except (OSError, RecordError):
                continue
            if info is not None and name not in seen:
                seen.add(name)
                yield info


def _folder(store_id: str, session_id: str) -> str:
    return os.path.join(store_folder("removed_calls", store_id), session_id)
