"""How often each tool was called, how often it failed, how long it took and how much it returned.

There are no tokens: a model call is billed as a whole, not by tool. The calls of each session are stored with the usage
layer of the derived cache, and read again when its usage was.
"""

from __future__ import annotations

import json
from operator import add
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from ...records.view import View
from ...storage.change_feeds import UNSTABLE
from ..cache.cache_layers import feeds_with
from .forks import copied_messages

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from sqlite3 import Connection

    from ...records import Document
    from ...storage.change_feeds import ChangeFeed
    from .usage_layer import UsageTable
    from .usage_stats import UsageFilter

    Stored = tuple[str, int, list[list[Any]]]
    """A message, its fingerprint when it was read, and its calls by tool."""

_OUTDATED = """
    SELECT u.session, u.generation, u.answers, t.calls FROM usage u LEFT JOIN tool_usage t ON t.session = u.session
    WHERE t.generation IS NULL OR t.generation != u.generation OR t.unfinished
"""
_ALL = "SELECT u.session, u.answers, u.answer_times, t.calls FROM usage u JOIN tool_usage t ON t.session = u.session"


class ToolCalls(NamedTuple):
    """The calls of one tool in one message, or in all messages that count. Caches store them in this order."""

    tool: str
    calls: int = 0
    errors: int = 0
    open: int = 0
    """Unfinished calls."""
    milliseconds: int = 0
    characters: int = 0
    """Of output."""

    def plus(self, other: ToolCalls) -> ToolCalls:
        """Return the sum of these calls and others of the same tool."""
        return ToolCalls(self.tool, *map(add, self[1:], other[1:]))


class ToolRow:
    """The row of one tool."""

    def __init__(self, tool: str) -> None:
        self.calls = ToolCalls(tool)
        self.messages = 0
        self.sessions: set[str] = set()

    def document(self) -> Document:
        """Return JSON data, with the fields that all rows of statistics have."""
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


class _StateTime(View, frozen=True, kw_only=True):
    start: int | float | None = None
    end: int | float | None = None


class _ToolState(View, frozen=True, kw_only=True):
    status: str = ""
    output: str | None = None
    time: _StateTime | None = None


class _ToolPart(View, frozen=True, kw_only=True):
    type: str = ""
    tool: str = ""
    state: _ToolState | None = None


_decode = msgspec.json.Decoder(_ToolPart).decode


def by_tool(usage: UsageTable, usage_filter: UsageFilter) -> list[ToolRow]:
    """Return a row for each tool, most used first. A call that a fork copied is counted once."""
    copied: set[str] = set()
    for session, positions in copied_messages(usage).items():
        entries = usage.entries(session)
        copied.update(entries[position].id for position in positions)
    _refresh(usage)
    rows: dict[str, ToolRow] = {}
    seen: set[str] = set()
    for session, answers, times, calls in usage.cache.query(usage.layer, lambda db: db.execute(_ALL).fetchall()):
        if not usage_filter.matches_session(usage.infos.get(session)):
            continue
        created = dict(zip(answers.split(), json.loads(times), strict=True))
        for message, _, tools in json.loads(calls):
            if message in copied or message in seen or not usage_filter.matches_time(created.get(message, 0)):
                continue
            seen.add(message)
            for values in tools:
                row = rows.setdefault(values[0], ToolRow(values[0]))
                row.calls = row.calls.plus(ToolCalls(*values))
                row.messages += 1
                row.sessions.add(session)
    return sorted(rows.values(), key=lambda row: (-row.calls.calls, row.calls.tool))


def _refresh(usage: UsageTable) -> None:
    """Read the calls of the sessions whose usage has changed, or which had unfinished calls."""
    cache, layer = usage.cache, usage.layer

    def load(db: Connection) -> list[tuple[str, int, str, str | None, list[ChangeFeed]]]:
        rows = db.execute(_OUTDATED).fetchall()
        return [(*row, feeds_with(db, layer, cache.feeds, row[0])) for row in rows]

    rows: list[list[Any]] = []
    for session, generation, answers, stored, feeds in cache.query(layer, load):
        known: dict[str, Stored] = {entry[0]: entry for entry in json.loads(stored or "[]")}
        calls = _session_calls(session, answers.split(), known, feeds)
        unfinished = any(values[3] for _, _, tools in calls for values in tools)
        rows.append([session, generation, unfinished, json.dumps(calls)])
    if rows:
        sql = "INSERT OR REPLACE INTO tool_usage VALUES (?, ?, ?, ?)"
        cache.write(lambda db: db.executemany(sql, rows))


def _session_calls(
    session: str, answers: Sequence[str], known: Mapping[str, Stored], feeds: Sequence[ChangeFeed]
) -> list[Stored]:
    """Count the calls of each answer. Messages with the same fingerprint are not read again."""
    counted: dict[str, Stored] = {}
    for feed in feeds:
        states = {name: feed.message_state(session, name, full=False) for name in answers}
        fingerprints = {name: state.fingerprint if state else UNSTABLE for name, state in states.items()}
        calls: dict[str, dict[str, ToolCalls]] = {}
        to_read: list[str] = []
        for name in answers:
            before = known.get(name)
            finished = before is not None and not any(values[3] for values in before[2])
            if before is not None and finished and fingerprints[name] != UNSTABLE and before[1] == fingerprints[name]:
                counted[name] = before
            else:
                to_read.append(name)
        for record in feed.message_parts(session, to_read) if to_read else ():
            try:
                content = record.content
                part = _decode(content) if isinstance(content, bytes) else msgspec.convert(content, _ToolPart)
            except (msgspec.MsgspecError, UnicodeError, RecursionError):
                continue
            if part.type == "tool" and part.state is not None:
                state, tools = part.state, calls.setdefault(record.message_id, {})
                took = 0
                if state.time and state.time.start and state.time.end:
                    took = max(int(state.time.end - state.time.start), 0)
                failed, is_open = state.status == "error", state.status in ("pending", "running")
                call = ToolCalls(part.tool, 1, int(failed), int(is_open), took, len(state.output or ""))
                tools[part.tool] = tools.get(part.tool, ToolCalls(part.tool)).plus(call)
        for name, tools in calls.items():
            entry: Stored = name, fingerprints.get(name, UNSTABLE), [list(totals) for totals in tools.values()]
            if tools and (name not in counted or _size(entry) > _size(counted[name])):
                counted[name] = entry
    return list(counted.values())


def _size(entry: Stored) -> int:
    return sum(values[1] for values in entry[2])
