"""Hooks for mkdocs: add the design pages to the navigation and list them, and unlink files outside the site."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

LIST = "<!-- decisions -->"
_LINK = re.compile(r"\[([^\]]+)\]\((\.\./[^)#\s]+)\)")
Config = Any
"""The configuration of mkdocs, which has no types."""
Entry = str | dict[str, Any]
"""An entry of the navigation: a page, or a title with one or more pages."""


def on_config(config: Config) -> Config:
    """Replace the placeholders of the navigation by pages."""
    docs = Path(config["docs_dir"])
    named = set(_names(config["nav"]))
    guides = sorted(path.name for path in docs.glob("*.md") if path.name not in named)
    designs = [f"design/{path.name}" for path in decisions(docs)]
    config["nav"] = _filled(config["nav"], {"guides": guides, "designs": designs})
    return config


def on_page_markdown(markdown: str, *, page: Any, config: Config, files: Any) -> str:
    """Insert the list of design pages, and unlink files outside the site."""
    docs = Path(config["docs_dir"])
    folder = (docs / page.file.src_uri).parent

    def unlinked(link: re.Match[str]) -> str:
        target = (folder / link[2]).resolve()
        return link[1] if target.exists() and not target.is_relative_to(docs) else link[0]

    rows = "\n".join(_row(path) for path in decisions(docs))
    return _LINK.sub(unlinked, markdown).replace(LIST, rows)


def decisions(docs: Path) -> list[Path]:
    """Return the design pages: the architecture first, then by name, which begins with the date."""
    return sorted((docs / "design").glob("*.md"), key=lambda path: (path.stem != "architecture", path.name))


def _row(path: Path) -> str:
    text = path.read_text("utf-8")
    title = re.search(r"^# (.+)$", text, re.MULTILINE)
    asked = re.search(r"\*\*Question\.\*\* (.+?)(?:\n\n|\Z)", text, re.DOTALL)
    question = f": {' '.join(asked[1].split())}" if asked else ""
    return f"- [{title[1] if title else path.stem}](design/{path.name}){question}"


def _names(entries: list[Entry]) -> list[str]:
    pages: list[str] = []
    for entry in entries:
        for value in (entry,) if isinstance(entry, str) else entry.values():
            pages += [value] if isinstance(value, str) else _names(value)
    return pages


def _filled(entries: list[Entry], marks: dict[str, list[str]]) -> list[Entry]:
    filled: list[Entry] = []
    for entry in entries:
        if isinstance(entry, str):
            filled.append(entry)
            continue
        for name, value in entry.items():
            if value == "*":
                filled += marks[name]
            else:
                filled.append({name: value if isinstance(value, str) else _filled(value, marks)})
    return filled
