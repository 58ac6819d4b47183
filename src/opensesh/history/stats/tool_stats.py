"""How often each tool was called, how often it failed, how long it took and how much it answered.

Which tokens a tool cost cannot be told: a model call is billed as a whole. So there are none here.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from ...records import Document, as_object
from ...records.view import View
from ...storage import open_store
from ...storage.disk import read_file
from .cache_files import cache_file, database_marks, load, mark, save, settled
from .forks import copies
from .tree_folders import records

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ...storage.protocol import Damage, Store
    from .ledger import Ledger
    from .usage_stats import UsageFilter

_VERSION = 1


class Calls:
    """What one tool did within one message, or within all that were asked for."""

    __slots__ = ("calls", "characters", "errors", "milliseconds", "open", "tool")

    def __init__(self, tool: str, *counts: int) -> None:
        self.tool = tool
        self.calls, self.errors, self.open, self.milliseconds, self.characters = counts or (0, 0, 0, 0, 0)

    @property
    def plain(self) -> tuple[Any, ...]:
        """All of it: calls, errors, those neither answered nor failed, time, and characters of output."""
        return self.tool, self.calls, self.errors, self.open, self.milliseconds, self.characters

    def add(self, other: Calls) -> None:
        """Sum up."""
        self.calls += other.calls
        self.errors += other.errors
        self.open += other.open
        self.milliseconds += other.milliseconds
        self.characters += other.characters


class ToolRow:
    """One tool."""

    def __init__(self, tool: str) -> None:
        self.calls = Calls(tool)
        self.messages = 0
        self.sessions: set[str] = set()

    def document(self) -> Document:
        """For machines; with the fields that all rows of statistics have."""
        return {
            "key": self.calls.tool,
            "calls": self.calls.calls,
            "errors": self.calls.errors,
            "open": self.calls.open,
            "seconds": self.calls.milliseconds / 1000,
            "characters": self.calls.characters,
            "messages": self.messages,
            "tokens": None,
            "cost": None,
            "repriced": None,
            "sessions": len(self.sessions),
        }


class _Time(View, frozen=True, kw_only=True):
    start: int | float | None = None
    end: int | float | None = None


class _State(View, frozen=True, kw_only=True):
    status: str = ""
    output: str | None = None
    time: _Time | None = None


class _Part(View, frozen=True, kw_only=True):
    type: str = ""
    tool: str = ""
    state: _State | None = None


class _Message(NamedTuple):
    """One message's calls, and when its folder of parts last changed."""

    id: str
    created: int
    folder: int
    calls: list[Calls]


class _Known(NamedTuple):
    """The calls of one store, as kept in the cache."""

    store: list[tuple[str, int, int]] = []
    sessions: dict[str, tuple[bytes, list[_Message]]] = {}
    """By session: which messages it had, and what each of its answers called."""


_decode = msgspec.json.Decoder(_Part).decode


def by_tool(ledger: Ledger, choice: UsageFilter, *, fresh: bool = False) -> list[ToolRow]:
    """A row a tool, most used first. A call that a fork copied is counted once."""
    inherited: set[str] = set()
    for session, positions in copies(ledger).items():
        entries = ledger.entries(session)
        inherited.update(entries[position].id for position in positions)
    found: dict[str, tuple[str, _Message]] = {}
    for member in ledger.members or (ledger,):
        for session, message in _messages(member, fresh=fresh):
            held = found.get(message.id)
            if message.id not in inherited and (held is None or _size(message) > _size(held[1])):
                found[message.id] = (session, message)
    rows: dict[str, ToolRow] = {}
    for session, message in found.values():
        if choice.counts(message.created) and choice.session(ledger.facts.get(session)):
            for calls in message.calls:
                row = rows.setdefault(calls.tool, ToolRow(calls.tool))
                row.calls.add(calls)
                row.messages += 1
                row.sessions.add(session)
    return sorted(rows.values(), key=lambda row: (-row.calls.calls, row.calls.tool))


