"""The part of YAML that front matter is written in.

Mappings and lists to any depth, in block and in flow style; plain, single- and double-quoted scalars on one line or
several; literal and folded blocks; comments. Scalars have the types of YAML 1.2: ``yes`` and ``on`` are words. What
else YAML has (anchors, aliases, tags, complex keys, several documents) is refused with the place it stands at, as
are tabs for indentation and a key that appears twice.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, NamedTuple

from ..errors import ConfigError
from .yaml_scalars import FlowReader, block_scalar, fold, resolve, unquote

if TYPE_CHECKING:
    from .source import SettingPath, Source

_FIRST = r"(?:[^\s\-?:,\[\]{}#&*!|>'\"%@`]|[-?:](?=\S))"
_KEY = re.compile(rf"(?:(\"(?:[^\"\\]|\\.)*\"|'(?:[^']|'')*')|({_FIRST}(?:(?!\s\#|:\s|:$).)*?))[ \t]*:(?=[ \t]|$)")
_TAIL = re.compile(r"[ \t\r]*(?:#.*)?$", re.MULTILINE)
_HEADER = re.compile(r"[|>](?:([+-])?([1-9])?|([1-9])([+-]))[ \t]*(?:#.*)?$")
_COMMENT = re.compile(r"[ \t]#.*$")
_REFUSED = {
    "*": "`*` begins an alias in YAML: put it in quotes",
    "&": "`&` begins an anchor in YAML: put it in quotes",
    "!": "`!` begins a tag in YAML: put it in quotes",
    "%": "`%` begins a directive in YAML: put it in quotes",
    "@": "`@` means nothing in YAML: put it in quotes",
    "`": "a backtick means nothing in YAML: put it in quotes",
    "?": "`?` begins a complex key in YAML: put it in quotes",
    ",": "`,` cannot begin a value: put it in quotes",
    "]": "`]` closes nothing",
    "}": "`}` closes nothing",
}


class _Line(NamedTuple):
    indent: int
    text: str
    offset: int


def parse(source: Source, start: int, end: int, *, loose: bool = False) -> Any:
    """Read the YAML between two offsets of ``source``, and note where each value stands.

    ``loose`` takes the value of an outermost key as the text it is if it is no YAML: the way to read
    ``description: Use this: it helps``. Anything else that is wrong is a :class:`~opensesh.errors.ConfigError`.
    """
    reader = _Reader(source, start, end, loose=loose)
    first = reader.peek()
    if first is None:
        return None
    value = reader.block(first.indent, -1, ())
    left = reader.peek()
    if left is not None:
        raise reader.error(left.offset, "this line does not belong to what is above it")
    return value


class _Reader:
    """One text, line by line."""

    def __init__(self, source: Source, start: int, end: int, *, loose: bool) -> None:
        self.source = source
        self.loose = loose
        self.text = source.text[:end]
        self.at = 0
        self.lines: list[str] = []
        self.starts: list[int] = []
        for line in self.text[start:].removesuffix("\n").split("\n"):
            self.lines.append(line.rstrip("\r"))
            self.starts.append(start)
            start += len(line) + 1

    def error(self, offset: int, reason: str) -> ConfigError:
        return self.source.error_at(offset, reason)

    def peek(self) -> _Line | None:
        """The next line that says something."""
        while self.at < len(self.lines):
            raw = self.lines[self.at]
            text = raw.lstrip(" ")
            if text.strip() and not text.startswith("#"):
                indent = len(raw) - len(text)
                if text[0] == "\t":
                    raise self.error(self.starts[self.at] + indent, "a tab cannot indent in YAML: use spaces")
                return _Line(indent, text.rstrip(), self.starts[self.at] + indent)
            self.at += 1
        return None

    def block(self, indent: int, parent: int, path: SettingPath) -> Any:
        """The node that starts on the next line, which is indented by ``indent``."""
        line = self.peek()
        if line is None:
            return None
        self.source.values[path] = line.offset
        if _is_item(line.text):
            return self._sequence(indent, path)
        if _KEY.match(line.text):
            return self._mapping(indent, path)
        return self._inline(line.text, line.offset, parent, path)

    def _mapping(self, indent: int, path: SettingPath) -> dict[str, Any]:
        members: dict[str, Any] = {}
        while (line := self.peek()) and line.indent == indent:
            found = _KEY.match(line.text)
            if not found or _is_item(line.text):
                raise self.error(line.offset, _REFUSED.get(line.text[0], "expected `key: value`"))
            key = self._unquote(found[1], line.offset) if found[1] else found[2]
            here = (*path, key)
            if key in members:
                raise self.error(line.offset, f"{key!r} appears twice")
            self.source.keys[here] = line.offset
            rest = line.text[found.end() :]
            offset = line.offset + len(line.text) - len(rest.lstrip())
            members[key] = self._member(rest.lstrip(), offset, indent, here)
        if line and line.indent > indent:
            raise self.error(line.offset, "this line is indented too far")
        return members

    def _member(self, rest: str, offset: int, indent: int, path: SettingPath) -> Any:
        if rest and not rest.startswith("#"):
            return self._lenient(rest, offset, indent, path)
        self.at += 1
        line = self.peek()
        if line and (line.indent > indent or (line.indent == indent and _is_item(line.text))):
            return self.block(line.indent, indent, path)
        self.source.values[path] = offset
        return None

    def _lenient(self, text: str, offset: int, parent: int, path: SettingPath) -> Any:
        at = self.at
        try:
            return self._inline(text, offset, parent, path)
        except ConfigError:
            if not self.loose or len(path) != 1:
                raise
            self.at = at
            return "\n".join([text, *self._below(parent)]).strip()

    def _sequence(self, indent: int, path: SettingPath) -> list[Any]:
        items: list[Any] = []
        while (line := self.peek()) and line.indent == indent and _is_item(line.text):
            here = (*path, len(items))
            rest = line.text[1:].lstrip()
            if rest and not rest.startswith("#"):
                # What follows the dash is a node of its own, indented by all that is before it.
                column = indent + len(line.text) - len(rest)
                self.lines[self.at] = " " * column + rest
                items.append(self.block(column, indent, here))
                continue
            self.at += 1
            below = self.peek()
            items.append(self.block(below.indent, indent, here) if below and below.indent > indent else None)
        if line and line.indent > indent:
            raise self.error(line.offset, "this line is indented too far")
        return items

    def _inline(self, text: str, offset: int, parent: int, path: SettingPath) -> Any:
        """A value that starts in the middle of a line."""
        self.source.values[path] = offset
        match text[0]:
            case "|" | ">":
                return self._block_scalar(text, offset, parent)
            case '"' | "'" | "[" | "{":
                value, end = FlowReader(self.source, self.text).node(offset, path)
                self._close(end)
                return value
            case letter if letter in _REFUSED and not (letter == "?" and text[1:2].strip()):
                raise self.error(offset, _REFUSED[letter])
            case _ if _is_item(text):
                raise self.error(offset, "a list begins on the line below its key")
            case _:
                return self._plain(text, offset, parent)

    def _plain(self, text: str, offset: int, parent: int) -> Any:
        words = [self._words(text, offset)]
        self.at += 1
        # A comment ends the scalar; what is indented below it then belongs to nothing.
        while words[-1] == text.rstrip() and self.at < len(self.lines):
            raw = self.lines[self.at]
            text = raw.strip()
            indent = len(raw) - len(raw.lstrip(" "))
            if text and (indent <= parent or text.startswith("#")):
                break
            words.append(self._words(text, self.starts[self.at] + indent))
            self.at += 1
        return resolve(fold("\n".join(words).strip()))

    def _words(self, text: str, offset: int) -> str:
        words = _COMMENT.sub("", text).rstrip()
        colon = re.search(r":(?=[ \t]|$)", words)
        if colon:
            raise self.error(offset + colon.start(), "a value with `: ` in it must be in quotes")
        return words

    def _below(self, parent: int) -> list[str]:
        """The lines that are indented below this one, as they are."""
        found: list[str] = []
        self.at += 1
        while self.at < len(self.lines):
            raw = self.lines[self.at]
            if raw.strip() and len(raw) - len(raw.lstrip(" ")) <= parent:
                break
            found.append(raw.strip())
            self.at += 1
        return found

    def _block_scalar(self, text: str, offset: int, parent: int) -> str:
        header = _HEADER.match(text)
        if not header:
            raise self.error(offset, f"`{text[0]}` begins a block of text, which goes on the lines below it")
        explicit = header[2] or header[3]
        self.at += 1
        indent = max(parent, 0) + int(explicit) if explicit else self._depth(parent)
        body: list[str] = []
        while self.at < len(self.lines):
            raw = self.lines[self.at]
            if raw.strip(" ") and len(raw) - len(raw.lstrip(" ")) < indent:
                break
            body.append(raw[indent:])
            self.at += 1
        return block_scalar(body, folded=text[0] == ">", chomp=header[1] or header[4] or "")

    def _depth(self, parent: int) -> int:
        """How far a block of text is indented: as its first line that is not empty, and deeper than its key."""
        for raw in self.lines[self.at :]:
            if raw.strip(" "):
                return max(len(raw) - len(raw.lstrip(" ")), parent + 1)
        return parent + 1

    def _close(self, end: int) -> None:
        """Go on behind a value that ended at offset ``end``, if nothing else stands on that line."""
        if not _TAIL.match(self.text, end):
            raise self.error(end, "something follows the end of this value")
        while self.at < len(self.lines) and self.starts[self.at] <= end:
            self.at += 1

    def _unquote(self, quoted: str, offset: int) -> str:
        return unquote(quoted, lambda at, reason: self.error(offset + at, reason))


def _is_item(text: str) -> bool:
    return text == "-" or text.startswith(("- ", "-\t"))
