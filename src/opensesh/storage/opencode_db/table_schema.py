"""The tables that opensesh writes, as each version of OpenCode has them.

A database is written only if its tables are exactly those that OpenCode's migrations make, as far as they were applied:
every column with its type, constraints and default, the unique indexes and the foreign keys. The order of columns and
the text of the statements that created them do not count, for an upgraded file differs in both from a new one. Anything
unknown (a column, a trigger, a migration) makes the database read-only, and :attr:`Schema.refusal` says what it is.
"""

from __future__ import annotations

import re
from contextlib import suppress
from sqlite3 import OperationalError
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable
    from sqlite3 import Connection

NEWEST = "1.18"
"""The newest version of OpenCode whose databases are known."""

_TIMES = "time_created INTEGER!, time_updated INTEGER!"
_ADDED: tuple[tuple[str, dict[str, str]], ...] = (
    (
        "20260127222353_familiar_lady_ursula",
        {
            "project": f"id TEXT KEY, worktree TEXT!, vcs TEXT, name TEXT, icon_url TEXT, icon_color TEXT, {_TIMES}, "
            "time_initialized INTEGER, sandboxes TEXT!",
            "session": "id TEXT KEY, project_id TEXT!, parent_id TEXT, slug TEXT!, directory TEXT!, title TEXT!, "
            "version TEXT!, share_url TEXT, summary_additions INTEGER, summary_deletions INTEGER, "
            "summary_files INTEGER, summary_diffs TEXT, revert TEXT, permission TEXT, "
            f"{_TIMES}, time_compacting INTEGER, time_archived INTEGER",
            "message": f"id TEXT KEY, session_id TEXT!, {_TIMES}, data TEXT!",
            "part": f"id TEXT KEY, message_id TEXT!, session_id TEXT!, {_TIMES}, data TEXT!",
            "todo": "session_id TEXT! KEY, content TEXT!, status TEXT!, priority TEXT!, position INTEGER! KEY, "
            f"{_TIMES}",
            "session_share": f"session_id TEXT KEY, id TEXT!, secret TEXT!, url TEXT!, {_TIMES}",
        },
    ),
    ("20260211171708_add_project_commands", {"project": "commands TEXT"}),
    ("20260227213759_add_session_workspace_id", {"session": "workspace_id TEXT"}),
    (
        "20260323234822_events",
        {
            "event": "id TEXT KEY, aggregate_id TEXT!, seq INTEGER!, type TEXT!, data TEXT!",
            "event_sequence": "aggregate_id TEXT KEY, seq INTEGER!",
        },
    ),
    ("20260423070820_add_icon_url_override", {"project": "icon_url_override TEXT"}),
    ("20260428004200_add_session_path", {"session": "path TEXT"}),
    ("20260501142318_next_venus", {"session": "agent TEXT, model TEXT"}),
    ("20260504145000_add_sync_owner", {"event_sequence": "owner_id TEXT"}),
    (
        "20260510033149_session_usage",
        {
            "session": "cost REAL! = 0, tokens_input INTEGER! = 0, tokens_output INTEGER! = 0, "
            "tokens_reasoning INTEGER! = 0, tokens_cache_read INTEGER! = 0, tokens_cache_write INTEGER! = 0"
        },
    ),
    ("20260511173437_session-metadata", {"session": "metadata TEXT"}),
    ("20260604172448_event_sourced_session_input", {"event": "UNIQUE (aggregate_id, seq)"}),
)
"""What each migration of OpenCode adds to the written tables; all others leave them alone.

Versions differ in the number of migrations that they have applied: 3 in 1.2.1, 9 in 1.2.27, 16 in 1.14.34, 17 in
1.14.41, 20 in 1.15.0, 21 in 1.15.13, 32 in 1.17.0, 38 in 1.17.11 and later. These are not always the first ones: 1.2.20
has applied the seventh without the sixth.
"""

_REFERENCES = {
    "session": "project_id -> project",
    "message": "session_id -> session",
    "part": "message_id -> message",
    "todo": "session_id -> session",
    "session_share": "session_id -> session",
    "event": "aggregate_id -> event_sequence",
}

