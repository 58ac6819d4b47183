"""Look into the trash, bring back what is in it, empty it; take back an archive or a move.

For ``opensesh session``: :func:`configure` adds the actions, :func:`run` does them.
"""

from __future__ import annotations

import os
import shlex
import sys
from typing import TYPE_CHECKING

from ..errors import NotFoundError, UsageError
from ..storage import open_store
from . import confirm, output
from .list_command import moment

if TYPE_CHECKING:
    from argparse import Namespace

    from ..sessions.trash import Trashed
    from ..storage.json_tree.undo import Undone
    from ..storage.protocol import Store
    from .arguments import Parser

ACTIONS = ("restore", "trash")
_SHOWN = 8


def configure(parser: Parser) -> None:
    """Add the actions to the parser of ``session``."""
    restore = parser.add_action("restore", "take back a remove, an archive or a move")
    restore.add_argument("undo", metavar="WHAT", help="'last', a removed session, or the undo file that was named")
    trash = parser.add_action("trash", "what was removed; --empty deletes it for good")
    trash.add_argument("--empty", action="store_true", help="delete it for good")
    trash.add_argument("--older", metavar="T", help="only what went there before: 2026-08-01, 30d, 4w")
    trash.add_argument("--yes", action="store_true", help="do not ask")


def run(options: Namespace) -> int:
    """Do what was asked."""
    return _restore(options) if options.action == "restore" else _trash(options)


def _restore(options: Namespace) -> int:
    return tell_taken_back(_taken_back(open_store(options.store), options.undo), options)


def tell_taken_back(done: Undone, options: Namespace) -> int:
    """Say what taking back came to; the exit code is 1 if something was left as it is."""
    if options.json:
        left = [{"path": path, "reason": reason} for path, reason in done.left]
        output.print_json({"restored": done.restored, "left": left})
    else:
        print(_told_back(done))
        for path, reason in done.left:
            print(f"left as it is: {path}: {reason}", file=sys.stderr)
    return 1 if done.left else 0


def _told_back(done: Undone) -> str:
    if done.restored:
        return f"{output.pluralize(done.restored, 'file')} put back."
    return "Nothing was put back." if done.left else "There was nothing to put back."


def _taken_back(store: Store, word: str) -> Undone:
    from ..sessions import trash

    if word == "last":
        return _last_taken_back(store)
    if os.path.exists(word) or os.sep in word:
        return trash.restore(os.path.expanduser(word))
    held = {name: each.undo for each in trash.contents(store) for name in each.titles if name.startswith(word)}
    if not held:
        _point_elsewhere(word)
    if len(held) != 1:
        found = "several sessions in the trash begin" if held else "no session in the trash begins"
        raise NotFoundError(f"{found} with {word!r}. 'opensesh session trash' shows them.")
    ((name, undo),) = held.items()
    return trash.restore(undo, name)


def _last_taken_back(store: Store) -> Undone:
    """Take back the last change of which something is left to take back."""
    from ..sessions import trash

    for undo in trash.changes_made(store):
        done = trash.restore(undo)
        if done.restored or done.left:
            return done  # else it was taken back by other means
    raise NotFoundError("nothing was removed, archived or moved that is not taken back already")


def _point_elsewhere(word: str) -> None:
    """Refuse what is in the trash, but was removed from another store."""
    from ..sessions import trash

    for each in trash.contents():
        for name in each.titles:
            if name.startswith(word):
                where = each.header.root
                raise NotFoundError(
                    f"{name} was removed from another store; --store {shlex.quote(where)} has it in its trash"
                )


def _trash(options: Namespace) -> int:
    from ..sessions import trash

    store = open_store(options.store)
    before = moment(options.older, utc=options.utc) if options.older else None
    held = [each for each in trash.contents(store) if before is None or each.header.time < before]
    titles = {each.undo: each.titles for each in held}
    if options.empty and held:
        if not options.yes:
            _ask_to_empty(held)
        held = trash.empty(store, before)
        _take_down_shares(store)
    if options.json:
        entries = [{"undo": each.undo, "time": each.header.time, "sessions": titles[each.undo]} for each in held]
        output.print_json({"emptied": bool(options.empty), "trash": entries})
        return 0
    for each in held:
        _print_trashed(each, titles[each.undo], utc=options.utc)
    count = sum(map(len, titles.values()))
    told = "deleted for good" if options.empty else "in the trash"
    print(f"{output.pluralize(count, 'session')} {told}.", file=sys.stderr)
    return 0


def _print_trashed(each: Trashed, titles: dict[str, str], *, utc: bool) -> None:
    print(output.paint(f"{output.when(each.header.time, utc=utc)}  {each.undo}", 2))
    for name, title in list(titles.items())[:_SHOWN]:
        print(f"  {name}  {output.clip(title, 60)}")
    if len(titles) > _SHOWN:
        print(f"  ... and {len(titles) - _SHOWN:,} more")


def _take_down_shares(store: Store) -> None:
    from ..project import resolve
    from ..sessions import Sessions
    from .session_share import take_down_removed

    take_down_removed(Sessions(store, resolve(os.getcwd())))


def _ask_to_empty(held: list[Trashed]) -> None:
    confirm.need_somebody("say --yes where nobody can be asked")
    count = sum(len(each.titles) for each in held)
    if not confirm.says_yes(f"Delete {output.pluralize(count, 'session')} for good?"):
        raise UsageError("nothing was deleted")
