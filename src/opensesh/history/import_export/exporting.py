"""Export: sessions are read one after the other, redacted if requested, and rendered in a format.

Memory use does not depend on their number: one message is in memory at a time (a few hundred of a small session, which
is faster). Records that cannot be read are left out and reported.
"""

from __future__ import annotations

from operator import itemgetter
from typing import TYPE_CHECKING, NamedTuple

from ...errors import NotFoundError, RecordError, UsageError
from ...records import Document, as_object
from ...storage import keys
from ...storage.families import children_by_parent, descendants
from ...storage.protocol import Damage, Store, StoredMessage, log_damage
from ...storage.record_ids import message_positions, with_ids_of_key, with_parts
from ..formats import ExportedSession, Format, FormatOptions, find_format
from ..stats.session_usage import SessionInfo, session_info

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from ...redaction import Redactor
    from ...storage.protocol import Report

    OnMessage = Callable[[Document, list[Document]], None]

MAX_MESSAGES_AT_ONCE = 300
"""Sessions with more messages are read one message at a time."""


class Selection(NamedTuple):
    """Criteria for sessions. The default selects all, including subagent and archived sessions."""

    ids: tuple[str, ...] = ()
    """Only these sessions."""
    matches: Callable[[SessionInfo], bool] | None = None
    """Only sessions for which this returns true."""
    since: int = 0
    """Updated at or after this time, in milliseconds."""
    until: int | None = None
    """Updated before this time."""
    children: bool | None = None
    """Whether to include subagent sessions; by default not those below the sessions in ``ids``, and otherwise yes."""


class Export:
    """An export: which sessions, and in which format."""

    def __init__(
        self,
        store: Store,
        selection: Selection,
        format_name: str = "jsonl",
        options: FormatOptions | None = None,
        *,
        redactor: Redactor | None = None,
        report: Report = log_damage,
    ) -> None:
        self.store = store
        self.format_name = format_name
        self.format: Format = find_format(format_name, options)
        self._redactor = redactor
        self._report = report
        matching, self.excluded_children = _select(store, selection, report)
        self._children = _children_by_parent(matching) if self.format.nests else {}
        """Sessions to include in others, by the id of their parent."""
        included = {child.id for children in self._children.values() for child in children}
        self.selected = [session for session in matching if session.id not in included]
        """The sessions that get a line, a file or a page of their own."""
        self.included_children = len(matching) - len(self.selected)
        """How many subagent sessions are included in those."""

    def chunks(self, selected: SessionInfo) -> Iterator[bytes]:
        """Yield a session in the format; nothing if it is gone."""
        session = self.read(selected)
        if session is not None:
            yield from self.format.chunks(session)

    def file_chunks(self) -> Iterator[bytes]:
        """Yield a file with all sessions, if :meth:`check_single_file` allows one."""
        before, between, after = self.delimiters
        yield before
        is_first = True
        for selected in self.selected:
            for number, chunk in enumerate(self.chunks(selected)):
                yield chunk if is_first or number else between + chunk
                is_first = False
        yield after

    def check_single_file(self) -> None:
        """Raise an error if the format has a file for each session, and other than one session is selected."""
        if self.format.delimiters is None and not self.selected:
            raise NotFoundError(f"no sessions match in {self.store.place}")
        if self.format.delimiters is None and len(self.selected) > 1:
            raise UsageError(
                f"the format {self.format_name!r} cannot hold {len(self.selected):,} sessions in one file; "
                "write one file a session: --split DIR"
            )

    def read(self, selected: SessionInfo, on_message: OnMessage | None = None) -> ExportedSession | None:
        """Return a session, redacted if requested; ``None`` if it is gone or its record cannot be read.

        ``on_message`` is called with each message when it is read.
        """
        try:
            key = keys.session(selected.project, selected.id)
            info = as_object(with_ids_of_key(key, self.store.read(key)))
        except NotFoundError:
            return None
        except RecordError as error:
            self._report(Damage(error.path, error.reason))
            return None
        if info is None:
            return None
        related = self._related(selected.id)
        if self._redactor is not None:
            info, related = self._redactor.document(info), self._redactor.document(related)
        children = (self.read(child) for child in self._children.get(selected.id, ()))
        messages = self._messages(selected.id, on_message)
        existing = (child for child in children if child is not None)
        return ExportedSession(selected.id, selected.project, info, messages, existing, related)

    def _related(self, session_id: str) -> Document:
        """Return the todo list and the diffs of a session, by the kind of record, as far as there are any."""
        related: Document = {}
        for key in (keys.todo(session_id), keys.diff(session_id)) if self.format_name == "json" else ():
            try:
                related[key[0]] = self.store.read(key)
            except NotFoundError:
                continue
            except RecordError as error:
                self._report(Damage(error.path, error.reason))
        return related

    def _messages(self, session_id: str, on_message: OnMessage | None) -> Iterator[StoredMessage]:
        types = self.format.part_types
        for stored in read_messages(self.store, session_id, report=self._report):
            message = stored
            if self._redactor is not None:
                used = [part for part in stored.parts if types is None or str(part.get("type")) in types]
                parts = [self._redactor.document(part) for part in used]
                message = StoredMessage(self._redactor.document(stored.info), parts)
            if on_message is not None:
                on_message(message.info, message.parts)
            yield message

    def version(self, selected: SessionInfo) -> int:
        """Return a number that differs after a change to the session or to a session included in it."""
        return selected.updated + sum(map(self.version, self._children.get(selected.id, ())))

    @property
    def delimiters(self) -> tuple[bytes, bytes, bytes]:
        """The bytes before, between and after the sessions in one file; empty around a single session."""
        return (self.format.delimiters or (b"", b"", b"")) if len(self.selected) != 1 else (b"", b"", b"")


