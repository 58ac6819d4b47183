"""JSON with comments and trailing commas (JSONC), and placeholders ``{env:NAME}`` and ``{file:path}`` in it.

Our own, because no JSONC library records the position of every value, which origins and error messages need. Comments
and trailing commas are replaced by spaces, so that the standard decoder reads plain JSON and its positions are those
of the file.

Inside a string, the value of a placeholder is escaped, so that no quote, backslash or line break in it can change the
meaning of the file; outside of strings it is inserted as it is. Placeholders in comments are ignored.
"""

from __future__ import annotations

import json
import math
import os
import re
from bisect import bisect_left, bisect_right
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn

from ..storage.disk import read_file
from .source import MAX_FILE_BYTES, Source

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from .source import Folders, SettingPath

STRING = r'"(?:[^"\\\n]|\\[^\n])*+(?:"|(?=\\?(?:\n|\Z)))'
"""A string, or the rest of the line after a quote without a second one: it must not be searched for at every quote."""
_BLOCK_COMMENT = r"/\*.*?(?:\*/|\Z)"
# In these, strings come first: a comment or a comma inside of one is text.
_COMMENT = re.compile(rf"({STRING})|//[^\r\n]*|{_BLOCK_COMMENT}", re.DOTALL)
_COMMA = re.compile(rf'({STRING}|[^ \t\r\n,:\[{{"]+)([ \t\r\n]*)(,(?=[ \t\r\n]*[}}\]]))?')
_TOKEN = re.compile(rf'[{{}}\[\],:]|{STRING}|[^ \t\r\n{{}}\[\],:"]+')
_HALF = re.compile(r"[\ud800-\udfff]")
_MAY_BE_HALF = re.compile(rf"{_HALF.pattern}|\\u[dD]")
_MAX_DIGITS = 300
_NOT_LINE_END = re.compile(r"[^\r\n]")


class Decoded(NamedTuple):
    """A decoded text, and the positions of its values."""

    value: Any
    source: Source


class _NotANumber(ValueError):
    """``NaN`` or ``Infinity``, which JSON does not have; or a number that is too large."""


def decode(text: str, name: str = "", *, written: str | None = None, to_written: Callable[[int], int] = int) -> Decoded:
    """Decode ``text``. Raises :class:`~opensesh.errors.ConfigError` with ``name``, line and column.

    If placeholders were replaced, ``written`` is the original text, and ``to_written`` maps an offset in ``text`` to
    one in ``written``. An empty text, or one of comments only, is an empty object.
    """
    source = Source(name, text if written is None else written)
    plain = blank(text)
    if not plain.strip("\ufeff \t\r\n"):
        return Decoded({}, source)
    if plain.startswith("\ufeff"):
        plain = " " + plain[1:]
    try:
        value = json.loads(
            plain,
            parse_int=lambda digits: int(digits) if len(digits) < _MAX_DIGITS else _refuse(digits),
            parse_float=_number,
            parse_constant=_refuse,
        )
    except json.JSONDecodeError as error:
        raise source.error_at(to_written(error.pos), _explain(plain, error)) from None
    except _NotANumber as error:
        constant = str(error)
        offset = next((token.start() for token in _TOKEN.finditer(plain) if token[0] == constant), 0)
        reason = f"{constant} is not JSON" if constant.lstrip("-").isalpha() else "this number is too large"
        raise source.error_at(to_written(offset), reason) from None
    except RecursionError:
        raise source.error_at(0, "nested too deeply") from None
    if _MAY_BE_HALF.search(plain):
        for token in _TOKEN.finditer(plain):
            # A lone surrogate cannot be encoded as UTF-8.
            if token[0].startswith('"') and _HALF.search(json.loads(token[0])):
                reason = "there is half a character (a lone surrogate) in this string"
                raise source.error_at(to_written(token.start()), reason)
    _scan(plain, source, to_written)
    return Decoded(value, source)


def blank(text: str) -> str:
    """Return ``text`` with spaces for comments and trailing commas. Its length and lines do not change."""

    def without_comment(match: re.Match[str]) -> str:
        is_open = match[0].startswith("/*") and (len(match[0]) < 4 or not match[0].endswith("*/"))
        return match[0] if match[1] or is_open else _NOT_LINE_END.sub(" ", match[0])

    bare = _COMMENT.sub(without_comment, text)
    return _COMMA.sub(lambda match: match[1] + match[2] + (" " if match[3] else ""), bare)


def _scan(plain: str, source: Source, to_written: Callable[[int], int]) -> None:
    """Record where each value and key of valid JSON begins."""
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
                source.keys[_path(names)] = to_written(token.start())
            case mark:
                source.values[_path(names)] = to_written(token.start())
                if mark in "{[":
                    names.append(None if mark == "{" else 0)


def _path(names: list[str | int | None]) -> SettingPath:
    return tuple(name for name in names if name is not None)


