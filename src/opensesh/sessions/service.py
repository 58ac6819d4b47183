"""The life of a session: create, get, list, fork, update, archive, remove; its messages, parts and todos.

Every operation stores first and tells the bus after, so whoever hears of a record can read it.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, TypeVar

from .. import __version__, events, ids
from ..errors import NotFoundError, ReadOnlyStoreError, RecordError
from ..records import EXTENSION_KEY, Document, Rule, Session, Share, as_list, as_object, document_of, view
from ..storage import keys
from ..storage.protocol import Damage, Key, StoredMessage, log_damage
from .slugs import new_slug

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from ..bus import Bus
    from ..project import ProjectLocation
    from ..storage.protocol import Store

    Report = Callable[[Damage], None]

T = TypeVar("T")
_FORK = r"(?a)(.+) \(fork #(\d+)\)"


class Sessions:
    """The sessions of a store, seen from one project location.

    New sessions belong to ``location``. Existing ones are found wherever they are filed, so that a session can be read,
    forked or removed from anywhere. All methods are synchronous and safe to call from several threads.
    """

    def __init__(
        self, store: Store, location: ProjectLocation, *, bus: Bus | None = None, clock: Callable[[], int] = ids.now_ms
    ) -> None:
        self.store = store
        self.location = location
        self._bus = bus
        self._clock = clock
        self._projects: dict[str, str] = {}

    # -- one session ---------------------------------------------------------------------------------------------------

    def create(
        self,
        *,
        title: str | None = None,
        parent_id: str | None = None,
        permission: Sequence[Rule] | None = None,
        session_id: str | None = None,
    ) -> Session:
        """Store a new session. Without a title it gets OpenCode's default one, which a model may replace later."""
        info: Document = {
            "id": ids.descending("ses", session_id),
            "slug": new_slug(),
            "version": f"opensesh-{__version__}",
            "projectID": self.location.id,
            "directory": self.location.directory,
        }
        if parent_id:
            info["parentID"] = ids.check(parent_id, "ses")
        now = self._clock()
        info["title"] = title or default_title(now, child=parent_id is not None)
        if permission:
            info["permission"] = [document_of(rule) for rule in permission]
        info["time"] = {"created": now, "updated": now}
        self.store.write(self._key(info), info)
        self._publish(events.SessionCreated(info=info))
        self._publish(events.SessionUpdated(info=info))
        return view(info, Session)

    def get(self, session_id: str) -> Session:
        """The session, whichever project it is filed under."""
        key, info = self._read(session_id)
        return view(info, Session, self.store.locate(key))

    def list(self, *, project: str | None = None, report: Report = log_damage) -> Iterator[Session]:
        """All readable sessions, or those of one project, in no particular order; children and archived ones
        included."""
        for key, info in self.store.scan(("session", project) if project else ("session",), report=report):
            try:
                yield view(info, Session)
            except RecordError as error:
                report(Damage(self.store.locate(key), f"{error.place}: {error.reason}"))

    def children(self, session_id: str) -> list[Session]:
        """The sessions this one started, oldest first."""
        self._read(session_id)
        found = [each for each in self.list() if each.parent_id == session_id]
        return sorted(found, key=_age)

    def descendants(self, session_id: str) -> Iterator[Session]:
        """Children, their children, and so on, each before its own."""
        below: dict[str | None, list[Session]] = {}
        for each in sorted(self.list(), key=_age):
            below.setdefault(each.parent_id, []).append(each)
        seen = {session_id}
        waiting = below.get(session_id, [])[::-1]
        while waiting:
            each = waiting.pop()
            if each.id not in seen:  # a damaged tree may run in a circle
                seen.add(each.id)
                yield each
                waiting += below.get(each.id, [])[::-1]

    def ancestors(self, session_id: str) -> list[Session]:
        """The session that started this one, the one that started that, and so on, as far as they are still there."""
        found: list[Session] = []
        above = self.get(session_id).parent_id
        while above is not None and above != session_id and all(each.id != above for each in found):
            try:
                found.append(self.get(above))
            except (NotFoundError, RecordError):
                break  # removed, or damaged; a damaged tree may also run in a circle
            above = found[-1].parent_id
        return found

    def update(self, session_id: str, edit: Callable[[Document], None], *, touch: bool = True) -> Session:
        """Change the record under its lock; unless told otherwise, this counts as activity."""

        def change(info: Document) -> None:
            edit(info)
            if touch:
                info.setdefault("time", {})["updated"] = self._clock()

        info = self._at(session_id, lambda key: self.store.update(key, change))
        self._publish(events.SessionUpdated(info=info))
        return view(info, Session)

    def ensure_writable(self, session_id: str) -> None:
        """:class:`~opensesh.errors.ReadOnlyStoreError` if its record is in a store that is never written. To be asked
        before
        anything new of it is: that would go to another store, which knows nothing of the session."""
        from ..storage.merged import MergedStore

        def look(key: Key) -> None:
            store_for_write = self.store.store_for_write(key) if isinstance(self.store, MergedStore) else self.store
            store_for_write.read(key)
            if getattr(store_for_write, "is_read_only", False):
                copy = f"'opensesh session fork {session_id}' makes a copy to go on with, 'opensesh import' one of all"
                whose = (
                    f"{session_id} is in {store_for_write.place}, which belongs to OpenCode and is never written here"
                )
                raise ReadOnlyStoreError(f"{whose}; {copy}", path=store_for_write.place)

        self._at(session_id, look)

    def touch(self, session_id: str) -> Session:
        """Note that something happened in it."""
        return self.update(session_id, lambda info: None)

    def rename(self, session_id: str, title: str) -> Session:
        """Give it a title of the user's own; this is not activity."""
        return self.update(session_id, lambda info: info.update(title=title), touch=False)

    def archive(self, session_id: str, *, archived: bool = True) -> Session:
        """Put it away, or take it out again; this is not activity."""

        def change(info: Document) -> None:
            time = info.setdefault("time", {})
            time.pop("archived", None)
            if archived:
                time["archived"] = self._clock()

        return self.update(session_id, change, touch=False)

    def fork(self, session_id: str, *, before: str | None = None) -> Session:
        """A new session with a copy of the history, up to but without the message ``before`` if one is given.

        The copy has identifiers of its own and its answers point to its own prompts; it is a root session, not a
        child. It becomes visible only when it is complete.
        """
        history = self.store.messages(session_id)
        if before is not None:
            history = history[: _index(history, before)]
        return self.fork_messages(session_id, history)

    def fork_messages(self, session_id: str, history: Sequence[StoredMessage]) -> Session:
        """A fork with messages that the caller has chosen, or that the session no longer has."""
        original = self.get(session_id)
        now = self._clock()
        info: Document = {
            "id": ids.descending("ses"),
            "slug": new_slug(),
            "version": f"opensesh-{__version__}",
            "projectID": original.project_id or self.location.id,
            "directory": original.directory or self.location.directory,
            "title": fork_title(original.title),
            "time": {"created": now, "updated": now},
        }
        copies = _copies(history, info["id"])
        for message in copies:
            self._write_message(message)
        self.store.write(self._key(info), info)
        self._publish(events.SessionCreated(info=info))
        for message in copies:
            self._tell_of(message)
        self._publish(events.SessionUpdated(info=info))
        return view(info, Session)

    def remove(self, session_id: str) -> None:
        """Remove it for good, with its children, messages, parts, diffs, todos and share. Interrupted, it can be run
        again."""
        for child in reversed(list(self.descendants(session_id))):
            self._remove_one(child.id)
        self._remove_one(session_id)

    # -- what it holds -------------------------------------------------------------------------------------------------

    def messages(self, session_id: str, *, last: int = 0, report: Report = log_damage) -> Sequence[StoredMessage]:
        """Its messages with their parts, oldest first; with ``last``, only that many of the newest."""
        return self.store.messages(session_id, last=last, report=report)

    def add_message(self, message: StoredMessage) -> None:
        """Store a new message with its parts. The message itself comes last: one whose parts are not all there must
        not be taken for whole."""
        self._write_message(message)
        self._tell_of(message)

    def update_message(self, info: Document) -> None:
        """Store a message whole."""
        self.store.write(keys.message(info["sessionID"], info["id"]), info)
        self._publish(events.MessageUpdated(info=info))

    def remove_message(self, session_id: str, message_id: str) -> None:
        """Remove a message and its parts."""
        self._remove_parts(message_id)
        self.store.remove(keys.message(session_id, message_id))
        self._publish(events.MessageRemoved(session_id=session_id, message_id=message_id))

    def update_part(self, part: Document, *, delta: str | None = None) -> None:
        """Store a part whole; ``delta`` tells listeners what was added to its text."""
        self.store.write(keys.part(part["messageID"], part["id"]), part)
        self._publish(events.PartUpdated(part=part, delta=delta))

    def remove_part(self, session_id: str, message_id: str, part_id: str) -> None:
        """Remove one part."""
        self.store.remove(keys.part(message_id, part_id))
        self._publish(events.PartRemoved(session_id=session_id, message_id=message_id, part_id=part_id))

    def todos(self, session_id: str) -> list[Document]:
        """The agent's list; empty if there is none, or none that can be read."""
        return self._list(keys.todo(session_id))

    def set_todos(self, session_id: str, todos: list[Document]) -> None:
        """Replace the agent's list."""
        self.store.write(keys.todo(session_id), todos)
        self._publish(events.TodoUpdated(session_id=session_id, todos=todos))

    def diff(self, session_id: str) -> list[Document]:
        """The files it changed; empty if nobody noted any, or none that can be read."""
        return self._list(keys.diff(session_id))

    # -- inside --------------------------------------------------------------------------------------------------------

    def _remove_one(self, session_id: str) -> None:
        key, info = self._at(session_id, self._even_damaged)
        self._remove_share(session_id)
        for message in self.store.list(("message", session_id)):
            self._remove_parts(message[-1])
            self.store.remove(message)
        for leftover in (keys.diff(session_id), keys.todo(session_id)):
            self.store.remove(leftover)
        self.store.remove(key)
        self._projects.pop(session_id, None)
        self._publish(events.SessionDeleted(info=info))

    def _write_message(self, message: StoredMessage) -> None:
        for part in message.parts:
            self.store.write(keys.part(part["messageID"], part["id"]), part)
        self.store.write(keys.message(message.info["sessionID"], message.info["id"]), message.info)

    def _tell_of(self, message: StoredMessage) -> None:
        self._publish(events.MessageUpdated(info=message.info))
        for part in message.parts:
            self._publish(events.PartUpdated(part=part))

    def _publish(self, event: events.Event) -> None:
        if self._bus is not None:
            self._bus.publish(event, directory=self.location.directory)

    def _key(self, info: Document) -> Key:
        self._projects[info["id"]] = info["projectID"]
        return keys.session(info["projectID"], info["id"])

    def _read(self, session_id: str) -> tuple[Key, Document]:
        return self._at(session_id, lambda key: (key, self.store.read(key)))

    def _even_damaged(self, key: Key) -> tuple[Key, Document]:
        """A record that cannot be read can still be removed."""
        try:
            return key, self.store.read(key)
        except RecordError:
            return key, {"id": key[-1], "projectID": key[1]}

    def _at(self, session_id: str, act: Callable[[Key], T]) -> T:
        """``act`` on the key of a session: where it was last seen, in this project, or wherever it is filed."""
        ids.check(session_id, "ses")
        for project in dict.fromkeys((self._projects.get(session_id, self.location.id), self.location.id)):
            try:
                return act(keys.session(project, session_id))
            except NotFoundError:
                continue
        for key in self.store.list(("session",)):
            if key[-1] == session_id and len(key) == 3:
                self._projects[session_id] = key[1]
                return act(key)
        raise NotFoundError(f"there is no session {session_id} in {self.store.place}", session=session_id)

    def _remove_parts(self, message_id: str) -> None:
        for key in self.store.list(("part", message_id)):
            self.store.remove(key)

    def _remove_share(self, session_id: str) -> None:
        for key in (("share", session_id), keys.share(session_id)):
            try:
                share = view(self.store.read(key), Share)
                from ..storage import revocations
                from ..storage.merged import store_paths

                revocations.note(session_id, share, store=store_paths(self.store)[0], why="removed")
            except NotFoundError:
                continue
            except RecordError:
                pass  # nobody can take back a share whose secret is lost
            self.store.remove(key)

    def _list(self, key: Key) -> list[Document]:
        try:
            found: list[Any] = as_list(self.store.read(key)) or []
        except NotFoundError:
            return []
        except RecordError as error:
            log_damage(Damage(self.store.locate(key), error.reason))
            return []
        return [each for each in map(as_object, found) if each is not None]


