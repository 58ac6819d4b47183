"""YAML's scalars and its flow style: what stands between quotes, brackets and braces."""

from __future__ import annotations

import math
import re
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..errors import ConfigError
    from .source import SettingPath, Source

_CONSTANTS: dict[str, Any] = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL")),
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
}
_INTEGER = re.compile(r"[-+]?[0-9]+|0x[0-9a-fA-F]+|0o[0-7]+")
_MOST_DIGITS = 300
_FLOAT = re.compile(r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?")
_BREAK = re.compile(r"[ \t]*((?:\r?\n[ \t]*)+)")
_ESCAPE = re.compile(r"\\(x[0-9a-fA-F]{2}|u[0-9a-fA-F]{4}|U[0-9a-fA-F]{8}|\r?\n[ \t]*|.)|" + _BREAK.pattern)
_ESCAPES = dict(zip('0abtnvfre "/\\N_LP', '\0\a\b\t\n\v\f\r\x1b "/\\\x85\xa0\u2028\u2029', strict=True))
_QUOTED = re.compile(r"\"(?:[^\"\\]|\\.)*\"|'(?:[^']|'')*'", re.DOTALL)
_SPACE = re.compile(r"(?:\s|(?<=\s)#[^\n]*)*")
_FLOW_PLAIN = re.compile(r"(?:[^,\[\]{}:#]|:(?![\s,\[\]{}]|$)|(?<!\s)#)+")


def resolve(words: str) -> Any:
    """A plain scalar as the value it stands for: a number, true or false, nothing, or the words themselves."""
    if words in _CONSTANTS:
        return _CONSTANTS[words]
    if _INTEGER.fullmatch(words) and len(words) < _MOST_DIGITS:
        return int(words, 0 if words[:2] in ("0x", "0o") else 10)
    if _FLOAT.fullmatch(words) and math.isfinite(number := float(words)):
        return int(number) if number.is_integer() else number
    return words


def fold(text: str) -> str:
    """One line of several: a line break becomes a space, each empty line between them a line break."""
    return _BREAK.sub(lambda found: _folded(found[1]), text)


def _folded(breaks: str) -> str:
    return "\n" * (breaks.count("\n") - 1) or " "


def block_scalar(lines: list[str], *, folded: bool, chomp: str) -> str:
    """The text of a literal (``|``) or folded (``>``) block; ``chomp`` is ``-``, ``+`` or nothing."""
    body = [line if line.strip(" ") else "" for line in lines]
    while body and not body[-1]:
        body.pop()
    text = _fold_block(body) if folded else "\n".join(body)
    match chomp:
        case "-":
            return text
        case "+":
            return text + "\n" * (len(lines) - len(body) + bool(body))
        case _:
            return text + "\n" * bool(body)


def _fold_block(lines: list[str]) -> str:
    """Lines that start with a space keep their breaks, and so does what is next to them."""
    text, empty, spaced = "", 0, False
    for line in lines:
        if not line:
            empty += 1
            continue
        spaces = line[0] in " \t"
        if not text.strip("\n"):
            text = "\n" * empty
        elif spaces or spaced:
            text += "\n" * (empty + 1)
        else:
            text += "\n" * empty or " "
        text, empty, spaced = text + line, 0, spaces
    return text


def unquote(quoted: str, error: Callable[[int, str], ConfigError]) -> str:
    """The text between quotes, of either kind, which may go over several lines."""
    inner = quoted[1:-1]
    if quoted[0] == "'":
        return fold(inner).replace("''", "'")

    def replace(found: re.Match[str]) -> str:
        code = found[1]
        if code is None:
            return _folded(found[2])
        if code[0] in "\r\n":
            return ""
        if len(code) > 1:
            if (number := int(code[1:], 16)) > sys.maxunicode:
                raise error(found.start() + 1, f"`\\{code}` is no character")
            return chr(number)
        if code not in _ESCAPES:
            raise error(found.start() + 1, f"`\\{code}` is no escape; a backslash is written twice")
        return _ESCAPES[code]

    return _ESCAPE.sub(replace, inner)


class FlowReader:
    """Reads a quoted scalar, a ``[list]`` or a ``{map: of members}`` from an offset on, over as many lines as it
    takes."""

    def __init__(self, source: Source, text: str) -> None:
        self._source = source
        self._text = text

    def node(self, at: int, path: SettingPath) -> tuple[Any, int]:
        """The value at ``at``, and the offset behind it."""
        self._source.values[path] = at
        match self._text[at : at + 1]:
            case "[":
                return self._list(at, path)
            case "{":
                return self._map(at, path)
            case '"' | "'":
                return self._quoted(at)
            case _:
                words, end = self._plain(at)
                return resolve(words), end

    def _list(self, start: int, path: SettingPath) -> tuple[list[Any], int]:
        items: list[Any] = []
        at = self._skip(start + 1)
        while not self._text.startswith("]", at):
            value, at = self.node(at, (*path, len(items)))
            items.append(value)
            at = self._separator(at, "]", start)
        return items, at + 1

    def _map(self, start: int, path: SettingPath) -> tuple[dict[str, Any], int]:
        members: dict[str, Any] = {}
        at = self._skip(start + 1)
        while not self._text.startswith("}", at):
            begin = at
            key, at = self._quoted(at) if self._text[at : at + 1] in ('"', "'") else self._plain(at)
            here = (*path, key)
            if key in members:
                raise self._source.error_at(begin, f"{key!r} appears twice")
            self._source.keys[here] = begin
            at = self._skip(at)
            members[key] = None
            if self._text.startswith(":", at):
                at = self._skip(at + 1)
                if self._text[at : at + 1] not in (",", "}"):
                    members[key], at = self.node(at, here)
            at = self._separator(at, "}", start)
        return members, at + 1

    def _separator(self, at: int, closing: str, start: int) -> int:
        at = self._skip(at)
        if self._text.startswith(",", at):
            return self._skip(at + 1)
        if self._text.startswith(closing, at):
            return at
        if at >= len(self._text):
            raise self._source.error_at(start, f"`{self._text[start]}` is never closed")
        raise self._source.error_at(at, f"expected `,` or `{closing}`")

    def _quoted(self, at: int) -> tuple[str, int]:
        found = _QUOTED.match(self._text, at)
        if not found:
            raise self._source.error_at(at, "this quote is never closed")
        return unquote(found[0], lambda inner, reason: self._source.error_at(at + inner, reason)), found.end()

    def _plain(self, at: int) -> tuple[str, int]:
        found = _FLOW_PLAIN.match(self._text, at)
        if not found or found[0][0] in "&*!|>%@`":
            raise self._source.error_at(at, "expected a value; what is not plain words goes in quotes")
        return fold(found[0].strip()), found.end()

    def _skip(self, at: int) -> int:
        found = _SPACE.match(self._text, at)
        return found.end() if found else at