def _number(digits: str) -> int | float:
    # JavaScript has one kind of number: 5e3 and 5.0 are integers.
    number = float(digits)
    if math.isinf(number):
        _refuse(digits)
    return int(number) if number.is_integer() else number


def _refuse(constant: str) -> NoReturn:
    raise _NotANumber(constant)


def _explain(plain: str, error: json.JSONDecodeError) -> str:
    if plain.startswith("/*", error.pos):
        return "this comment is never closed"
    if plain.startswith("'", error.pos):
        return "strings and keys are written in double quotes"
    if error.pos >= len(plain.rstrip()):
        return "the text ends in the middle: a bracket or brace is never closed"
    return f"not JSON: {error.msg[0].lower()}{error.msg[1:].removesuffix(' at').removesuffix(' starting at')}"


_PLACEHOLDER = re.compile(r"\{env:([^{}]+)\}|\{file:((?:\{env:[^{}]+\}|[^{}])+)\}")
_LEXEME = re.compile(rf"({STRING})|//[^\r\n]*|{_BLOCK_COMMENT}|{_PLACEHOLDER.pattern}", re.DOTALL)
_BEFORE_VALUE = re.compile(rf"(?>\s|//[^\r\n]*|{_BLOCK_COMMENT})*+:", re.DOTALL)
_VARIABLE = re.compile(r"\{env:([^{}]+)\}")
_STRING = re.compile(STRING)


class Substitution:
    """A text with its placeholders replaced, and the mapping back to the original.

    ``within`` is the project of a file that came with it. Names of agents and rules are sent to models, so placeholders
    in keys stay as they are, and whole settings come from no file outside of the project.
    """

    def __init__(
        self, source: Source, folder: str, folders: Folders, environ: Mapping[str, str], *, within: str = ""
    ) -> None:
        self._source = source
        self._folder = folder
        self._folders = folders
        self._environ = environ
        self._pieces: list[str] = []
        self._copied = 0
        self._length = 0
        self._swaps: list[tuple[int, int, int, int]] = []
        for lexeme in _LEXEME.finditer(source.text):
            if lexeme[1] and within and _BEFORE_VALUE.match(source.text, lexeme.end()):
                continue
            if lexeme[1]:
                for match in _PLACEHOLDER.finditer(source.text, lexeme.start(), lexeme.end()):
                    self._swap(match, json.dumps(self._value(match, quoted=True), ensure_ascii=False)[1:-1])
            elif lexeme[0].startswith("{"):
                match = _PLACEHOLDER.match(source.text, lexeme.start())
                if match:
                    self._swap(match, self._value(match, quoted=False, within=within))
        self._pieces.append(source.text[self._copied :])
        self.text = "".join(self._pieces)

    def to_written(self, offset: int) -> int:
        """Map an offset of :attr:`text` to the file; within a replaced value, to its placeholder."""
        at = bisect_right(self._swaps, offset, key=lambda swap: swap[0]) - 1
        if at < 0:
            return offset
        _, end, was_start, was_end = self._swaps[at]
        return was_start if offset < end else offset + was_end - end

    def written(self, values: Mapping[SettingPath, int]) -> dict[SettingPath, str]:
        """Return the original text of each of the ``values`` (offsets in the file) that contains a placeholder."""
        texts: dict[SettingPath, str] = {}
        for path, start in values.items() if self._swaps else ():
            string = _STRING.match(self._source.text, start)
            end = string.end() if string else start + 1
            last = bisect_left(self._swaps, end, key=lambda swap: swap[2]) - 1
            if last >= 0 and self._swaps[last][2] >= start:
                texts[path] = self._source.text[start : max(end, self._swaps[last][3])]
        return texts

    def _swap(self, match: re.Match[str], value: str) -> None:
        before = self._source.text[self._copied : match.start()]
        start = self._length + len(before)
        self._pieces += [before, value]
        self._length = start + len(value)
        if self._length > MAX_FILE_BYTES:
            raise self._source.error_at(match.start(), "the placeholders up to here make the text too large")
        self._copied = match.end()
        self._swaps.append((start, self._length, match.start(), match.end()))

    def _value(self, match: re.Match[str], *, quoted: bool, within: str = "") -> str:
        name, path = match.groups()
        if name:
            return self._environ.get(name.strip(), "")
        if quoted:
            with suppress(json.JSONDecodeError):
                path = str(json.loads(f'"{path}"'))
        path = _VARIABLE.sub(lambda variable: self._environ.get(variable[1], ""), path)
        path = self._folders.resolve(path, self._folder)
        if within and os.path.commonpath((os.path.realpath(path), within)) != within:
            raise self._source.error_at(match.start(), f"a project's settings cannot be those of {path}")
        try:
            return read_file(path, limit=MAX_FILE_BYTES).decode("utf-8-sig").strip()
        except (OSError, ValueError) as error:  # ValueError: a NUL in the path, or not UTF-8
            reason = error.strerror if isinstance(error, OSError) else "it is not a UTF-8 text file"
            raise self._source.error_at(match.start(), f"cannot read {path}: {reason}") from None