def default_title(now: int, *, child: bool = False) -> str:
    """The title of a session that nobody has named: the moment it began."""
    moment = datetime.fromtimestamp(now / 1000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    return f"{'Child' if child else 'New'} session - {moment}"


def fork_title(title: str) -> str:
    """The title of the next fork of a session with this title."""
    found = re.fullmatch(_FORK, title)
    return f"{found[1]} (fork #{int(found[2]) + 1})" if found else f"{title} (fork #1)"


def _age(session: Session) -> tuple[int, tuple[int, str]]:
    """A sort key, oldest first."""
    return session.time.created, ids.order(session.id, session.time.created)


def _index(history: Sequence[StoredMessage], message_id: str) -> int:
    for position, message in enumerate(history):
        if message.info.get("id") == message_id:
            return position
    raise NotFoundError(f"the session has no message {message_id}", id=message_id)


def _copies(history: Sequence[StoredMessage], session_id: str) -> list[StoredMessage]:
    names: dict[str, str] = {}
    for message in history:
        names[message.info["id"]] = ids.ascending("msg")
        names.update((part["id"], ids.ascending("prt")) for part in message.parts)
    copies: list[StoredMessage] = []
    for message in history:
        own = {"sessionID": session_id, "messageID": names[message.info["id"]]}
        parts = [_renamed(part, names) | {"id": names[part["id"]]} | own for part in message.parts]
        info = _renamed(message.info, names) | {"id": own["messageID"], "sessionID": session_id}
        copies.append(StoredMessage(info, parts))
    return copies


def _renamed(record: Document, names: dict[str, str]) -> Document:
    """A copy in which what names another message or part of the history names the copy of that: the prompt of an
    answer, where the turns begin that a compaction kept, the parts that a provider would not take."""
    named = {field: str(record.get(field)) for field in ("parentID", "tail_start_id")}
    renamed: Document = {field: names[name] for field, name in named.items() if name in names}
    own = as_object(record.get(EXTENSION_KEY)) or {}
    if masked := as_list(own.get("masked")):
        renamed[EXTENSION_KEY] = own | {"masked": [names.get(str(part), part) for part in masked]}
    return record | renamed
