"""JSON with comments and trailing commas, and nothing else beyond JSON.

Comments and trailing commas are replaced by as many spaces, so that the standard decoder sees plain JSON and every
position it names is one of the file.
"""

from __future__ import annotations

import json
import math
import re
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn

from .source import SettingPath, Source, read_limited

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from ..errors import ConfigError
    from .source import Folders, SettingPath

STRING = r'"(?:[^"\\\n]|\\[^\n])*"'
_COMMENT = re.compile(rf"({STRING})|//[^\r\n]*|/\*.*?\*/", re.DOTALL)
_COMMA = re.compile(rf'({STRING}|[^ \t\r\n,:\[{{"]+)([ \t\r\n]*)(,(?=[ \t\r\n]*[}}\]]))?')
_TOKEN = re.compile(rf'[{{}}\[\],:]|{STRING}|[^ \t\r\n{{}}\[\],:"]+')
_HALF = re.compile(r"[\ud800-\udfff]")
_MAY_BE_HALF = re.compile(rf"{_HALF.pattern}|\\u[dD]")
_MOST_DIGITS = 300
_INK = re.compile(r"[^\r\n]")


class Read(NamedTuple):
    """A decoded text, and where its values stand."""

    value: Any
    source: Source


class _NotANumber(ValueError):
    """``NaN`` or ``Infinity``, which JavaScript writes and JSON does not have; or a number too large to be one."""


def decode(text: str, name: str = "", *, written: str | None = None, back: Callable[[int], int] = int) -> Read:
    """Decode ``text``. A :class:`~opensesh.errors.ConfigError` names ``name``, line and column.

    If ``text`` is not what stands in the file, ``written`` is that, and ``back`` turns an offset in ``text`` into
    one in ``written``. An empty text, or one of comments only, is an empty object.
    """
    source = Source(name, text if written is None else written)
    plain = blank(text)
    if not plain.strip("\ufeff \t\r\n"):
        return Read({}, source)
    if plain.startswith("\ufeff"):
        plain = " " + plain[1:]
    try:
        value = json.loads(plain, parse_int=_whole, parse_float=_number, parse_constant=_refuse)
    except json.JSONDecodeError as error:
        raise source.error_at(back(error.pos), _explain(plain, error)) from None
    except _NotANumber as error:
        raise _misplaced(source, plain, str(error), back) from None
    except RecursionError:
        raise source.error_at(0, "nested too deeply") from None
    if _MAY_BE_HALF.search(plain):
        _refuse_halves(plain, source, back)
    _scan(plain, source, back)
    return Read(value, source)


def blank(text: str) -> str:
    """``text`` with spaces for its comments and trailing commas; its length and its lines stay as they are."""
    bare = _COMMENT.sub(lambda found: found[1] or _INK.sub(" ", found[0]), text)
    return _COMMA.sub(lambda found: found[1] + found[2] + (" " if found[3] else ""), bare)


def _refuse_halves(plain: str, source: Source, back: Callable[[int], int]) -> None:
    """Half a character is no text: no file, variable, request or terminal could hold it."""
    for token in _TOKEN.finditer(plain):
        if token[0].startswith('"') and _HALF.search(json.loads(token[0])):
            raise source.error_at(back(token.start()), "there is half a character in this string")


def _scan(plain: str, source: Source, back: Callable[[int], int]) -> None:
    """Note where each value and key of valid JSON begins."""
    names: list[str | int | None] = []
    for token in _TOKEN.finditer(plain):
        match token[0]:
            case ",":
                last = names[-1]
                names[-1] = last + 1 if isinstance(last, int) else None
            case "}" | "]":
                names.pop()
            case ":":
                continue
            case mark if names and names[-1] is None:
                names[-1] = str(json.loads(mark))
                source.keys[_path(names)] = back(token.start())
            case mark:
                source.values[_path(names)] = back(token.start())
                if mark in "{[":
                    names.append(None if mark == "{" else 0)


def _path(names: list[str | int | None]) -> SettingPath:
    return tuple(name for name in names if name is not None)


def _number(digits: str) -> int | float:
    """JavaScript has one kind of number: ``5e3`` and ``5.0`` are whole."""
    number = float(digits)
    if math.isinf(number):
        _refuse(digits)
    return int(number) if number.is_integer() else number


def _whole(digits: str) -> int:
    return int(digits) if len(digits) < _MOST_DIGITS else _refuse(digits)


def _refuse(constant: str) -> NoReturn:
    raise _NotANumber(constant)


def _misplaced(source: Source, plain: str, constant: str, back: Callable[[int], int]) -> ConfigError:
    offset = next((token.start() for token in _TOKEN.finditer(plain) if token[0] == constant), 0)
    reason = f"{constant} is not JSON" if constant.lstrip("-").isalpha() else "this number is too large"
    return source.error_at(back(offset), reason)


def _explain(plain: str, error: json.JSONDecodeError) -> str:
    if plain.startswith("/*", error.pos):
        return "this comment is never closed"
    if plain.startswith("'", error.pos):
        return "strings and keys are written in double quotes"
    if error.pos >= len(plain.rstrip()):
        return "the text ends in the middle: a bracket or brace is never closed"
    return f"not JSON: {error.msg[0].lower()}{error.msg[1:].removesuffix(' at').removesuffix(' starting at')}"


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

    def written(self, values: Mapping[SettingPath, int]) -> dict[SettingPath, str]:
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
            return read_limited(path).decode("utf-8-sig").strip()
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
