"""The index page of exported HTML pages."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

from ..formatting import text, when
from ..stats.money import dollars, units

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from ...records import Document

_MAX_PROMPT_LENGTH = 200


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
    from .html_page import page_policy, page_template  # Jinja is slow to import, and most exports need no page

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
    for chunk in page_template("index.html").generate(rows=rows, policy=page_policy()):
        yield chunk.encode(errors="replace")
