"""Statistics of tools: calls, failures, duration and size of the results of each tool.

There are no tokens: a model call is billed as a whole, not by tool. The calls of each session are stored with the usage
layer of the derived cache, and read again when its usage was.
"""

from __future__ import annotations

import json
from operator import add
from typing import TYPE_CHECKING, Any, NamedTuple

from ...errors import RecordError
from ...records import Document, as_object
from ..cache.cache_layers import feeds_with
from ..formatting import text
from ..transcript import duration

if TYPE_CHECKING:
    from collections.abc import Sequence
    from sqlite3 import Connection

    from ...storage.change_feeds import ChangeFeed
    from .usage_layer import UsageTable
    from .usage_stats import UsageFilter

_OUTDATED = """
    SELECT u.session, u.generation, u.answers FROM usage u LEFT JOIN tool_usage t ON t.session = u.session
    WHERE t.generation IS NULL OR t.generation != u.generation OR t.unfinished
"""
_ALL = "SELECT u.session, u.answers, t.calls FROM usage u JOIN tool_usage t ON t.session = u.session"


class ToolCalls(NamedTuple):
    """The calls of one tool in one message, or in all messages that count. Caches store them in this order."""

    tool: str
    calls: int = 0
    errors: int = 0
    open: int = 0
    """Unfinished calls."""
    milliseconds: int = 0
    characters: int = 0
    """Characters of output."""

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


def by_tool(usage: UsageTable, usage_filter: UsageFilter) -> list[ToolRow]:
    """Return a row for each tool, most used first. A call that a fork copied is counted once."""
    copied = set[str]().union(*usage.copied.values())
    _refresh(usage)
    rows: dict[str, ToolRow] = {}
    seen: set[str] = set()
    for session, answers, calls in usage.cache.query(usage.layer, lambda db: db.execute(_ALL).fetchall()):
        if not usage_filter.matches_session(usage.infos.get(session)):
            continue
        created = json.loads(answers)
        for message, tools in json.loads(calls).items():
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

    def load(db: Connection) -> list[tuple[str, int, str, list[ChangeFeed]]]:
        rows = db.execute(_OUTDATED).fetchall()
        return [(*row, feeds_with(db, layer, cache.feeds, row[0])) for row in rows]

    rows: list[list[Any]] = []
    for session, generation, answers, feeds in cache.query(layer, load):
        calls = _session_calls(session, list(json.loads(answers)), feeds)
        unfinished = any(tool.open for tools in calls.values() for tool in tools)
        rows.append([session, generation, unfinished, json.dumps(calls)])
    if rows:
        sql = "INSERT OR REPLACE INTO tool_usage VALUES (?, ?, ?, ?)"
        cache.write(lambda db: db.executemany(sql, rows))


def _session_calls(session: str, answers: Sequence[str], feeds: Sequence[ChangeFeed]) -> dict[str, list[ToolCalls]]:
    """Count the calls of each answer by tool, in the store that has most of them."""
    counted: dict[str, list[ToolCalls]] = {}
    for feed in feeds:
        by_message: dict[str, dict[str, ToolCalls]] = {}
        for record in feed.message_parts(session, answers):
            try:
                part = record.document()
            except RecordError:
                continue
            state = as_object(part.get("state"))
            if part.get("type") == "tool" and state is not None:
                tool, status = text(part, "tool"), state.get("status")
                tools = by_message.setdefault(record.message_id, {})
                call = ToolCalls(
                    tool,
                    1,
                    int(status == "error"),
                    int(status in ("pending", "running")),
                    duration(state) or 0,
                    len(text(state, "output")),
                )
                tools[tool] = tools.get(tool, ToolCalls(tool)).plus(call)
        for name, tools in by_message.items():
            if sum(call.calls for call in tools.values()) > sum(call.calls for call in counted.get(name, ())):
                counted[name] = list(tools.values())
    return counted
