"""Conversion of HTML to Markdown or plain text: the readable content of a web page.

Written here because the libraries need BeautifulSoup (markdownify) or are licensed under the GPL (html2text); this
needs only ``html.parser`` of the standard library.
"""

from __future__ import annotations

import re
from collections import Counter
from html.parser import HTMLParser
from typing import TYPE_CHECKING
from urllib.parse import urljoin

if TYPE_CHECKING:
    from collections.abc import Sequence

    Attributes = Sequence[tuple[str, str | None]]

_SKIPPED = frozenset(("script", "style", "noscript", "template", "svg", "iframe", "object", "head", "select", "canvas"))
_VOID = frozenset("area base br col embed hr img input link meta source track wbr".split())
_BLOCKS = frozenset(
    """address article aside body dd details div dl dt fieldset figcaption figure footer form header html main nav p
    section summary""".split()
)
_LANGUAGE = re.compile(r"(?:language|lang|highlight-source)-(\w+)")
_NUMBER = re.compile(r"[0-9]{1,9}")
_MAX_TAGS = 200_000
"""Some seconds of work; the largest pages that people read have half as many."""
_MAX_DEPTH = 20
"""Nested lists and quotes are indented up to this depth. A hostile page may nest any number."""
_HEADINGS = {f"h{level}": "#" * level for level in range(1, 7)}
_MARKS = {"strong": "**", "b": "**", "em": "*", "i": "*", "del": "~~", "s": "~~"}


class _TooManyTagsError(Exception):
    """A page that would take too long to convert."""


def to_markdown(html: str, base: str = "") -> str:
    """Return ``html`` as Markdown: ATX headings, ``-`` lists, fenced code, pipe tables; links made absolute by
    ``base``."""
    return _convert(_MarkdownConverter(base), html)


def to_text(html: str) -> str:
    """Return the text of ``html``, one block a line."""
    return _convert(_TextConverter(), html)


def absolute(base: str, address: str) -> str:
    """Resolve ``address`` against the page at ``base``; an invalid address is returned unchanged."""
    try:
        return urljoin(base, address)
    except ValueError:
        return address


def _convert(converter: _Converter, html: str) -> str:
    # The comment ends any unclosed tag or comment before it. close() would take quadratic time on many of these, and a
    # comment fed on its own may stay in the parser's buffer.
    try:
        converter.feed(f"{html}<!-- -->")
    except _TooManyTagsError:
        return f"{converter.result()}\n\n(The page has too many tags; the rest was left out.)"
    return converter.result()


