"""The life of a session: create, get, list, fork, update, archive, remove; its messages, parts and todos.

Every operation stores first and publishes afterwards, so a subscriber can read every record that an event names.
"""

from __future__ import annotations

import os
from itertools import takewhile
from typing import TYPE_CHECKING, Any, TypeVar

from .. import __version__, events, ids
from ..errors import BusyError, NotFoundError, ReadOnlyStoreError, RecordError, UsageError
from ..project import resolve
from ..records import (
    Document,
    MessageTime,
    ModelRef,
    Rule,
    Session,
    Share,
    TextPart,
    UserMessage,
    as_list,
    as_object,
    document_of,
    read_message,
    read_part,
    view,
)
from ..storage import families, keys, open_store, revocations
from ..storage.leases import leases_of
from ..storage.protocol import (
    CompositeStore,
    ConditionallyWritable,
    Damage,
    Key,
    StoredMessage,
    conventions_of,
    log_damage,
    store_ids,
)
from ..storage.record_ids import session_at, views_of
from ..storage.registry import new_sessions_place
from ..storage.session_state import is_imported, mark_imported, remove_session_state
from . import removed_calls
from .forking import copy_messages, fork_title
from .settling import settle
from .slugs import default_title, new_slug

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from ..bus import Bus
    from ..project import ProjectLocation
    from ..storage.protocol import Batch, Report, Store

T = TypeVar("T")
_KEPT_IN_FORKS = ("path", "workspaceID", "metadata")
"""The fields of a session that its forks have as well, as in OpenCode."""


