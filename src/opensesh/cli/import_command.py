"""Import sessions: OpenCode's export JSON, another storage folder, an opencode.db, or the link of a shared session.

Export JSON is also read from standard input ('-'). Importing twice changes nothing. If a session was continued
separately in both stores, the one here stays and the other is added as a fork. If the folders of sessions have another
path on this machine, name it with --map.
"""

from __future__ import annotations

import asyncio
import ntpath
import os
import sys
from argparse import Namespace
from collections import Counter
from collections.abc import Callable, Iterable

from ..errors import UsageError
from ..history.import_export.import_sources import (
    PathMap,
    SourceSession,
    read_sessions,
    read_until_error,
    sessions_from_bytes,
)
from ..history.import_export.importing import Importer, ImportResult
from ..project import resolve
from ..sessions.trash import writable_store
from ..storage import open_store
from ..storage.protocol import Damage, conventions_of, ignore_damage
from ..text import pluralize
from . import output
from .command_arguments import CommandParser
from .terminal import ask, can_ask

_STANDARD_INPUT = "-"


def configure(parser: CommandParser) -> None:
    """Declare the arguments."""
    parser.add_argument(
        "source", nargs="+", metavar="FILE", help="export JSON, a folder, a database, or a link; - is standard input"
    )
    parser.add_argument("--map", action="append", default=[], metavar="OLD=NEW", help="replace a folder by another")
    parser.add_argument("--keep-paths", action="store_true", help="do not ask where missing folders are")
    parser.add_argument("--dry-run", action="store_true", help="only show what would be done")


def run(options: Namespace) -> int:
    """Import the sessions, and print what was done with each."""
    store = open_store(options.store)
    target = writable_store(store)
    damage: list[Damage] = []
    folders: dict[str, str] = {}
    for text in options.map:
        old, separator, new = text.partition("=")
        if not separator or not new or not (os.path.isabs(old) or ntpath.isabs(old)):
            raise UsageError(f"{text!r}: write --map OLD=NEW, with OLD as an absolute path")
        folders[old] = os.path.abspath(os.path.expanduser(new))
    # Links and standard input can be read only once.
    fetched: dict[str, list[SourceSession]] = {}
    if links := [source for source in options.source if source.startswith(("https://", "http://"))]:
        from ..sharing.client import fetch_shared_session  # httpx takes long to load

        fetched = {link: [asyncio.run(fetch_shared_session(link, report=damage.append))] for link in links}
    if _STANDARD_INPUT in options.source:
        data = sys.stdin.buffer.read() if sys.stdin else b""
        if not data.strip():
            raise UsageError("standard input is empty")
        fetched[_STANDARD_INPUT] = list(sessions_from_bytes(data, "standard input", report=damage.append))

    def read(source: str, report: Callable[[Damage], None]) -> Iterable[SourceSession]:
        """Return the sessions of a source. Among several, one that cannot be read does not stop the others."""
        sessions = fetched[source] if source in fetched else read_sessions(source, report=report)
        return sessions if len(options.source) == 1 else read_until_error(sessions, source, report=report)

    if not options.keep_paths and not options.json and can_ask():
        sessions = (session for source in options.source for session in read(source, ignore_damage))
        folders |= _ask_for_folders(sessions, folders)
    own = (os.path.realpath(target.place), os.path.realpath(os.path.dirname(target.place)))
    same = next((source for source in options.source if os.path.realpath(source) in own), None)
    if same is not None:
        hint = f"; to copy the sessions of another store to {target.place}, name that store"
        raise UsageError(f"{same} is the store that sessions are imported into{hint if os.path.isdir(same) else ''}")
    paths = PathMap(
        folders,
        identify=lambda folder: resolve(folder, store=target).id,
        identify_all=conventions_of(target).projects_by_remote,
    )
    importer = Importer(store, paths=paths, dry_run=options.dry_run, report=damage.append)
    results: list[ImportResult] = []
    failed = False
    for source in options.source:
        imported = importer.take(read(source, damage.append))
        failed = failed or (not imported and any(path == source for path, _ in damage))
        results += imported
    _print_results(results, damage, options)
    return 1 if failed or any(result.act == "skipped" for result in results) else 0


def _ask_for_folders(sessions: Iterable[SourceSession], folders: dict[str, str]) -> dict[str, str]:
    """Return where the folders of the sessions are now that do not exist here, as far as the user knows it."""
    known = PathMap(folders)
    named = (known.folder(str(session.info.get("directory") or "")) for session in sessions)
    missing = Counter(folder for folder in named if folder and not os.path.isdir(folder))
    answers: dict[str, str] = {}
    for folder, number in sorted(missing.items()):
        amount = pluralize(number, "session")
        answer = ask(f"{folder} ({amount}) does not exist here. Where is it now? [leave it]")
        if answer:
            answers[folder] = os.path.abspath(os.path.expanduser(answer))
    return answers


def _print_results(results: list[ImportResult], damage: list[Damage], options: Namespace) -> None:
    counts = Counter(result.act for result in results)
    if options.json:
        sessions = [
            {"sessionID": one.id, "act": one.act, "title": one.title, "records": one.records, "reason": one.reason}
            for one in results
        ]
        lost = [entry._asdict() for entry in damage]
        output.print_json({"dryRun": options.dry_run, "counts": dict(counts), "sessions": sessions, "damage": lost})
        return
    for result in results:
        if result.act != "unchanged":
            reason = f" ({result.reason})" if result.reason else ""
            records = pluralize(result.records, "record")
            print(f"{result.act:<9}  {result.id}  {records:>14}  {output.clip(result.title, 60)}{reason}")
    would = "would be " if options.dry_run else ""
    acts = [
        f"{counts[act]:,} {would}{act}"
        for act in ("added", "extended", "forked", "unchanged", "skipped")
        if counts[act]
    ]
    print(f"{pluralize(len(results), 'session')}: {', '.join(acts)}." if results else "No sessions found.")
    output.report_damage(damage)
