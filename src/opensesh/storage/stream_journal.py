"""Journals of text that is being streamed, beside a store.

Storing a part again for every piece of text that a model sends would write the square of its length. The text is
therefore appended to a journal a few times a second, and the part is stored whole when it ends. A reader of the
messages of the session meanwhile, in any process of this host, sees the part with the text of its journal. If the
process dies, the next runner of the session stores that text.

A journal is a raw deflate stream in ``<state>/streams/<store>/<session>/<part>``, flushed with each append, so that it
can be read at any time and up to any point at which a write was interrupted. Appends are not synced: they survive the
death of the process, and a power cut only if the operating system had time to write them.
"""

from __future__ import annotations

import os
import threading
import zlib
from typing import TYPE_CHECKING

from ..records import object_at
from . import paths
from .disk import Disk, names_in, read_file
from .keys import check_key
from .protocol import CompositeStore, StoredMessage, StreamJournalProvider

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..records import Document
    from .protocol import Key, Store

ENCODING = ("utf-8", "surrogatepass")
_MAX_TEXT_BYTES = 1 << 28


class StreamJournals:
    """The journals of one store."""

    def __init__(self, store: Store) -> None:
        self.folder = os.path.join(_root(), paths.digest(store.id))

    def begin(self, session_id: str, part_id: str) -> StreamJournal:
        """Create the journal of a part."""
        return StreamJournal(os.path.join(self.folder, *check_key((session_id, part_id))))

    def texts(self, session_id: str) -> dict[str, str]:
        """Return the text of every journal of a session, by the id of the part."""
        folder = os.path.join(self.folder, *check_key((session_id,)))
        return {name: _read_text(os.path.join(folder, name)) for name in names_in(folder)}

    def remove(self, session_id: str) -> None:
        """Remove the journals of a session."""
        folder = os.path.join(self.folder, *check_key((session_id,)))
        for name in names_in(folder):
            _remove(os.path.join(folder, name))


class StreamJournal:
    """The journal of one part, which the runner of the session writes."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._flush_mode = zlib.Z_SYNC_FLUSH
        # Half the memory of the defaults; text is compressed as well.
        self._deflate = zlib.compressobj(6, zlib.DEFLATED, -zlib.MAX_WBITS, 5)
        self._disk = Disk(durable=False)
        self._lock = threading.Lock()
        self._descriptor = self._disk.create(path)

    def append(self, data: bytes) -> None:
        """Add text, encoded with :data:`ENCODING`. After a failed write, which leaves a gap, or the removal of the
        journal, this does nothing."""
        with self._lock:
            if self._descriptor >= 0:
                try:
                    compressed = self._deflate.compress(data) + self._deflate.flush(self._flush_mode)
                    self._disk.write(self._descriptor, compressed)
                except OSError:
                    self._close()
                    raise

    def remove(self) -> None:
        """Close and remove the journal: its text is stored, or is not wanted any more."""
        with self._lock:
            self._close()
            _remove(self._path)

    def _close(self) -> None:
        if self._descriptor >= 0:
            descriptor, self._descriptor = self._descriptor, -1
            os.close(descriptor)


def journals_of(store: Store, key: Key) -> StreamJournals | None:
    """Return the journals beside the store that a record is written to, if that store's readers look at them."""
    member = store.store_for_write(key) if isinstance(store, CompositeStore) else store
    return member.stream_journals() if isinstance(member, StreamJournalProvider) else None


def with_streamed_text(store: Store, session_id: str, messages: Sequence[StoredMessage]) -> Sequence[StoredMessage]:
    """Return the messages of a session with the text of its journals in parts that are not complete."""
    if not os.path.isdir(_root()):  # no session is being streamed: the usual case
        return messages
    texts = StreamJournals(store).texts(session_id)
    if not texts:
        return messages
    return [
        StoredMessage(message.info, [streamed_part(part, texts) or part for part in message.parts])
        for message in messages
    ]


def streamed_part(part: Document, texts: dict[str, str]) -> Document | None:
    """Return a part with the text of its journal; ``None`` if it is complete, or the journal has no more text."""
    text, stored = texts.get(str(part.get("id")), ""), part.get("text")
    is_complete = "end" in object_at(part, "time")
    if is_complete or not isinstance(stored, str) or len(text) <= len(stored) or not text.startswith(stored):
        return None
    return part | {"text": text}


def _root() -> str:
    return os.path.join(paths.state(), "streams")


def _read_text(path: str) -> str:
    """Return the text of a journal up to the last whole character; empty if it cannot be read."""
    inflate = zlib.decompressobj(-zlib.MAX_WBITS)
    try:
        data = inflate.decompress(read_file(path), _MAX_TEXT_BYTES)
    except (OSError, zlib.error):
        return ""
    for end in range(len(data), max(len(data) - 4, -1), -1):
        try:
            return data[:end].decode(*ENCODING)
        except UnicodeDecodeError:
            continue
    return ""


def _remove(path: str) -> None:
    """Remove a journal, and the folders above it that are now empty: a reader then has nothing to look at."""
    disk = Disk(durable=False)
    disk.discard(path)
    folder = path
    for _ in range(3):
        folder = os.path.dirname(folder)
        disk.remove_empty(folder)
