"""``{env:NAME}`` and ``{file:path}`` in the text of a configuration file.

Inside a string the value is escaped, so that no quote, backslash or line break in it can change what the file
means; a placeholder that stands outside of strings is replaced as it is. Comments are left alone, so a placeholder
in one never asks for a file that is not there.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

from .jsonc import STRING
from .source import content

if TYPE_CHECKING:
    from collections.abc import Mapping

    from .folders import Folders
    from .source import Path, Source

_PLACEHOLDER = re.compile(r"\{env:([^{}]+)\}|\{file:((?:\{env:[^{}]+\}|[^{}])+)\}")
_LEXEME = re.compile(rf"({STRING})|//[^\r\n]*|/\*.*?\*/|{_PLACEHOLDER.pattern}", re.DOTALL)
_VARIABLE = re.compile(r"\{env:([^{}]+)\}")
_STRING = re.compile(STRING)


class Substitution:
    """The text with every placeholder filled in, and the way back to what stands in the file."""

    def __init__(self, source: Source, folder: str, folders: Folders, environ: Mapping[str, str]) -> None:
        self._source = source
        self._folder = folder
        self._folders = folders
        self._environ = environ
        self._pieces: list[str] = []
        self._copied = 0
        self._length = 0
        self._swaps: list[tuple[int, int, int, int]] = []
        for lexeme in _LEXEME.finditer(source.text):
            if lexeme[1]:
                for found in _PLACEHOLDER.finditer(source.text, lexeme.start(), lexeme.end()):
                    self._swap(found, _escape(self._value(found, quoted=True)))
            elif lexeme[0].startswith("{"):
                found = _PLACEHOLDER.match(source.text, lexeme.start())
                if found:
                    self._swap(found, self._value(found, quoted=False))
        self._pieces.append(source.text[self._copied :])
        self.text = "".join(self._pieces)

    def back(self, offset: int) -> int:
        """Where in the file an offset of :attr:`text` comes from; the placeholder itself for all that replaced it."""
        shift = 0
        for start, end, was_start, was_end in self._swaps:
            if offset < start:
                break
            if offset < end:
                return was_start
            shift = was_end - end
        return offset + shift

    def written(self, values: Mapping[Path, int]) -> dict[Path, str]:
        """What stands in the file for each of the ``values`` that a placeholder fills in, all or part of it, by their
        offsets in the file."""
        return {path: text for path, start in values.items() if (text := self._written(start))} if self._swaps else {}

    def _written(self, start: int) -> str:
        string = _STRING.match(self._source.text, start)
        end = string.end() if string else start + 1
        inside = [until for _, _, begin, until in self._swaps if start <= begin < end]
        return self._source.text[start : max(end, inside[-1])] if inside else ""

    def _swap(self, found: re.Match[str], value: str) -> None:
        before = self._source.text[self._copied : found.start()]
        start = self._length + len(before)
        self._pieces += [before, value]
        self._length = start + len(value)
        self._copied = found.end()
        self._swaps.append((start, self._length, found.start(), found.end()))

    def _value(self, found: re.Match[str], *, quoted: bool) -> str:
        name, path = found.groups()
        if name:
            return self._environ.get(name.strip(), "")
        path = _VARIABLE.sub(lambda variable: self._environ.get(variable[1], ""), _unescape(path) if quoted else path)
        path = self._folders.resolve(path, self._folder)
        try:
            return content(path).decode("utf-8-sig").strip()
        except (OSError, ValueError) as error:  # ValueError: a NUL in the path, or no text in the file
            reason = error.strerror if isinstance(error, OSError) else "it is no file of UTF-8 text"
            raise self._source.error_at(found.start(), f"cannot read {path}: {reason}") from None


def _escape(value: str) -> str:
    return json.dumps(value, ensure_ascii=False)[1:-1]


def _unescape(raw: str) -> str:
    try:
        return str(json.loads(f'"{raw}"'))
    except json.JSONDecodeError:
        return raw
