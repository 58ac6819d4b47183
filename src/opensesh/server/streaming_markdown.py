"""Markdown that a model is writing, as HTML for pages that show it while it grows.

Text is split into blocks. A block is settled when the next one begins: it is rendered once more and never again. Only
the open block at the end is rendered at each flush. The text of an open code block is not rendered at all but sent as
it comes, and so is a block that has become too long to render again and again. What one flush costs is therefore
bounded, and what a viewer is sent grows with the text, not with its square.

The page gets operations: ``settle`` appends settled blocks and empties the tail, ``tail`` replaces the open block, and
``text`` appends to the open code block. A :class:`ViewerPosition` is what a viewer has; the operations that it needs
follow from it, so that a slow viewer gets fewer and larger ones and no viewer needs a queue. The text is rendered once
for all viewers.

Blocks that depend on others (late link references, loose lists) may look different until the part ends: the page then
replaces the part by its final rendering.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import NamedTuple

RenderMarkdown = Callable[[str], str]
MAX_OPEN_CHARACTERS = 12_000
"""Beyond this an open block is shown as plain text until it is settled."""
_DECISIVE_CHARACTERS = 12
"""The beginning of a line that tells whether it is an item of a list."""
_FENCE = re.compile(r"( {0,3})(`{3,}|~{3,})([^`\n]*|(?<=~)[^\n]*)\n?\Z")
_LIST_ITEM = re.compile(r" {0,3}(?:[-+*]|\d{1,9}[.)])(?:[ \t]|\n|\Z)")
_PLAIN_SHELL = '<pre class="plain" tabindex="0"><code></code></pre>'


class ViewerPosition(NamedTuple):
    """The part of a streaming text that a viewer has."""

    settled: int = 0
    """Settled blocks."""
    tail: int = 0
    """The version of the open block; 0 if it has none."""
    chunks: int = 0
    """Pieces of text of the open code block."""


class MarkdownOperation(NamedTuple):
    """One change of a page, for one part."""

    op: str
    """``settle``, ``tail`` or ``text``."""
    content: str
    """HTML; for ``text``, plain text."""

    def document(self, part_id: str) -> dict[str, str]:
        """Return the operation as the event stream has it."""
        return {"op": self.op, "part": part_id, ("s" if self.op == "text" else "html"): str(self.content)}


class StreamingMarkdown:
    """One text that grows. Not for several threads."""

    def __init__(self, render: RenderMarkdown | None) -> None:
        """Without ``render``, all of it is sent as plain text."""
        self._render = render or str
        self._is_plain = render is None
        self._settled: list[str] = []
        self._block: list[str] = []
        """The complete lines of the open block."""
        self._block_length = 0
        self._partial = ""
        """The last line, until its line break arrives."""
        self._has_blank_line = False
        self._fence: re.Match[str] | None = None
        self._tail = ""
        self._tail_version = 0
        self._is_text = False
        """Whether the open block is sent as text: an open code block, or one that is too long."""
        self._chunks: list[str] = []
        self._unsent: list[str] = []
        self._sent_of_partial = 0

    @property
    def position(self) -> ViewerPosition:
        """The position of a viewer that has everything."""
        return ViewerPosition(len(self._settled), self._tail_version, len(self._chunks))

    def feed(self, text: str) -> None:
        """Add text, and render the open block once."""
        if self._is_plain:
            self._chunks.append(text)
            return
        *lines, self._partial = (self._partial + text).split("\n")
        for line in lines:
            self._add_line(f"{line}\n")
        if len(self._partial) >= _DECISIVE_CHARACTERS and self._begins_block(self._partial):
            self._settle()
        if self._is_text:
            self._send_partial()
            if self._unsent:
                self._chunks.append("".join(self._unsent))
                self._unsent.clear()
            return
        if self._block_length + len(self._partial) > MAX_OPEN_CHARACTERS:
            self._begin_text(_PLAIN_SHELL)
            self._chunks.append("".join([*self._block, self._partial]))
            self._sent_of_partial = len(self._partial)
            return
        source = "".join([*self._block, self._partial])
        self._set_tail(self._render(source) if source.strip() else "")

    def operations(self, seen: ViewerPosition) -> list[MarkdownOperation]:
        """Return what a viewer at ``seen`` needs to have everything."""
        operations: list[MarkdownOperation] = []
        if seen.settled < len(self._settled):
            operations.append(MarkdownOperation("settle", "".join(self._settled[seen.settled :])))
        if seen.tail != self._tail_version and (self._tail or not operations):
            operations.append(MarkdownOperation("tail", self._tail))
        first = seen.chunks if seen.tail == self._tail_version else 0
        if len(self._chunks) > first:
            operations.append(MarkdownOperation("text", "".join(self._chunks[first:])))
        return operations

    def _add_line(self, line: str) -> None:
        if self._fence is not None:
            if _closes(self._fence, line):
                self._block.append(line)
                self._settle()
            else:
                self._append(line)
            return
        opening = _FENCE.match(line)
        if opening is not None and not (self._is_list() and opening[1]):
            self._settle()
            self._fence = opening
            self._block.append(line)
            marker = opening[2]
            self._begin_text(self._render(f"{marker}{opening[3]}\n{marker}"))
        elif not line.strip():
            self._has_blank_line = True
            if self._block:
                self._append(line)
        else:
            if self._begins_block(line):
                self._settle()
            self._has_blank_line = False
            self._append(line)

    def _begins_block(self, line: str) -> bool:
        """Whether a line after a blank one does not continue the open block, as the next item of a list does."""
        is_item = self._is_list() and (line[:1] in " \t" or _LIST_ITEM.match(line) is not None)
        continues = is_item and self._block_length < MAX_OPEN_CHARACTERS
        return self._fence is None and self._has_blank_line and not continues

    def _is_list(self) -> bool:
        return bool(self._block) and _LIST_ITEM.match(self._block[0]) is not None

    def _append(self, line: str) -> None:
        self._block.append(line)
        self._block_length += len(line)
        if self._is_text:
            self._unsent.append(self._without_indent(line)[self._sent_of_partial :])
            self._sent_of_partial = 0

    def _send_partial(self) -> None:
        """Send what there is of the last line, unless it may become the end of the code block."""
        line = self._without_indent(self._partial)
        if self._fence is not None and not line.strip(self._fence[2][0] + " \t\r"):
            return
        self._unsent.append(line[self._sent_of_partial :])
        self._sent_of_partial = len(line)

    def _without_indent(self, line: str) -> str:
        """Remove the indentation of the code block from one of its lines."""
        indent = len(self._fence[1]) if self._fence is not None else 0
        return line[min(indent, len(line) - len(line.lstrip(" "))) :] if indent else line

    def _begin_text(self, shell: str) -> None:
        self._set_tail(shell)
        self._is_text = True

    def _set_tail(self, html: str) -> None:
        if html != self._tail or self._is_text:
            self._tail = html
            self._tail_version += 1
            self._chunks.clear()
            self._unsent.clear()
            self._is_text = False
            self._sent_of_partial = 0

    def _settle(self) -> None:
        """Render the open block for the last time."""
        source = "".join(self._block)
        if source.strip():
            self._settled.append(self._render(source))
        self._block.clear()
        self._block_length = 0
        self._has_blank_line = False
        self._fence = None
        self._set_tail("")


def _closes(fence: re.Match[str], line: str) -> bool:
    text = line.strip()
    indent = len(line) - len(line.lstrip(" "))
    return len(text) >= len(fence[2]) and not text.strip(fence[2][0]) and indent < 4