MIGRATIONS = frozenset(
    """
    20260127222353_familiar_lady_ursula 20260211171708_add_project_commands 20260213144116_wakeful_the_professor
    20260225215848_workspace 20260227213759_add_session_workspace_id 20260228203230_blue_harpoon
    20260303231226_add_workspace_fields 20260309230000_move_org_to_state 20260312043431_session_message_cursor
    20260323234822_events 20260410174513_workspace-name 20260413175956_chief_energizer
    20260423070820_add_icon_url_override 20260427172553_slow_nightmare 20260428004200_add_session_path
    20260501142318_next_venus 20260504145000_add_sync_owner 20260507164347_add_workspace_time
    20260510033149_session_usage 20260511000411_data_migration_state 20260511173437_session-metadata
    20260601010001_normalize_storage_paths 20260601202201_amazing_prowler 20260602002951_lowly_union_jack
    20260602182828_add_project_directories 20260603001617_session_message_projection_indexes
    20260603040000_session_message_projection_order 20260603141458_session_input_inbox
    20260603160727_jittery_ezekiel_stane 20260604172448_event_sourced_session_input
    20260605003541_add_session_context_snapshot 20260605042240_add_context_epoch_agent 20260611035744_credential
    20260611192811_lush_chimera 20260612174303_project_dir_strategy 20260622142730_simplify_session_context_epoch
    20260622170816_reset_v2_session_state 20260622202450_simplify_session_input
    """.split()
)
"""The migrations of OpenCode up to 1.18.34."""


class Schema(NamedTuple):
    """The written tables of one database."""

    columns: dict[str, frozenset[str]]
    """The names of the columns of each written table that the database has."""
    logs_events: bool
    """Whether OpenCode logs every change of this database in ``event``."""
    has_accounts: bool
    """Whether OpenCode keeps accounts in this database (1.2.27 and later)."""
    refusal: str
    """Why the database must not be written; empty if it may be."""


def examine(connection: Connection) -> Schema:
    """Compare the tables of a database with those that its migrations make."""
    master = [
        (kind, name.decode(errors="replace"))
        for kind, name in connection.execute("SELECT CAST(type AS TEXT), CAST(name AS BLOB) FROM sqlite_master")
    ]
    tables = {name for kind, name in master if kind in (b"table", "table")}
    actual = {table: _describe(connection, table) for table in sorted(_WRITTEN & tables)}
    columns = {
        table: frozenset(fact.split(" ", 1)[0] for fact in facts if not fact.startswith(_NOT_A_COLUMN))
        for table, facts in actual.items()
    }
    if "migration" in tables and not _has_column(connection, "migration", "id"):
        applied: set[str] = set()
        problems = ["its table migration lacks id"]
    else:
        applied = _applied_migrations(connection, tables)
        problems = [f"the migration {name} is not known" for name in sorted(applied - MIGRATIONS)]
    problems = [
        *(f"it has the trigger {name}" for kind, name in master if kind in (b"trigger", "trigger")),
        *(f"it has the view {name}" for kind, name in master if kind in (b"view", "view")),
        *(f"it has the table {name} of OpenCode 2" for name in ("session_v2",) if name in tables),
        *problems,
        *min((list(_differences(expected, actual)) for expected in _expected(applied)), key=len),
    ]
    refusal = "; ".join(problems[:3]) + ("; and more" if len(problems) > 3 else "")
    # Since 1.16 OpenCode records its migrations in a table of that name.
    logs_events = "migration" in tables and "event" in columns
    return Schema(columns, logs_events, "account" in tables or "event" in columns, refusal)


def tables_version(connection: Connection) -> tuple[int, int]:
    """Return numbers that change with the tables, and with a migration that changes only their rows."""
    (version,) = connection.execute("PRAGMA schema_version").fetchone()
    for count in _COUNT_MIGRATIONS:
        with suppress(OperationalError):  # no such table
            return version, *connection.execute(count).fetchone()
    return version, 0