class Sessions:
    """The sessions of a store, for one project location.

    New sessions belong to ``location``. Existing ones are found under any project, so that a session can be read,
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

    @classmethod
    def open(
        cls,
        directory: str | os.PathLike[str] = ".",
        store: Store | str | os.PathLike[str] | None = None,
        *,
        bus: Bus | None = None,
    ) -> Sessions:
        """Return the sessions of a store, a path or a URL (by default OpenCode's data folder) for a directory."""
        opened = settle(open_store(store) if store is None or isinstance(store, str | os.PathLike) else store)
        return cls(opened, resolve(directory, store=opened), bus=bus)

    # -- one session ---------------------------------------------------------------------------------------------------

    def create(
        self,
        *,
        title: str | None = None,
        parent_id: str | None = None,
        permission: Sequence[Rule] | None = None,
        session_id: str | None = None,
        fields: Document | None = None,
    ) -> Session:
        """Store a new session. Without a title it gets OpenCode's default one, which a model may replace later.

        ``fields`` are those of OpenCode 1.18 that a caller sets: ``metadata``, ``agent``, ``model``.
        """
        if not all(isinstance(rule, Rule) for rule in permission or ()):
            raise UsageError("permission is a list of opensesh.records.Rule(permission=..., pattern=..., action=...)")
        info = _new_session(self.location.id, self.location.directory, session_id)
        if conventions_of(self.store).sessions_have_paths and self.location.path is not None:
            info["path"] = self.location.path
        if parent_id:
            info["parentID"] = ids.check(parent_id, "ses")
        now = self._clock()
        info["title"] = default_title(now, child=parent_id is not None) if title is None else title
        if permission:
            info["permission"] = [document_of(rule) for rule in permission]
        info["time"] = {"created": now, "updated": now}
        info |= fields or {}
        session = view(info, Session)  # raises for a value of the wrong type
        self.store.write(self._key(info), info)
        self._publish(events.SessionCreated(info=info))
        self._publish(events.SessionUpdated(info=info))
        return session

    def get(self, session_id: str) -> Session:
        """Return the session, of any project."""
        return self._with_session_key(
            session_id, lambda key: session_at(key, self.store.read(key), self.store.locate(key))
        )

    def list(self, *, project: str | None = None, report: Report = log_damage) -> Iterator[Session]:
        """Iterate over all readable sessions of the store, or those of one project, in no particular order.

        Children and archived sessions are included. OpenCode's ``Session.list`` has those of the current project, as
        :meth:`newest_first` has.
        """
        records = self.store.scan(("session", project) if project else ("session",), report=report)
        yield from (session for _, session in views_of(self.store, records, session_at, report))

    def newest_first(self, project: str | None = None) -> Iterator[Session]:
        """Iterate over the readable sessions of a project, by default this one, those created last first. A caller that
        stops early reads no more records than it takes, unless identifiers of the project span a wraparound."""
        project = project or self.location.id
        keys_by_id = {key[-1]: key for key in self.store.list(("session", project)) if len(key) == 3}
        if ids.spans_wraparound(list(keys_by_id)):
            yield from sorted(self.list(project=project), key=_oldest_first, reverse=True)
            return
        for _, key in sorted(keys_by_id.items()):  # the newest identifier has the smallest name
            try:
                yield view(self.store.read(key), Session, self.store.locate(key))
            except NotFoundError:
                continue  # removed since it was listed
            except RecordError as error:
                log_damage(Damage(self.store.locate(key), error.detail))

    def children(self, session_id: str) -> list[Session]:
        """Return the sessions created by this one, oldest first."""
        self._with_session_key(session_id, self.store.read)
        return sorted((session for session in self.list() if session.parent_id == session_id), key=_oldest_first)

    def descendants(self, session_id: str) -> Iterator[Session]:
        """Iterate over the children, their children, and so on, each before its own."""
        sessions = {session.id: session for session in sorted(self.list(), key=_oldest_first)}
        children = families.children_by_parent((session.id, session.parent_id) for session in sessions.values())
        return map(sessions.__getitem__, families.descendants(session_id, children))

    def ancestors(self, session_id: str) -> list[Session]:
        """Return the session that created this one, the one that created that, and so on, as far as they exist."""
        ancestors: list[Session] = []
        parent_id = self.get(session_id).parent_id
        while parent_id is not None and parent_id not in (session_id, *(session.id for session in ancestors)):
            try:
                ancestors.append(self.get(parent_id))
            except (NotFoundError, RecordError):
                break  # removed or damaged
            parent_id = ancestors[-1].parent_id
        return ancestors

    def update(self, session_id: str, edit: Callable[[Document], None] | None = None, *, touch: bool = True) -> Session:
        """Change the record under its lock. With ``touch``, this counts as activity. Raises
        :class:`~opensesh.errors.RecordError`, and stores nothing, if the result is not valid."""

        def change(info: Document) -> None:
            if edit is not None:
                edit(info)
            info["id"] = session_id  # missing in records of other programs
            if touch:
                info.setdefault("time", {})["updated"] = self._clock()
            view(info, Session)

        info = self._with_session_key(session_id, lambda key: self.store.update(key, change))
        self._publish(events.SessionUpdated(info=info))
        return view(info, Session)

    def ensure_writable(self, session_id: str) -> None:
        """Raise :class:`~opensesh.errors.ReadOnlyStoreError` if the session's record is in a read-only store.

        To be called before anything is added to the session: new records would go to another store, which does not
        have the session.
        """

        def check(key: Key) -> None:
            store = self.store.store_for_write(key) if isinstance(self.store, CompositeStore) else self.store
            store.read(key)
            if not store.writable:
                reason = f": {store.refusal}" if isinstance(store, ConditionallyWritable) else ""
                advice = "Copy the file to a folder that can be written, and name that with --store"
                if new_sessions_place(self.store)[0]:
                    advice = (
                        f"'opensesh session fork {session_id}' makes a copy to continue with, "
                        "'opensesh import' copies all"
                    )
                message = f"{session_id} is in {store.place}, which is only read{reason}. {advice}"
                raise ReadOnlyStoreError(message, path=store.place)

        self._with_session_key(session_id, check)

    def touch(self, session_id: str) -> Session:
        """Record activity."""
        return self.update(session_id)

    def rename(self, session_id: str, title: str) -> Session:
        """Set the title. This is not activity."""
        return self.update(session_id, lambda info: info.update(title=title), touch=False)

    def archive(self, session_id: str, *, archived: bool = True) -> Session:
        """Archive the session, or bring it back. This is not activity."""

        def change(info: Document) -> None:
            time = info.setdefault("time", {})
            time.pop("archived", None)
            if archived:
                time["archived"] = self._clock()

        return self.update(session_id, change, touch=False)

    def fork(self, session_id: str, *, before: str | None = None) -> Session:
        """Create a session with a copy of the history, or of the messages before the message ``before``.

        The copy has ids of its own, and its answers refer to its own prompts. It is a root session, not a child. It
        becomes visible only when it is complete.
        """
        history = self.store.messages(session_id)
        if before is not None:
            position = next((at for at, message in enumerate(history) if message.info.get("id") == before), None)
            if position is None:
                raise NotFoundError(f"the session has no message {before}", id=before)
            history = history[:position]
        return self.fork_messages(session_id, history)

    def fork_messages(self, session_id: str, history: Sequence[StoredMessage]) -> Session:
        """Create a fork with these messages, which the session need not have any more."""
        original = self.get(session_id)
        now = self._clock()
        info = _new_session(original.project_id or self.location.id, original.directory or self.location.directory)
        info |= {name: original.document[name] for name in _KEPT_IN_FORKS if name in original.document}
        info |= {"title": fork_title(original.title), "time": {"created": now, "updated": now}}
        copies = copy_messages(
            history, info["id"], lambda _, owner: ids.ascending("msg" if owner == info["id"] else "prt")
        )
        if is_imported(self.store, session_id):
            mark_imported(self.store, info["id"])
        with self.store.batch() as batch:
            for message in copies:
                _write_message(batch, message)
            batch.write(self._key(info), info)
        self._publish(events.SessionCreated(info=info))
        for message in copies:
            self._publish_message(message)
        self._publish(events.SessionUpdated(info=info))
        return view(info, Session)

    def remove(self, session_id: str) -> str:
        """Move the session with its descendants, messages, parts, diffs, todos and share to the trash.

        Returns the undo file, for :func:`opensesh.sessions.trash.restore`. Raises
        :class:`~opensesh.errors.BusyError`, and moves nothing, if one of them is being run.
        """
        from . import trash

        family = trash.with_descendants(self.store, [self.get(session_id)])
        self.refuse_running([session.id for session in family])
        result = trash.remove(self.store, family)
        if result.left:
            session_id, reason = result.left[0]
            raise ReadOnlyStoreError(f"{session_id}: {reason}", place=self.store.place)
        for session in reversed(result.sessions):
            self._projects.pop(session.id, None)
            self._publish(events.SessionDeleted(info=session.document))
        return result.undo

    def purge(self, session_id: str) -> None:
        """Delete the session with its descendants and everything that belongs to them for good, even if it is damaged.

        Raises :class:`~opensesh.errors.BusyError` as :meth:`remove` does. If it is interrupted, it can be repeated.
        """
        family = [session_id, *(child.id for child in self.descendants(session_id))]
        self.refuse_running(family)
        for member in reversed(family):
            self._remove_one(member)

    # -- messages, parts, todos ----------------------------------------------------------------------------------------

    def messages(self, session_id: str, *, last: int = 0, report: Report = log_damage) -> Sequence[StoredMessage]:
        """Return the messages with their parts, oldest first; with ``last``, only that many of the newest."""
        return self.store.messages(session_id, last=last, report=report)

    def stream(self, session_id: str) -> Iterator[StoredMessage]:
        """Iterate over the messages with their parts, newest first. A caller that stops early reads little more than it
        takes."""
        count, seen = 16, set[str]()
        while True:
            messages = self.store.messages(session_id, last=count)
            # Not by number: messages may have been added since the last reading.
            older = list(takewhile(lambda message: message.info["id"] not in seen, messages))
            seen.update(message.info["id"] for message in older)
            yield from reversed(older)
            if len(messages) < count:
                return
            count *= 4

    def add_prompt(self, session_id: str, text: str, *, model: str, agent: str = "build") -> StoredMessage:
        """Store a user message with a text, and return it. It is not answered: :meth:`opensesh.Engine.resume` does it.

        ``model`` is ``provider/model``.
        """
        provider_id, _, model_id = model.partition("/")
        if not provider_id or not model_id:
            raise UsageError(f"a model is named provider/model, not {model!r}")
        self.get(session_id)  # nothing is stored for a session that does not exist
        now, message_id = self._clock(), ids.ascending("msg")
        info = UserMessage(
            id=message_id,
            session_id=ids.check(session_id, "ses"),
            time=MessageTime(created=now),
            agent=agent,
            model=ModelRef(provider_id=provider_id, model_id=model_id),
        )
        part = TextPart(id=ids.ascending("prt"), session_id=session_id, message_id=message_id, text=text)
        message = StoredMessage(info.document, [part.document])
        self.add_message(message)
        self.touch(session_id)
        return message

    def add_message(self, message: StoredMessage) -> None:
        """Store a new message with its parts in one batch. Raises :class:`~opensesh.errors.RecordError`, and stores
        nothing, if one of them is not valid."""
        read_message(message.info)
        for part in message.parts:
            read_part(part)
        with self.store.batch() as batch:
            _write_message(batch, message)
        self._publish_message(message)

    def update_message(self, info: Document) -> None:
        """Store a message record."""
        self.store.write(keys.message(info["sessionID"], info["id"]), info)
        self._publish(events.MessageUpdated(info=info))

    def remove_message(self, session_id: str, message_id: str) -> None:
        """Remove a message and its parts. What its model calls cost still counts for the session."""
        self.remove_messages(session_id, [message_id])

    def remove_messages(self, session_id: str, message_ids: Sequence[str], *, last_first: bool = False) -> None:
        """Remove messages and their parts in one batch, in this order, or with ``last_first`` in the opposite one. The
        events are published in this order."""
        with self.store.batch() as batch:
            for message_id in reversed(message_ids) if last_first else message_ids:
                removed_calls.record(self.store, session_id, message_id)
                for key in self.store.list(("part", message_id)):
                    batch.remove(key)
                batch.remove(keys.message(session_id, message_id))
        for message_id in message_ids:
            self._publish(events.MessageRemoved(session_id=session_id, message_id=message_id))

    def update_part(self, part: Document, *, delta: str | None = None) -> None:
        """Store a part. ``delta`` is the text that was added, for subscribers."""
        self.store.write(keys.part(part["messageID"], part["id"]), part)
        self._publish(events.PartUpdated(part=part, delta=delta))

    def remove_part(self, session_id: str, message_id: str, part_id: str) -> None:
        """Remove one part."""
        self.store.remove(keys.part(message_id, part_id))
        self._publish(events.PartRemoved(session_id=session_id, message_id=message_id, part_id=part_id))

    def todos(self, session_id: str) -> list[Document]:
        """Return the agent's todo list; empty if there is none that can be read."""
        return self._read_list(keys.todo(session_id))

    def set_todos(self, session_id: str, todos: list[Document]) -> None:
        """Replace the agent's todo list."""
        self.store.write(keys.todo(session_id), todos)
        self._publish(events.TodoUpdated(session_id=session_id, todos=todos))

    def diff(self, session_id: str) -> list[Document]:
        """Return the files that the session changed; empty without a readable list of them."""
        return self._read_list(keys.diff(session_id))

    def refuse_running(self, session_ids: Iterable[str]) -> None:
        """Raise :class:`~opensesh.errors.BusyError` if one of the sessions is being run, by any program."""
        leases = leases_of(self.store)
        for session_id in session_ids:
            holder = leases.holder(session_id)
            if holder is not None:
                raise BusyError(f"session {session_id} is being run by {holder}. Stop it first.", session=session_id)

    # -- inside --------------------------------------------------------------------------------------------------------

    def _remove_one(self, session_id: str) -> None:
        def read(key: Key) -> tuple[Key, Document]:
            try:
                return key, self.store.read(key)
            except RecordError:  # a damaged session can still be removed
                return key, {"id": key[-1], "projectID": key[1]}

        key, info = self._with_session_key(session_id, read)
        with self.store.batch() as batch:
            # The session's own record last, so that an interrupted removal can find it again.
            for share_key in (("share", session_id), keys.share(session_id)):
                if self._record_revocation(session_id, share_key):
                    batch.remove(share_key)
            for message in self.store.list(("message", session_id)):
                for part in self.store.list(("part", message[-1])):
                    batch.remove(part)
                batch.remove(message)
            batch.remove(keys.diff(session_id))
            batch.remove(keys.todo(session_id))
            batch.remove(key)
        remove_session_state(self.store, session_id)
        self._projects.pop(session_id, None)
        self._publish(events.SessionDeleted(info=info))

    def _record_revocation(self, session_id: str, key: Key) -> bool:
        """Record that a share is to be revoked; return whether there is a record of the share."""
        try:
            share = view(self.store.read(key), Share)
            revocations.note(session_id, share, store=store_ids(self.store)[0], why="removed")
        except NotFoundError:
            return False
        except RecordError:
            pass  # a share whose secret is lost cannot be revoked
        return True

    def _publish_message(self, message: StoredMessage) -> None:
        self._publish(events.MessageUpdated(info=message.info))
        for part in message.parts:
            self._publish(events.PartUpdated(part=part))

    def _publish(self, event: events.Event) -> None:
        if self._bus is not None:
            self._bus.publish(event, directory=self.location.directory)

    def _key(self, info: Document) -> Key:
        self._projects[info["id"]] = info["projectID"]
        return keys.session(info["projectID"], info["id"])

    def _with_session_key(self, session_id: str, act: Callable[[Key], T]) -> T:
        """Call ``act`` with the key of a session: of the project it was last seen in, of this one, or of any."""
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

    def _read_list(self, key: Key) -> list[Document]:
        try:
            values: list[Any] = as_list(self.store.read(key)) or []
        except NotFoundError:
            return []
        except RecordError as error:
            log_damage(Damage(self.store.locate(key), error.reason))
            return []
        return [value for value in map(as_object, values) if value is not None]


def _new_session(project_id: str, directory: str, session_id: str | None = None) -> Document:
    return {
        "id": ids.descending("ses", session_id),
        "slug": new_slug(),
        "version": f"opensesh-{__version__}",
        "projectID": project_id,
        "directory": directory,
    }


def _write_message(batch: Batch, message: StoredMessage) -> None:
    # The message last: where a batch is not atomic, readers must not see a message without its parts.
    for part in message.parts:
        batch.write(keys.part(part["messageID"], part["id"]), part)
    batch.write(keys.message(message.info["sessionID"], message.info["id"]), message.info)


def _oldest_first(session: Session) -> tuple[int, tuple[int, str]]:
    return session.time.created, ids.order(session.id, session.time.created)
