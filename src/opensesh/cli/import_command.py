"""Bring sessions in: from OpenCode's export JSON, another storage folder, an opencode.db, or a link to a shared one.

Export JSON may also come from standard input, as '-'.

Running it twice changes nothing. A session that both sides have gone on with separately is kept twice: the one that
is here stays, the other becomes a fork of it. Where a session's folder is elsewhere on this machine, say so with --map.
"""

from __future__ import annotations

import ntpath
import os
import sys
from collections import Counter
from typing import TYPE_CHECKING

from ..errors import UsageError
from ..storage import open_store
from . import confirm, output

if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Callable, Iterable

    from ..history.import_export.import_sources import PathMap, SourceSession
    from ..history.import_export.importing import ImportResult
    from ..storage.json_tree import JsonTree
    from ..storage.protocol import Damage
    from .arguments import Parser

_STANDARD_INPUT = "-"


def configure(parser: Parser) -> None:
    """Declare the arguments."""
    parser.add_argument(
        "place", nargs="+", metavar="FILE", help="export JSON, a folder, a database, or a link; - is standard input"
    )
    parser.add_argument("--map", action="append", default=[], metavar="OLD=NEW", help="a folder is elsewhere here")
    parser.add_argument("--keep-paths", action="store_true", help="do not ask where folders are that are not here")
    parser.add_argument("--dry-run", action="store_true", help="only say what would be done")


def run(options: Namespace) -> int:
    """Bring them in, and say what became of each."""
    from ..history.import_export.importing import Importer
    from ..sessions.trash import writable_tree

    tree = writable_tree(open_store(options.store))
    damage: list[Damage] = []
    pairs = dict(_pair(text) for text in options.map)
    found = _fetched(options.place, damage) | _piped(options.place, damage)
    if not options.keep_paths and not options.json and confirm.somebody_is_there():
        pairs |= _asked(options.place, found, pairs)
    _refuse_itself(tree, options.place)
    importer = Importer(tree, paths=_paths(pairs), dry_run=options.dry_run, report=damage.append)
    done: list[ImportResult] = []
    failed = False
    for place in options.place:
        brought = importer.take(_incoming(place, found, damage.append, alone=len(options.place) == 1))
        failed = failed or (not brought and any(path == place for path, _ in damage))
        done += brought
    _tell(done, damage, options)
    return 1 if failed or any(each.act == "skipped" for each in done) else 0


def _piped(places: list[str], damage: list[Damage]) -> dict[str, list[SourceSession]]:
    """The sessions on standard input, read once."""
    if _STANDARD_INPUT not in places:
        return {}
    from ..history.import_export.import_sources import sessions_from_bytes

    data = sys.stdin.buffer.read() if sys.stdin else b""
    if not data.strip():
        raise UsageError("there is nothing on standard input")
    return {_STANDARD_INPUT: list(sessions_from_bytes(data, "standard input", report=damage.append))}


def _fetched(places: list[str], damage: list[Damage]) -> dict[str, list[SourceSession]]:
    """The sessions behind links, fetched once."""
    if not any("://" in place for place in places):
        return {}
    import asyncio

    from ..sharing.links import fetch_shared_session, is_link

    return {
        place: [asyncio.run(fetch_shared_session(place, report=damage.append))] for place in places if is_link(place)
    }


def _incoming(
    place: str, found: dict[str, list[SourceSession]], report: Callable[[Damage], None], *, alone: bool
) -> Iterable[SourceSession]:
    """The sessions at a place. If it is not the only one, something wrong with it stops none of the others."""
    from ..history.import_export.import_sources import read_sessions, read_until_error

    sessions = found[place] if place in found else read_sessions(place, report=report)
    return sessions if alone else read_until_error(sessions, place, report=report)


def _pair(text: str) -> tuple[str, str]:
    old, separator, new = text.partition("=")
    if not separator or not new or not (os.path.isabs(old) or ntpath.isabs(old)):
        raise UsageError(f"{text!r}: write --map OLD=NEW, with OLD as the sessions name it, from / or a drive on")
    return old, os.path.abspath(os.path.expanduser(new))


def _paths(pairs: dict[str, str]) -> PathMap:
    from ..history.import_export.import_sources import PathMap
    from ..project import resolve

    return PathMap(pairs, identify=lambda folder: resolve(folder).id)


def _refuse_itself(tree: JsonTree, places: list[str]) -> None:
    for place in places:
        if os.path.realpath(place) in (os.path.realpath(tree.root), os.path.realpath(os.path.dirname(tree.root))):
            databases = "; to copy the sessions of its database, name that" if os.path.isdir(place) else ""
            raise UsageError(f"{place} is where sessions are brought in{databases}")


def _asked(places: list[str], found: dict[str, list[SourceSession]], pairs: dict[str, str]) -> dict[str, str]:
    """Ask, for each folder that is not here, where it is now."""
    from ..history.import_export.import_sources import PathMap

    known = PathMap(pairs)
    missing: Counter[str] = Counter()
    for place in places:
        for session in _incoming(place, found, lambda damage: None, alone=len(places) == 1):
            folder = known.folder(str(session.info.get("directory") or ""))
            if folder and not os.path.isdir(folder):
                missing[folder] += 1
    answers: dict[str, str] = {}
    for folder, count in sorted(missing.items()):
        said = confirm.ask(f"{folder} ({output.pluralize(count, 'session')}) is not here. Where is it now? [leave it]")
        if said:
            answers[folder] = os.path.abspath(os.path.expanduser(said))
    return answers


def _tell(done: list[ImportResult], damage: list[Damage], options: Namespace) -> None:
    counts = Counter(each.act for each in done)
    if options.json:
        entries = [
            {"sessionID": each.id, "act": each.act, "title": each.title, "records": each.records, "reason": each.reason}
            for each in done
        ]
        lost = [{"path": path, "reason": reason} for path, reason in damage]
        shape = {"dryRun": options.dry_run, "counts": dict(counts), "sessions": entries, "damage": lost}
        output.print_json(shape)
        return
    for each in done:
        if each.act != "unchanged":
            why = f" ({each.reason})" if each.reason else ""
            records = output.pluralize(each.records, "record")
            print(f"{each.act:<9}  {each.id}  {records:>14}  {output.clip(each.title, 60)}{why}")
    would = "would be " if options.dry_run else ""
    parts = [
        f"{counts[act]:,} {would}{act}"
        for act in ("added", "extended", "forked", "unchanged", "skipped")
        if counts[act]
    ]
    print(f"{len(done):,} found: {', '.join(parts)}." if done else "No sessions found.")
    output.tell_damage(damage)
