"""Sessions on their way out: read one after the other, cleaned if asked, given a form, and put where they belong.

However many there are, no more than one message is held at a time (a few hundred of a small session, which is faster).
What cannot be read is left out, and told.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...errors import NotFound, RecordError
from ...records import as_object
from ...storage.store import Damage, StoredMessage, log_damage
from ..formats import Exported, Format, Options, find_format
from ..selection import Selected, Selection, select
from .reading import conversation

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from ...records import Document
    from ...storage.store import Store
    from .redaction import Redactor

    Report = Callable[[Damage], None]
    Watch = Callable[[Exported, Document, list[Document]], None]


class Export:
    """What is to be exported, and how."""

    def __init__(
        self,
        store: Store,
        selection: Selection,
        form: str = "jsonl",
        options: Options | None = None,
        *,
        redactor: Redactor | None = None,
        report: Report = log_damage,
    ) -> None:
        self.store = store
        self.form = form
        self.format: Format = find_format(form, options)
        self._redactor = redactor
        self._report = report
        chosen, self.without = select(store, selection, report=report)
        self._nested = _nested(chosen) if self.format.nests else {}
        inside = {child.id for children in self._nested.values() for child in children}
        self.chosen = [each for each in chosen if each.id not in inside]
        """The sessions that get a line, a file or a page of their own."""
        self.inside = len(chosen) - len(self.chosen)
        """How many subagents' sessions are within those."""

    def pieces(self, chosen: Selected, before: bytes = b"") -> Iterator[bytes]:
        """One of them, a piece at a time, with ``before`` in front of it; nothing if it is gone."""
        session = self.read(chosen)
        for piece in self.format.pieces(session) if session is not None else ():
            yield before + piece
            before = b""

    def version(self, chosen: Selected) -> int:
        """A number that becomes another when the session, or one that appears inside of it, changes, comes or goes."""
        return chosen.updated + sum(map(self.version, self._nested.get(chosen.id, ())))

    @property
    def frame(self) -> tuple[bytes, bytes, bytes]:
        """What stands before, between and after the sessions in one file; nothing around a single one."""
        return (self.format.together or (b"", b"", b"")) if len(self.chosen) != 1 else (b"", b"", b"")

    def read(self, chosen: Selected, watch: Watch | None = None) -> Exported | None:
        """A session, cleaned if that was asked for; ``None`` if it is gone or cannot be read any more.

        ``watch`` sees each message go by.
        """
        try:
            info = as_object(self.store.read(chosen.key))
        except NotFound:
            return None
        except RecordError as error:
            self._report(Damage(error.path, error.reason))
            return None
        if info is None:
            return None
        if self._redactor is not None:
            info = self._redactor.document(info)
        children = (self.read(child) for child in self._nested.get(chosen.id, ()))
        session = Exported(chosen.id, chosen.key[1], info, (), (child for child in children if child is not None))
        return session._replace(messages=self._messages(session, watch))

    def _messages(self, session: Exported, watch: Watch | None) -> Iterator[StoredMessage]:
        reads = self.format.reads
        for message in conversation(self.store, session.id, report=self._report):
            cleaned = message
            if self._redactor is not None:
                wanted = [part for part in message.parts if reads is None or str(part.get("type")) in reads]
                parts = [self._redactor.document(part) for part in wanted]
                cleaned = StoredMessage(self._redactor.document(message.info), parts)
            if watch is not None:
                watch(session, cleaned.info, cleaned.parts)
            yield cleaned


def _nested(chosen: list[Selected]) -> dict[str, list[Selected]]:
    """Children by parent, where the parent goes out as well; never in a circle."""
    parents = {each.id: each.parent for each in chosen}
    found: dict[str, list[Selected]] = {}
    for each in chosen:
        if each.parent in parents and not _leads_back(each.id, parents):
            found.setdefault(each.parent, []).append(each)
    return found


def _leads_back(name: str, parents: dict[str, str]) -> bool:
    seen = {name}
    above = parents.get(name, "")
    while above in parents and above not in seen:
        seen.add(above)
        above = parents[above]
    return above in seen