def _messages(ledger: Ledger, *, fresh: bool) -> Iterator[tuple[str, _Message]]:
    path = "" if fresh else cache_file("tools", ledger.place)
    held = _load(path, ledger.place)
    if os.path.isdir(ledger.place):
        known = _Known([], {name: _of_session(ledger, name, held) for name in ledger.accounts})
    else:
        marks = database_marks(ledger.place)
        known = held
        if not marks or held.store != marks:
            known = _Known(marks, _of_store(ledger.store or open_store(ledger.place)))
    _save(path, ledger.place, held, known)
    for session, (_, messages) in known.sessions.items():
        for message in messages:
            yield session, message


def _load(path: str, place: str) -> _Known:
    found = load(path, place)
    if found is None or found[0] != _VERSION:
        return _Known()
    sessions = {name: (names, [_restored(each) for each in messages]) for name, (names, messages) in found[2].items()}
    return _Known(found[1], sessions)


def _restored(held: tuple[str, int, int, list[Any]]) -> _Message:
    name, created, folder, calls = held
    return _Message(name, created, folder, [Calls(*each) for each in calls])


def _save(path: str, place: str, before: _Known, known: _Known) -> None:
    if not path or known == before:
        return
    sessions = {
        name: (names, [(*each[:3], [calls.plain for calls in each.calls]) for each in messages])
        for name, (names, messages) in known.sessions.items()
    }
    save(path, place, (_VERSION, known.store, sessions))


def _of_session(ledger: Ledger, session: str, held: _Known) -> tuple[bytes, list[_Message]]:
    """The calls of a session in a tree; folders of parts that have not changed are not read again."""
    names = ledger.accounts[session].id_hashes
    before, messages = held.sessions.get(session, (b"", []))
    if before == names:
        moments = [(message.id, message.created) for message in messages]
    else:
        moments = [(entry.id, entry.created) for entry in ledger.entries(session) if entry.role == "assistant"]
    known = {message.id: message for message in messages}
    return names, [_of_message(ledger.place, name, created, known.get(name)) for name, created in moments]


def _of_message(root: str, name: str, created: int, held: _Message | None) -> _Message:
    folder = os.path.join(root, "part", name)
    changed = mark(folder)[0]
    if held is not None and held.folder == changed:
        return held
    calls: dict[str, Calls] = {}
    for record in records(folder):
        try:
            _count(calls, _decode(read_file(os.path.join(folder, record))))
        except (OSError, msgspec.MsgspecError, UnicodeError, RecursionError):
            continue
    ended = not any(each.open for each in calls.values())
    return _Message(name, created, settled(changed) if ended else 0, list(calls.values()))


def _of_store(store: Store) -> dict[str, tuple[bytes, list[_Message]]]:
    """The calls of every session of a store that is not made of files."""
    calls: dict[str, dict[str, Calls]] = {}
    for key, value in store.scan(("part",), report=_overlook):
        try:
            _count(calls.setdefault(key[1], {}), msgspec.convert(value, _Part))
        except (msgspec.ValidationError, UnicodeError):
            continue
    sessions: dict[str, tuple[bytes, list[_Message]]] = {}
    for key, value in store.scan(("message",), report=_overlook):
        if calls.get(key[-1]):
            created = (as_object((as_object(value) or {}).get("time")) or {}).get("created")
            moment = int(created) if isinstance(created, (int, float)) else 0
            message = _Message(key[-1], moment, 0, list(calls[key[-1]].values()))
            sessions.setdefault(key[1], (b"", []))[1].append(message)
    return sessions


def _count(calls: dict[str, Calls], part: _Part) -> None:
    if part.type != "tool" or part.state is None:
        return
    found = calls.setdefault(part.tool, Calls(part.tool))
    state = part.state
    found.calls += 1
    found.errors += state.status == "error"
    found.open += state.status in ("pending", "running")
    found.characters += len(state.output or "")
    if state.time and state.time.start and state.time.end:
        found.milliseconds += max(int(state.time.end - state.time.start), 0)


def _size(message: _Message) -> int:
    return sum(each.calls for each in message.calls)


def _overlook(_: Damage) -> None:
    """The ledger has told of it already."""
