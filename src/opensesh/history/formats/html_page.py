"""A session as one page that needs nothing else: no file, no network, no script but its own few lines.

The page forbids everything it does not bring along (see the policy in its head): a script that came with a session
would not run even if it were written into the page unescaped, which it is not.
"""

from __future__ import annotations

import os
from base64 import b64encode
from functools import cache
from hashlib import sha256
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from ...records import as_object, dumps
from ..formatting import text, when
from ..stats.money import dollars, units
from ..transcript import ReasoningBlock, TextBlock, ToolBlock
from .turns import Child, Image, Note, turns, who

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from jinja2 import Environment

    from ...records import Document
    from ..transcript import TranscriptMessage
    from . import ExportedSession, FormatOptions
    from .turns import Piece

_NOTE = "Exported by opensesh. This page holds everything it shows and asks nothing of the network."
_LONGEST_PROMPT = 200
_FOLDER = os.path.join(os.path.dirname(__file__), "page")


class HtmlFormat:
    """A page a session."""

    suffix = ".html"
    together = None
    nests = True
    reads = None

    def __init__(self, options: FormatOptions, *, note: str = _NOTE, user: str = "You") -> None:
        """``note`` is what the foot of the page says, ``user`` what it calls whoever prompted."""
        self._options = options
        self._note = note
        self._user = user

    def pieces(self, session: ExportedSession) -> Iterator[bytes]:
        """One page, a piece at a time."""
        parts = {
            "page": self._page(session),
            "policy": page_policy(),
            "note": self._note,
            "indexed": self._options.indexed,
        }
        for piece in _template("session.html").generate(parts):
            yield piece.encode(errors="replace")

    def _page(self, session: ExportedSession) -> Document:
        info = session.info
        time = as_object(info.get("time")) or {}
        return {
            "id": session.id,
            "title": text(info, "title") or session.id,
            "directory": text(info, "directory"),
            "created": when(time.get("created"), utc=self._options.utc),
            "updated": when(time.get("updated"), utc=self._options.utc),
            "turns": (self._turn(turn, pieces) for turn, pieces in turns(session, self._options)),
        }

    def _turn(self, turn: TranscriptMessage, pieces: list[Piece]) -> Document:
        return {
            "id": turn.id,
            "role": "prompt" if turn.role == "user" else "answer",
            "who": self._user if turn.role == "user" else who(turn),
            "when": when(turn.created or None, utc=self._options.utc),
            "blocks": [self._block(piece) for piece in pieces],
            "failure": turn.failure,
            "cost": f"${turn.cost:.4f}" if turn.cost else "",
        }

    def _block(self, piece: Piece) -> Document:
        from .html_content import coloured, image_url, rendered

        match piece:
            case TextBlock(text=words):
                return {"kind": "text", "html": rendered(words)}
            case ReasoningBlock(text=words):
                return {"kind": "thought", "text": words}
            case Note(text=words):
                return {"kind": "note", "text": words}
            case Image(name=name, url=url):
                safe = image_url(url)
                return {"kind": "image", "name": name, "url": safe} if safe else {"kind": "note", "text": name}
            case ToolBlock():
                return {
                    "kind": "tool",
                    "call": piece,
                    "diff": coloured(piece.diff) if piece.diff else "",
                    "input": piece.todos or (dumps(piece.input).decode(errors="replace") if piece.input else ""),
                }
            case Child(session=session):
                return {"kind": "child", "page": self._page(session)}


class IndexEntry(Struct, kw_only=True):
    """What the index shows of a session."""

    file: str
    id: str
    title: str
    directory: str
    updated: int
    messages: int = 0
    cost: int = 0
    """In units of :mod:`opensesh.history.stats.money`."""
    prompt: str = ""
    """How the first prompt begins."""

    def count(self, info: Document, parts: Iterable[Document]) -> None:
        """Take a message into account as it goes by."""
        self.messages += 1
        cost = info.get("cost")
        self.cost += units(cost) if isinstance(cost, (int, float)) else 0
        if not self.prompt and info.get("role") == "user":
            words = (text(part, "text") for part in parts if part.get("type") == "text" and not part.get("synthetic"))
            self.prompt = _beginning(" ".join(" ".join(words).split()))


def _beginning(words: str) -> str:
    """How a text begins, up to a word's end if there is one near."""
    if len(words) <= _LONGEST_PROMPT:
        return words
    cut = words[:_LONGEST_PROMPT]
    space = cut.rfind(" ", _LONGEST_PROMPT - 40)
    return f"{cut[:space] if space > 0 else cut}…"


def index_page(entries: Iterable[IndexEntry], *, utc: bool = False) -> Iterator[bytes]:
    """The page that leads to the others, newest first."""
    rows = [
        {
            "file": entry.file,
            "title": entry.title,
            "directory": entry.directory,
            "when": when(entry.updated, utc=utc),
            "messages": entry.messages,
            "cost": f"${dollars(entry.cost):.2f}" if entry.cost else "",
            "prompt": entry.prompt,
        }
        for entry in sorted(entries, key=lambda entry: (-entry.updated, entry.id))
    ]
    for piece in _template("index.html").generate(rows=rows, policy=page_policy()):
        yield piece.encode(errors="replace")


def _template(name: str) -> Any:
    return _environment().get_template(f"{name}.j2")


@cache
def _environment() -> Environment:
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    return Environment(
        loader=FileSystemLoader(_FOLDER),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,
    )


@cache
def page_policy() -> str:
    """What a page may do: show pictures it holds, and run the one script it was given."""
    script = _environment().get_template("page.js").render()
    digest = b64encode(sha256(script.encode()).digest()).decode()
    return (
        f"default-src 'none'; img-src data:; style-src 'unsafe-inline'; script-src 'sha256-{digest}'; base-uri 'none'"
    )
