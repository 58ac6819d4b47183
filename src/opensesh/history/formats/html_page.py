"""HTML format: a session as one self-contained page, without other files, network access or foreign scripts.

The content security policy of a page allows only its own script. All session content is escaped as well; without the
escaping a script in a session would still not run.
"""

from __future__ import annotations

import os
from base64 import b64encode
from functools import cache
from hashlib import sha256
from typing import TYPE_CHECKING

from msgspec import Struct

from ...records import as_object, dumps
from ..formatting import text, when
from ..stats.money import dollars, units
from ..transcript import ReasoningBlock, TextBlock, ToolBlock
from .blocks import ChildBlock, ImageBlock, NoteBlock, agent_and_model, display_messages

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from jinja2 import Environment

    from ...records import Document
    from . import ExportedSession, FormatOptions
    from .blocks import DisplayBlock

_NOTE = "Exported by opensesh. This page holds everything it shows and asks nothing of the network."
_MAX_PROMPT_LENGTH = 200
_FOLDER = os.path.join(os.path.dirname(__file__), "page")


class HtmlFormat:
    """One page a session."""

    suffix = ".html"
    delimiters = None
    nests = True
    part_types = None

    def __init__(self, options: FormatOptions, *, note: str = _NOTE, user: str = "You") -> None:
        """``note`` is the footer of the page, ``user`` the name it shows for the user."""
        self._options = options
        self._note = note
        self._user = user

    def chunks(self, session: ExportedSession) -> Iterator[bytes]:
        """Render one page, a chunk at a time."""
        variables = {
            "page": self._page(session),
            "policy": page_policy(),
            "note": self._note,
            "indexed": self._options.indexed,
        }
        for chunk in _environment().get_template("session.html.j2").generate(variables):
            yield chunk.encode(errors="replace")

    def _page(self, session: ExportedSession) -> Document:
        info = session.info
        time = as_object(info.get("time")) or {}
        return {
            "id": session.id,
            "title": text(info, "title") or session.id,
            "directory": text(info, "directory"),
            "created": when(time.get("created"), utc=self._options.utc),
            "updated": when(time.get("updated"), utc=self._options.utc),
            "turns": (
                {
                    "id": message.id,
                    "role": "prompt" if message.role == "user" else "answer",
                    "who": self._user if message.role == "user" else agent_and_model(message),
                    "when": when(message.created or None, utc=self._options.utc),
                    "blocks": [self._block(block) for block in blocks],
                    "failure": message.failure,
                    "cost": f"${message.cost:.4f}" if message.cost else "",
                }
                for message, blocks in display_messages(session, self._options)
            ),
        }

    def _block(self, block: DisplayBlock) -> Document:
        from .html_content import diff_html, image_url, markdown_html  # markupsafe: only pages need it

        match block:
            case TextBlock(text=content):
                return {"kind": "text", "html": markdown_html(content)}
            case ReasoningBlock(text=content):
                return {"kind": "thought", "text": content}
            case NoteBlock(text=content):
                return {"kind": "note", "text": content}
            case ImageBlock(name=name, url=url):
                safe = image_url(url)
                return {"kind": "image", "name": name, "url": safe} if safe else {"kind": "note", "text": name}
            case ToolBlock():
                return {
                    "kind": "tool",
                    "call": block,
                    "diff": diff_html(block.diff) if block.diff else "",
                    "input": block.todos or (dumps(block.input).decode(errors="replace") if block.input else ""),
                }
            case ChildBlock(session=session):
                return {"kind": "child", "page": self._page(session)}


class IndexEntry(Struct, kw_only=True):
    """The entry of a session in the index page."""

    file: str
    id: str
    title: str
    directory: str
    updated: int
    messages: int = 0
    cost: int = 0
    """In units of :mod:`opensesh.history.stats.money`."""
    prompt: str = ""
    """The beginning of the first prompt."""

    def count(self, info: Document, parts: Iterable[Document]) -> None:
        """Add a message to the entry while it is exported."""
        self.messages += 1
        cost = info.get("cost")
        self.cost += units(cost) if isinstance(cost, (int, float)) else 0
        if not self.prompt and info.get("role") == "user":
            texts = (text(part, "text") for part in parts if part.get("type") == "text" and not part.get("synthetic"))
            self.prompt = " ".join(" ".join(texts).split())
            if len(self.prompt) > _MAX_PROMPT_LENGTH:
                beginning = self.prompt[:_MAX_PROMPT_LENGTH]
                space = beginning.rfind(" ", _MAX_PROMPT_LENGTH - 40)  # at the end of a word, if one ends nearby
                self.prompt = f"{beginning[:space] if space > 0 else beginning}…"


def index_page(entries: Iterable[IndexEntry], *, utc: bool = False) -> Iterator[bytes]:
    """Render the index page, newest sessions first."""
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
    for chunk in _environment().get_template("index.html.j2").generate(rows=rows, policy=page_policy()):
        yield chunk.encode(errors="replace")


@cache
def _environment() -> Environment:
    from jinja2 import Environment, FileSystemLoader, StrictUndefined  # slow to import

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
    """Return the content security policy of a page: embedded images, and the one script of the page."""
    script = _environment().get_template("page.js").render()
    digest = b64encode(sha256(script.encode()).digest()).decode()
    return (
        f"default-src 'none'; img-src data:; style-src 'unsafe-inline'; script-src 'sha256-{digest}'; base-uri 'none'"
    )
