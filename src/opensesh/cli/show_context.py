"""The request that a model gets for a session, for ``opensesh show --context``."""

from __future__ import annotations

from argparse import Namespace

from ..engine.components import inspect_session
from ..project import resolve
from ..records import Session
from ..sessions import Sessions
from ..storage.protocol import Store
from . import output
from .logfile import show_warnings


def run(store: Store, session: Session, options: Namespace) -> int:
    """Print the parts of one request of the session."""
    sessions = Sessions(store, resolve(session.directory or ".", store=store))
    with show_warnings():
        request = inspect_session(sessions, session, options.step)
    if options.json:
        output.print_json(request.document())
        return 0
    step = f"step {request.step}, {request.message}" if request.message else f"step {request.step}, the next"
    limit = request.usable_tokens or request.tokens
    size = f"about {request.tokens:,} tokens"
    if request.usable_tokens:
        share = 100 * request.tokens / request.usable_tokens
        size += f" of {request.usable_tokens:,} ({share:.1f}%; the window is {request.window:,})"
    if request.counted is not None:
        size += f"; the provider counted {request.counted:,}"
    elif request.message is None and request.before is not None:
        size += f"; the provider counted {request.before:,} after the previous step"
    print(output.paint(f"{request.session}: {step}", 1))
    print(output.clip(f"{request.model}, agent {request.agent}", 200))
    print(f"{size}\n")
    rows = [(part, f"{tokens:,}", f"{100 * tokens / (limit or 1):.1f}%") for part, tokens in request.parts.items()]
    heads = ("PART", "TOKENS", "SHARE")
    if request.message:  # of the next request, everything is as it will be sent
        rows = [(*row, source) for row, source in zip(rows, request.sources.values(), strict=True)]
        heads = (*heads, "SOURCE")
    output.table_with_bars(heads, rows, [*request.parts.values()], limit)
    if options.full:
        print()
        pieces = [
            (f"{piece.tokens:,}", piece.part, piece.note, f"{piece.message}  {piece.what}".strip())
            for piece in request.pieces
        ]
        output.table(("TOKENS", "PART", "NOTE", "PIECE"), pieces)
    if request.omitted:
        print()
        omitted = [
            (f"{piece.tokens:,}", piece.why, f"{piece.message}  {piece.what}".strip()) for piece in request.omitted
        ]
        output.table(("TOKENS", "NOT SENT", "WHAT"), omitted)
    print()
    for note in request.notes:
        print(output.paint(output.clip(note, 500), 2))
    if not options.full:
        print(output.paint("--full lists every piece.", 2))
    return 0
