"""What a model gets to see of a session, for ``opensesh show --context``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from . import output
from .charts import with_bars

if TYPE_CHECKING:
    from argparse import Namespace

    from ..engine.inspector import Inspection
    from ..records import Session
    from ..storage.protocol import Store


def run(store: Store, session: Session, options: Namespace) -> int:
    """Print one request of the session, taken apart."""
    from ..bus import Bus
    from ..engine.components import Runtime
    from ..engine.inspector import inspect
    from ..project import resolve
    from ..sessions import Sessions
    from .logfile import warnings_told

    sessions = Sessions(store, resolve(session.directory or "."))
    with warnings_told():
        found = inspect(Runtime(sessions, Bus()), session, options.step)
    if options.json:
        output.print_json(found.document())
    else:
        _print(found, all_pieces=options.full)
    return 0


def _print(found: Inspection, *, all_pieces: bool) -> None:
    which = f"step {found.step}, {found.message}" if found.message else f"step {found.step}, the next"
    print(output.paint(f"{found.session}: {which}", 1))
    print(output.clip(f"{found.model}, agent {found.agent}", 200))
    print(_filled(found))
    print()
    rows = [(part, f"{size:,}", _share(size, found)) for part, size in found.parts.items()]
    output.table(*with_bars(("PART", "TOKENS", "SHARE"), rows, [*found.parts.values()], found.room or found.tokens))
    if all_pieces:
        print()
        pieces = [(f"{each.tokens:,}", each.part, each.note, _where(each.message, each.what)) for each in found.pieces]
        output.table(("TOKENS", "PART", "NOTE", "PIECE"), pieces)
    if found.omitted:
        print()
        gone = [(f"{each.tokens:,}", each.why, _where(each.message, each.what)) for each in found.omitted]
        output.table(("TOKENS", "NOT SENT", "WHAT"), gone)
    print()
    for note in found.notes:
        print(output.paint(output.clip(note, 500), 2))
    if not all_pieces:
        print(output.paint("--full lists every piece.", 2))


def _filled(found: Inspection) -> str:
    """How much there is, how much fits, and what the provider says to it."""
    line = f"about {found.tokens:,} tokens"
    if found.room:
        line += f" of {found.room:,} ({100 * found.tokens / found.room:.1f}%; the window is {found.window:,})"
    if found.counted is not None:
        line += f"; the provider counted {found.counted:,}"
    elif found.message is None and found.before is not None:
        line += f"; the provider counted {found.before:,} after the step before"
    return line


def _share(size: int, found: Inspection) -> str:
    return f"{100 * size / (found.room or found.tokens or 1):.1f}%"


def _where(message: str, what: str) -> str:
    return f"{message}  {what}".strip()