class _Converter(HTMLParser):
    """Collects pieces of text. White space is folded, except in preformatted text."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self._pieces: list[str] = []
        self._skipping: list[str] = []
        self._skipped: Counter[str] = Counter()
        """Number of occurrences of each tag in that list."""
        self._preformatted = 0
        self._tags = 0

    def handle_starttag(self, tag: str, attrs: Attributes) -> None:
        self._tags += 1
        if self._tags > _MAX_TAGS:
            raise _TooManyTagsError
        if self._skipping or tag in _SKIPPED:
            if tag not in _VOID:
                self._skipping.append(tag)
                self._skipped[tag] += 1
        else:
            self.opened(tag, {name: value or "" for name, value in attrs})

    def handle_startendtag(self, tag: str, attrs: Attributes) -> None:
        if not self._skipping and tag not in _SKIPPED:
            self.opened(tag, {name: value or "" for name, value in attrs})
            if tag not in _VOID:
                self.closed(tag)

    def handle_endtag(self, tag: str) -> None:
        if not self._skipping:
            if tag not in _VOID:
                self.closed(tag)
        elif self._skipped[tag]:
            left = self._skipped[tag] - 1
            while self._skipped[tag] > left:  # unclosed tags inside end with it
                self._skipped[self._skipping.pop()] -= 1

    def handle_data(self, data: str) -> None:
        if self._skipping:
            return
        if self._preformatted:
            self._pieces.append(data)
            return
        folded = re.sub(r"\s+", " ", data)
        if folded == " " and (not self._pieces or self._pieces[-1].endswith(("\n", " "))):
            return
        if self._pieces and self._pieces[-1].endswith(("\n", " ")):
            folded = folded.lstrip(" ")
        self._pieces.append(folded)

    def opened(self, tag: str, attributes: dict[str, str]) -> None:
        """Handle the start of a tag that is not skipped."""

    def closed(self, tag: str) -> None:
        """Handle the end of a tag."""

    def _break(self, lines: int) -> None:
        """Add newlines until there are at least ``lines`` before the next text."""
        while self._pieces and not self._pieces[-1].strip(" ") and "\n" not in self._pieces[-1]:
            self._pieces.pop()
        if not self._pieces:
            return
        self._pieces[-1] = self._pieces[-1].rstrip(" ")
        tail = "".join(self._pieces[-3:])
        present = len(tail) - len(tail.rstrip("\n"))
        self._pieces.append("\n" * max(0, lines - present))

    def result(self) -> str:
        """Return the collected text."""
        text = "".join(self._pieces)
        trimmed = "\n".join(line.rstrip(" \t") for line in text.split("\n"))
        return re.sub(r"\n{3,}", "\n\n", trimmed).strip()


class _TextConverter(_Converter):
    def opened(self, tag: str, attributes: dict[str, str]) -> None:
        if tag == "pre":
            self._break(1)
            self._preformatted += 1
        elif tag in _BLOCKS or tag in _HEADINGS or tag in ("br", "li", "tr", "ul", "ol", "table", "hr", "blockquote"):
            self._break(1)
        elif tag in ("td", "th"):
            self._pieces.append(" ")

    def closed(self, tag: str) -> None:
        if tag == "pre":
            self._preformatted = max(0, self._preformatted - 1)
        if tag in _BLOCKS or tag in _HEADINGS or tag in ("li", "tr", "ul", "ol", "table", "pre", "blockquote"):
            self._break(1)


class _MarkdownConverter(_Converter):
    def __init__(self, base: str) -> None:
        super().__init__()
        self._base = base
        self._lists: list[int | None] = []
        self._opened_link: tuple[str, int] | None = None
        self._quotes: list[int | None] = []
        self._row: list[str] | None = None
        self._cell: int | None = None
        self._rows = 0

    def opened(self, tag: str, attributes: dict[str, str]) -> None:
        match tag:
            case "br":
                self._pieces.append("\n")
            case "hr":
                self._break(2)
                self._pieces.append("---\n\n")
            case "img":
                source = attributes.get("src", "")
                if source and not source.startswith("data:"):
                    self._pieces.append(f"![{attributes.get('alt', '')}]({absolute(self._base, source)})")
            case "a":
                self._end_link()  # links cannot be nested
                self._opened_link = attributes.get("href", ""), len(self._pieces)
            case "pre":
                self._break(2)
                language = _LANGUAGE.search(attributes.get("class", ""))
                self._pieces.append(f"```{language[1] if language else ''}\n")
                self._preformatted += 1
            case "code" if not self._preformatted:
                self._pieces.append("`")
            case _ if tag in _MARKS:
                self._pieces.append(_MARKS[tag])
            case _:
                self._block_opened(tag, attributes)

    def _block_opened(self, tag: str, attributes: dict[str, str]) -> None:
        match tag:
            case "ul" | "ol":
                self._break(1 if self._lists else 2)
                start = attributes.get("start", "1")
                self._lists.append(None if tag == "ul" else int(start) if _NUMBER.fullmatch(start) else 1)
            case "li":
                self._break(1)
                depth = min(max(0, len(self._lists) - 1), _MAX_DEPTH)
                mark = "-"
                if self._lists and (number := self._lists[-1]) is not None:
                    mark = f"{number}."
                    self._lists[-1] = number + 1
                self._pieces.append(f"{'  ' * depth}{mark} ")
            case "blockquote":
                self._break(2)
                self._quotes.append(len(self._pieces) if len(self._quotes) < _MAX_DEPTH else None)
            case "table":
                self._end_row()
                self._break(2)
                self._rows = 0
            case "tr":
                self._end_row()
                self._row = []
            case "td" | "th":
                self._end_cell()
                self._cell = len(self._pieces)
            case _ if tag in _HEADINGS:
                self._break(2)
                self._pieces.append(f"{_HEADINGS[tag]} ")
            case _ if tag in _BLOCKS and self._cell is None:
                self._break(1 if self._lists else 2)
            case _:
                pass

    def closed(self, tag: str) -> None:
        match tag:
            case "a":
                self._end_link()
            case "pre" if self._preformatted:
                self._preformatted -= 1
                self._break(1)
                self._pieces.append("```\n\n")
            case "code" if not self._preformatted:
                self._pieces.append("`")
            case _ if tag in _MARKS:
                self._pieces.append(_MARKS[tag])
            case _:
                self._block_closed(tag)

    def _block_closed(self, tag: str) -> None:
        match tag:
            case "ul" | "ol" if self._lists:
                self._lists.pop()
                self._break(1 if self._lists else 2)
            case "li":
                self._break(1)
            case "blockquote" if self._quotes:
                start = self._quotes.pop()
                if start is None:
                    self._break(2)
                else:
                    text = "".join(self._pieces[start:]).strip()
                    del self._pieces[start:]
                    self._pieces.append("\n".join(f"> {line}".rstrip() for line in text.split("\n")) + "\n\n")
            case "td" | "th":
                self._end_cell()
            case "tr":
                self._end_row()
            case "table":
                self._end_row()
                self._break(2)
            case _ if (tag in _BLOCKS or tag in _HEADINGS) and self._cell is None:
                self._break(1 if self._lists and tag not in _HEADINGS else 2)
            case _:
                pass

    def _end_cell(self) -> None:
        """End the cell of a table, if one is open: pages may leave out the end tags of cells and rows."""
        if self._cell is None:
            return
        start, self._cell = self._cell, None
        if self._row is not None:
            self._row.append(" ".join("".join(self._pieces[start:]).split()).replace("|", "\\|"))
            del self._pieces[start:]

    def _end_row(self) -> None:
        self._end_cell()
        if self._row:
            self._break(1)
            self._pieces.append(f"| {' | '.join(self._row)} |\n")
            if self._rows == 0:
                self._pieces.append(f"|{' --- |' * len(self._row)}\n")
            self._rows += 1
        self._row = None

    def result(self) -> str:
        self._end_row()
        return super().result()

    def _end_link(self) -> None:
        if self._opened_link is None:
            return
        (target, start), self._opened_link = self._opened_link, None
        text = "".join(self._pieces[start:])
        if not target or target.startswith(("#", "javascript:")) or not text.strip():
            return
        lead = text[: len(text) - len(text.lstrip())]
        tail = text[len(text.rstrip()) :]
        self._pieces[start:] = [f"{lead}[{' '.join(text.split())}]({absolute(self._base, target)}){tail}"]
