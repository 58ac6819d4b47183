from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from opensesh.cli import show_command
from opensesh.history.library import Library
from opensesh.history.transcript import TranscriptOptions
from opensesh.storage.opencode_db.store import OpencodeDB
from opensesh.storage.record_ids import session_at

from ..storage.opencode_databases import PROJECT, empty_database, new_answer, new_message, new_session, new_text

if TYPE_CHECKING:
    from pathlib import Path


def test_a_text_that_has_ended_is_printed_before_its_message_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    key = ("session", PROJECT, "ses_1")
    lines: list[str] = []

    def receive(line: str, *, flush: bool) -> None:
        lines.append(line)
        if "ended" in line:
            raise KeyboardInterrupt

    monkeypatch.setattr(show_command, "print", receive, raising=False)
    with OpencodeDB(empty_database(tmp_path)) as store:
        store.write(key, new_session())
        library = Library(store=store)
        session = session_at(key, store.read(key))
        shown = library.transcript(session, TranscriptOptions())
        with store.batch() as batch:
            batch.write(("message", "ses_1", "msg_1"), new_message())
            batch.write(("message", "ses_1", "msg_2"), new_answer())
            text = new_text("msg_2", "prt_2", "this has ended", time={"start": 1, "end": 2})
            batch.write(("part", "msg_2", "prt_2"), text)
        with pytest.raises(KeyboardInterrupt):
            show_command.follow(library, session, TranscriptOptions(), shown, utc=True)
    assert lines[-1].strip() == "this has ended"