def _describe(connection: Connection, table: str) -> frozenset[str]:
    """Return facts about a table, one a column, unique index and foreign key, in the words of :data:`_ADDED`.

    Clauses that no table of OpenCode has are facts as well.
    """
    (sql,) = connection.execute("SELECT sql FROM sqlite_master WHERE type = 'table' AND name = ?", [table]).fetchone()
    facts = {f"CLAUSE {clause.upper()}" for clause in _UNKNOWN_CLAUSES.findall(as_text(sql))}
    for _, name, kind, not_null, default, key, _ in connection.execute(f"PRAGMA table_xinfo({table})"):
        value = "" if default is None else f" = {as_text(default).strip(_QUOTES)}"
        facts.add(f"{as_text(name)} {as_text(kind).upper()}{'!' if not_null else ''}{value}{' KEY' if key else ''}")
    for _, index, unique, origin, *_ in connection.execute(f"PRAGMA index_list({table})").fetchall():
        if unique and as_text(origin) != "pk":
            names = [as_text(row[2] or b"?") for row in connection.execute(f'PRAGMA index_info("{as_text(index)}")')]
            facts.add(f"UNIQUE ({', '.join(names)})")
    for row in connection.execute(f"PRAGMA foreign_key_list({table})").fetchall():
        action = "" if as_text(row[6]) == "CASCADE" else f" on delete {as_text(row[6])}"
        facts.add(f"REFERENCES {as_text(row[3])} -> {as_text(row[2])}{action}")
    return frozenset(facts)


def _differences(expected: dict[str, frozenset[str]], actual: dict[str, frozenset[str]]) -> Iterable[str]:
    for table in sorted(_WRITTEN):
        if table not in actual and table in expected:
            yield f"it has no table {table}"
            continue
        declared, present = expected.get(table, _NONE), actual.get(table, _NONE)
        yield from (f"its table {table} has an unknown {fact}" for fact in sorted(present - declared))
        yield from (f"its table {table} lacks {fact}" for fact in sorted(declared - present))


def _applied_migrations(connection: Connection, tables: set[str]) -> set[str]:
    """Return the migrations that OpenCode has recorded, by name. Up to 1.2.20 it recorded only their times."""
    if "migration" in tables:
        applied = {as_text(row[0]) for row in connection.execute("SELECT id FROM migration")}
        if applied:
            return applied
    if "__drizzle_migrations" not in tables:
        return set()
    has_names = _has_column(connection, "__drizzle_migrations", "name")
    rows = connection.execute(_NAMES if has_names else _TIMES_OF_MIGRATIONS)
    by_stamp = {name.partition("_")[0]: name for name in MIGRATIONS}
    return {by_stamp.get(text, text) for text in (as_text(row[0]) for row in rows)}


def _expected(applied: set[str]) -> Iterable[dict[str, frozenset[str]]]:
    """Return the tables that these migrations make; if none are recorded, those after each migration."""
    if applied:
        return [_tables_after(name for name, _ in _ADDED if name in applied)]
    return [_tables_after(name for name, _ in _ADDED[:count]) for count in range(1, len(_ADDED) + 1)]


def _tables_after(migrations: Iterable[str]) -> dict[str, frozenset[str]]:
    """Return the facts about the written tables after these migrations."""
    added = dict(_ADDED)
    tables: dict[str, frozenset[str]] = {}
    for migration in migrations:
        for table, facts in added[migration].items():
            new = {facts} if facts.startswith("UNIQUE") else set(facts.split(", "))
            if table not in tables and table in _REFERENCES:
                new.add(f"REFERENCES {_REFERENCES[table]}")
            tables[table] = tables.get(table, _NONE) | new
    return tables


def _has_column(connection: Connection, table: str, column: str) -> bool:
    return column in {as_text(row[1]) for row in connection.execute(f"PRAGMA table_info({table})")}


def as_text(value: object) -> str:
    """Return a value of SQLite as text; text comes as bytes."""
    return value.decode(errors="replace") if isinstance(value, bytes) else str(value)


_NONE: frozenset[str] = frozenset()
_QUOTES = "'\""
_NOT_A_COLUMN = ("UNIQUE ", "REFERENCES ", "CLAUSE ")
_UNKNOWN_CLAUSES = re.compile(r"\b(CHECK|COLLATE|GENERATED|CONFLICT|STRICT|WITHOUT|DEFERRABLE)\b", re.IGNORECASE)
_NAMES = "SELECT name FROM __drizzle_migrations WHERE name IS NOT NULL"
_TIMES_OF_MIGRATIONS = "SELECT strftime('%Y%m%d%H%M%S', created_at / 1000, 'unixepoch') FROM __drizzle_migrations"
_COUNT_MIGRATIONS = ("SELECT count(*) FROM migration", "SELECT count(*) FROM __drizzle_migrations")
_WRITTEN = frozenset(table for _, tables in _ADDED for table in tables)
