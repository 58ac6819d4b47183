"""Sessions on their way out: read one after the other, cleaned if asked, given a form, and put where they belong.

However many there are, no more than one message is held at a time (a few hundred of a small session, which is faster).
What cannot be read is left out, and told.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from ...errors import NotFoundError, RecordError
from ...records import as_object
from ...storage.protocol import Damage, StoredMessage, log_damage
from ..filters import SelectedSession, Selection, select
from ..formats import ExportedSession, Format, FormatOptions, find_format
from ..formatting import text
from .reading import conversation

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence

    from ...records import Document
    from ...storage.protocol import Store
    from ..formats.html_page import IndexEntry
    from .redaction import Redactor

    Report = Callable[[Damage], None]
    Watch = Callable[[Document, list[Document]], None]

MANY = 200
"""From so many sessions on, other processes are worth their start."""


class RenderedSession(NamedTuple):
    """A session in its form."""

    chosen: SelectedSession
    pieces: Iterable[bytes]
    """None if it is gone."""
    entry: IndexEntry | None = None
    """What a list of sessions says of it, complete when the pieces were gone through; ``None`` if it is gone."""


class SessionRenderer:
    """The sessions of a store, in a form."""

    def __init__(
        self,
        store: Store,
        form: str = "jsonl",
        options: FormatOptions | None = None,
        *,
        redactor: Redactor | None = None,
        report: Report = log_damage,
    ) -> None:
        self.store = store
        self.form = form
        self.format: Format = find_format(form, options)
        self._redactor = redactor
        self._report = report
        self.nested: dict[str, list[SelectedSession]] = {}
        """Sessions that appear inside of others, by those."""

    def pieces(self, chosen: SelectedSession) -> Iterator[bytes]:
        """One of them, a piece at a time; nothing if it is gone."""
        session = self.read(chosen)
        if session is not None:
            yield from self.format.pieces(session)

    def listed(self, chosen: SelectedSession) -> RenderedSession:
        """One of them, with its place in a list."""
        from ..formats.html_page import IndexEntry

        entry = IndexEntry(
            file=f"{chosen.id}{self.format.suffix}", id=chosen.id, title=chosen.id, directory="", updated=chosen.updated
        )
        session = self.read(chosen, entry.count)
        if session is None:
            return RenderedSession(chosen, ())
        entry.title = text(session.info, "title") or chosen.id
        entry.directory = text(session.info, "directory")
        return RenderedSession(chosen, self.format.pieces(session), entry)

    def read(self, chosen: SelectedSession, watch: Watch | None = None) -> ExportedSession | None:
        """A session, cleaned if that was asked for; ``None`` if it is gone or cannot be read any more.

        ``watch`` sees each message go by.
        """
        try:
            info = as_object(self.store.read(chosen.key))
        except NotFoundError:
            return None
        except RecordError as error:
            self._report(Damage(error.path, error.reason))
            return None
        if info is None:
            return None
        if self._redactor is not None:
            info = self._redactor.document(info)
        children = (self.read(child) for child in self.nested.get(chosen.id, ()))
        session = ExportedSession(
            chosen.id, chosen.key[1], info, (), (child for child in children if child is not None)
        )
        return session._replace(messages=self._messages(session, watch))

    def _messages(self, session: ExportedSession, watch: Watch | None) -> Iterator[StoredMessage]:
        reads = self.format.reads
        for message in conversation(self.store, session.id, report=self._report):
            cleaned = message
            if self._redactor is not None:
                wanted = [part for part in message.parts if reads is None or str(part.get("type")) in reads]
                parts = [self._redactor.document(part) for part in wanted]
                cleaned = StoredMessage(self._redactor.document(message.info), parts)
            if watch is not None:
                watch(cleaned.info, cleaned.parts)
            yield cleaned


class Export(SessionRenderer):
    """What is to be exported, and how."""

    def __init__(
        self,
        store: Store,
        selection: Selection,
        form: str = "jsonl",
        options: FormatOptions | None = None,
        *,
        redactor: Redactor | None = None,
        report: Report = log_damage,
        several: bool = False,
    ) -> None:
        """With ``several``, other processes open the same place and take part where there is much to do."""
        super().__init__(store, form, options, redactor=redactor, report=report)
        self._options = options or FormatOptions()
        self._several = several
        chosen, self.without = select(store, selection, report=report)
        if self.format.nests:
            self.nested = _nested(chosen)
        inside = {child.id for children in self.nested.values() for child in children}
        self.chosen = [each for each in chosen if each.id not in inside]
        """The sessions that get a line, a file or a page of their own."""
        self.inside = len(chosen) - len(self.chosen)
        """How many subagents' sessions are within those."""

    def sessions(self, todo: Sequence[SelectedSession], *, listed: bool = False) -> Generator[RenderedSession]:
        """Each of them, with its place in a list if that is asked for. The pieces of one are to be gone through before
        the next is asked for."""
        if self._several and len(todo) >= MANY:
            from .export_workers import ExportJob, cores, shared

            if cores() > 1:
                redactor = self._redactor
                how = (redactor is not None, redactor is not None and redactor.paths)
                yield from shared(self, ExportJob(self.store.place, self.form, self._options, listed, *how), todo)
                return
        yield from (self.make(chosen, listed=listed) for chosen in todo)

    def make(self, chosen: SelectedSession, *, listed: bool) -> RenderedSession:
        """One of them, in this process."""
        return self.listed(chosen) if listed else RenderedSession(chosen, self.pieces(chosen))

    def beneath(self, chosen: SelectedSession) -> dict[str, list[SelectedSession]]:
        """The sessions that appear inside of one, at any depth."""
        found: dict[str, list[SelectedSession]] = {}
        if children := self.nested.get(chosen.id):
            found[chosen.id] = children
            for child in children:
                found |= self.beneath(child)
        return found

    def take_note(self, damage: Iterable[Damage], redacted: Mapping[str, int]) -> None:
        """Report what was found elsewhere on behalf of this export."""
        for each in damage:
            self._report(each)
        if self._redactor is not None:
            self._redactor.counts.update(redacted)

    def version(self, chosen: SelectedSession) -> int:
        """A number that becomes another when the session, or one that appears inside of it, changes, comes or goes."""
        return chosen.updated + sum(map(self.version, self.nested.get(chosen.id, ())))

    @property
    def frame(self) -> tuple[bytes, bytes, bytes]:
        """What stands before, between and after the sessions in one file; nothing around a single one."""
        return (self.format.together or (b"", b"", b"")) if len(self.chosen) != 1 else (b"", b"", b"")


def _nested(chosen: list[SelectedSession]) -> dict[str, list[SelectedSession]]:
    """Children by parent, where the parent goes out as well; never in a circle."""
    parents = {each.id: each.parent for each in chosen}
    found: dict[str, list[SelectedSession]] = {}
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
