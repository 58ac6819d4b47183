from __future__ import annotations

import time
from typing import TYPE_CHECKING

from opensesh import events
from opensesh.sessions.foreign_changes import publish_foreign_changes
from opensesh.storage.json_tree.store import JsonTree
from opensesh.storage.merged import MergedStore
from opensesh.storage.opencode_db.store import OpencodeDB

from .storage.opencode_databases import PROJECT, empty_database, new_message, new_session, new_text

if TYPE_CHECKING:
    from pathlib import Path


def test_what_another_program_stores_is_published(tmp_path: Path) -> None:
    path = empty_database(tmp_path)
    published: list[events.Event] = []
    with OpencodeDB(path) as database, OpencodeDB(path) as other:
        store = MergedStore(str(tmp_path), [database, JsonTree(tmp_path / "storage")])
        stop = publish_foreign_changes(store, published.append)
        other.write(("session", PROJECT, "ses_1"), new_session())
        with other.batch() as batch:
            batch.write(("message", "ses_1", "msg_1"), new_message())
            batch.write(("part", "msg_1", "prt_1"), new_text())
        deadline = time.monotonic() + 60
        while not any(isinstance(event, events.PartUpdated) for event in published):
            assert time.monotonic() < deadline
            time.sleep(0.01)
        stop()
    assert {event.type for event in published} == {"session.updated", "message.updated", "message.part.updated"}