def _select(store: Store, selection: Selection, report: Report) -> tuple[list[SessionInfo], int]:
    """Return the sessions of a store that match a selection, oldest first, and how many others were left out only
    because they are subagent sessions."""
    sessions: dict[str, SessionInfo] = {}
    matching: set[str] = set()
    for key, value in store.scan(("session",), report=report):
        document = as_object(value)
        if document is None:
            report(Damage(store.locate(key), "$: expected an object"))
            continue
        info = sessions[key[-1]] = session_info(document, key[1], key[-1])
        in_time = info.updated >= selection.since and (selection.until is None or info.updated < selection.until)
        if in_time and (selection.matches is None or selection.matches(info)):
            matching.add(info.id)
        else:
            matching.discard(info.id)
    if selection.ids:
        children = children_by_parent((session.id, session.parent) for session in sessions.values())
        with_children = {id_ for root in selection.ids for id_ in (root, *descendants(root, children))}
        matching = with_children & sessions.keys()
        selected = matching if selection.children else matching.intersection(selection.ids)
    else:
        selected = {id_ for id_ in matching if selection.children is not False or not sessions[id_].parent}
    ordered = sorted((sessions[id_] for id_ in selected), key=lambda session: (session.created, session.id))
    return ordered, len(matching) - len(selected)


def _children_by_parent(sessions: list[SessionInfo]) -> dict[str, list[SessionInfo]]:
    """Return the children of sessions whose parent is exported as well, without those in a cycle."""
    parents = {session.id: session.parent for session in sessions}
    children: dict[str, list[SessionInfo]] = {}
    for session in sessions:
        seen, ancestor = {session.id}, session.parent
        while ancestor in parents and ancestor not in seen:
            seen.add(ancestor)
            ancestor = parents[ancestor]
        if session.parent in parents and ancestor not in seen:
            children.setdefault(session.parent, []).append(session)
    return children


def read_messages(store: Store, session_id: str, *, report: Report = log_damage) -> Iterator[StoredMessage]:
    """Yield the messages of a session with their parts, oldest first, with only a few in memory at a time.

    Records that cannot be read are left out and reported.
    """
    damage: list[Damage] = []
    newest = store.messages(session_id, last=MAX_MESSAGES_AT_ONCE + 1, report=damage.append)
    if len(newest) <= MAX_MESSAGES_AT_ONCE:  # so these are all
        for entry in damage:
            report(entry)
        yield from newest
        return
    del newest
    for _, info in sorted(message_positions(store, session_id, report), key=itemgetter(0)):
        yield with_parts(store, info, report)
