"""List removed sessions, restore or delete them; undo an archive or a move."""

from __future__ import annotations

import os
import shlex
import sys
from argparse import Namespace
from collections.abc import Sequence

from ..errors import NotFoundError, UsageError
from ..history.user_times import parse_time
from ..records import Document
from ..sessions import Sessions, trash
from ..sessions.undo import Undone
from ..storage.protocol import Store
from ..text import pluralize
from . import output
from .terminal import confirm, ensure_can_ask, error_stream

_SESSIONS_SHOWN = 8


def run(options: Namespace, sessions: Sessions) -> int:
    """Restore sessions, or list or empty the trash."""
    store = sessions.store
    if options.action == "restore":
        return print_restored(_restore(store, options.undo), options)
    before = parse_time(options.older, utc=options.utc) if options.older else None
    entries: list[Document] = [
        {"undo": item.undo, "time": item.time, "sessions": item.titles}
        for item in trash.contents(store)
        if before is None or item.time < before
    ]
    if options.empty and entries:
        confirm_deletion(entries, options)
        deleted = {item.undo for item in trash.empty(store, before)}
        entries = [entry for entry in entries if entry["undo"] in deleted]
        from .session_share import unshare_deleted  # sharing takes long to load

        unshare_deleted(sessions)
    print_trash(entries, options)
    return 0


def confirm_deletion(entries: Sequence[Document], options: Namespace) -> None:
    """Raise :class:`~opensesh.errors.UsageError` unless the user confirms that the sessions are deleted."""
    if options.yes:
        return
    ensure_can_ask("confirm with --yes")
    titles = [pair for entry in entries for pair in entry["sessions"].items()]
    for session_id, title in titles:
        print(f"  {session_id}  {output.clip(title, 60)}", file=sys.stderr)
    if not confirm(f"Delete {pluralize(len(titles), 'session')} permanently?"):
        raise UsageError("nothing was deleted")


def print_trash(entries: Sequence[Document], options: Namespace) -> None:
    """Print removals that are in the trash, or that were deleted."""
    if options.json:
        output.print_json({"emptied": bool(options.empty), "trash": entries})
        return
    for entry in entries:
        names = entry["sessions"]
        print(output.paint(f"{output.format_time(entry['time'], utc=options.utc)}  {entry['undo']}", 2))
        for name, title in list(names.items())[:_SESSIONS_SHOWN]:
            print(f"  {name}  {output.clip(title, 60)}")
        if len(names) > _SESSIONS_SHOWN:
            print(f"  ... and {len(names) - _SESSIONS_SHOWN:,} more")
    state = "deleted permanently" if options.empty else "in the trash"
    print(f"{pluralize(sum(len(entry['sessions']) for entry in entries), 'session')} {state}.", file=sys.stderr)


def print_restored(result: Undone, options: Namespace) -> int:
    """Print what was restored. The exit code is 1 if some records were not."""
    if options.json:
        output.print_json({"restored": result.restored, "left": [damage._asdict() for damage in result.left]})
    else:
        if result.restored:
            print(f"{pluralize(result.restored, 'record')} restored.")
        else:
            print("Nothing was restored." if result.left else "There was nothing to restore.")
        for path, reason in result.left:
            print(f"not restored: {path}: {reason}", file=error_stream())
    return 1 if result.left else 0


def _restore(store: Store, word: str) -> Undone:
    if word == "last":
        for undo in trash.changes_made(store):
            result = trash.restore(undo, store=store)
            if result.restored or result.left:  # else it has been undone by other means
                return result
        raise NotFoundError("nothing to undo: no remove, archive or move is left")
    if os.path.exists(word) or os.sep in word:
        return trash.restore(os.path.expanduser(word), store=store)
    undo_files = {name: item.undo for item in trash.contents(store) for name in item.titles if name.startswith(word)}
    if not undo_files:
        for item in trash.contents():
            for name in item.titles:
                if name.startswith(word):
                    other = shlex.quote(item.files[0][1].root)
                    raise NotFoundError(f"{name} was removed from another store; restore it with --store {other}")
        raise NotFoundError(f"no session in the trash begins with {word!r}. 'opensesh session trash' lists them.")
    if len(undo_files) > 1:
        raise NotFoundError(f"several sessions in the trash begin with {word!r}. 'opensesh session trash' lists them.")
    ((name, undo),) = undo_files.items()
    return trash.restore(undo, name, store=store)
