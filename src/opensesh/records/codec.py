"""Records to bytes and back, to the byte as OpenCode writes them.

OpenCode writes ``JSON.stringify(value, null, 2)``: two spaces, no final newline, numbers and strings as JavaScript
prints them. Reading keeps everything a document holds, in its order, so that writing it back unchanged gives the same
bytes. ``msgspec`` does the work; the two places where it and JavaScript differ, numbers and lone surrogates, are here.
"""

from __future__ import annotations

import math
import os
import re
from gc import get_referents as _held_by
from typing import TYPE_CHECKING, Any, cast

import msgspec

from ..errors import RecordError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

Document = dict[str, Any]
"""A record as decoded: the truth about it. Typed views are made from it, never the other way round."""

_decode = msgspec.json.Decoder().decode
_encode = msgspec.json.Encoder().encode
_PLAIN = (str, int, bool)
_BYTE = r"\(byte (\d+)\)"
_SURROGATE = "[\ud800-\udfff]"
_LONG = 262_144
_DEEPEST = 300
"""Levels within a record. Some Pythons decode far deeper ones, which nothing could walk through afterwards."""
_SHALLOW = 2 * _DEEPEST
"""Bytes that cannot hold more levels than that: each has two brackets."""
_DEEPER = b"\n" + b"  " * (_DEEPEST + 1)
"""How a line begins that is within more levels. Text holds no line break of its own."""
_NO_RECORD = "nested too deeply to be a record"
_TOO_DEEP = "nested too deeply to be stored"


def loads(data: bytes, path: str = "") -> Any:
    """Decode one JSON value. Anything wrong with it is a :class:`RecordError` that names ``path`` and the place."""
    try:
        value = _decode(data)
    except RecursionError:
        raise RecordError(_NO_RECORD, path=path) from None
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        if not (b"\\u" in data or isinstance(error, msgspec.ValidationError)):
            raise _explain(data, error, path) from None
        value = _loads_leniently(data, path)
    if len(data) > _SHALLOW and _is_deep(value):
        raise RecordError(_NO_RECORD, path=path)
    return value


def loads_object(data: bytes, path: str = "") -> Document:
    """Decode one JSON object; most records are one."""
    value = loads(data, path)
    document = as_object(value)
    if document is None:
        raise RecordError(f"expected an object, found {_kind(value)}", path=path, place="$")
    return document


def as_object(value: Any) -> Document | None:
    """``value`` if it is an object, else ``None``."""
    return cast("Document", value) if isinstance(value, dict) else None


def as_list(value: Any) -> list[Any] | None:
    """``value`` if it is an array, else ``None``."""
    return cast("list[Any]", value) if isinstance(value, list) else None


def as_whole(value: Any) -> int:
    """``value`` as a whole number; 0 for what is none."""
    if isinstance(value, int):
        return int(value)
    return int(value) if isinstance(value, float) and math.isfinite(value) else 0


def merged(*documents: Mapping[str, Any]) -> Document:
    """One document out of several, later ones winning, objects merged member by member; arguments stay as they are."""
    result: Document = {}
    for document in documents:
        for key, value in document.items():
            inner = as_object(value)
            result[key] = value if inner is None else merged(as_object(result.get(key)) or {}, inner)
    return result


def dumps(value: Any) -> bytes:
    """Encode as ``JSON.stringify(value, null, 2)`` would."""
    try:
        data = _indented(value)
    except RecursionError:
        raise RecordError(_TOO_DEEP) from None
    if _DEEPER in data:
        raise RecordError(_TOO_DEEP)
    return data


def dumps_in_pieces(value: Any) -> Iterable[bytes]:
    """What :func:`dumps` gives, a piece at a time: a text of many megabytes is not held a second and a third time."""
    mark, texts = os.urandom(16).hex(), list[str]()
    try:
        frame = dumps(_lift(value, mark, texts))
    except RecursionError:
        raise RecordError(_TOO_DEEP) from None
    return _fill(frame.split(mark.encode()), texts) if texts else (frame,)


def dumps_compact(value: Any) -> bytes:
    """Encode as ``JSON.stringify(value)`` would: one line."""
    try:
        return _on_one_line(value)
    except RecursionError:
        raise RecordError(_TOO_DEEP) from None


def js_number(number: float) -> str:
    """A float as JavaScript prints it; what JSON cannot hold becomes ``null``, as it does there."""
    if not math.isfinite(number):
        return "null"
    if number == int(number) and abs(number) < 1e21:
        return str(int(number)) if abs(number) < 1e16 else _expand(repr(number))
    text = repr(number)
    mantissa, _, exponent = text.partition("e")
    power = int(exponent or 0)
    if -7 < power < 21:
        return _expand(text) if exponent else text
    return f"{mantissa}e{power:+d}"


def _expand(text: str) -> str:
    sign, digits = ("-", text[1:]) if text[0] == "-" else ("", text)
    mantissa, _, exponent = digits.partition("e")
    whole, _, fraction = mantissa.partition(".")
    point = len(whole) + int(exponent)
    digits = whole + fraction
    if point <= 0:
        return f"{sign}0.{'0' * -point}{digits}"
    return sign + digits.ljust(point, "0")


def _indented(value: Any) -> bytes:
    try:
        return msgspec.json.format(_encode(_spell_numbers(value)), indent=2)
    except UnicodeEncodeError:
        return "".join(_write(value, "\n")).encode()


def _on_one_line(value: Any) -> bytes:
    try:
        return _encode(_spell_numbers(value))
    except UnicodeEncodeError:
        return "".join(_write(value, "")).encode()


def _spell_numbers(value: Any) -> Any:
    """``value`` with its floats spelled out; the same object when it holds none."""
    kind: object = type(cast("object", value))
    if kind is float:
        return msgspec.Raw(js_number(value).encode())
    if kind is dict:
        return _spell_members(value)
    if kind is list:
        spelled = [_spell_numbers(item) for item in value]
        return spelled if any(map(_differs, spelled, value)) else value
    return value


def _spell_members(document: Document) -> Document:
    changed: Document | None = None
    for key, item in document.items():
        if type(item) in _PLAIN:
            continue
        spelled = _spell_numbers(item)
        if spelled is not item:
            changed = changed or document.copy()
            changed[key] = spelled
    return document if changed is None else changed


def _lift(value: Any, mark: str, texts: list[str]) -> Any:
    """``value`` with a mark in place of each long text, and the texts."""
    if isinstance(value, str):
        if len(value) < _LONG:
            return value
        texts.append(value)
        return mark
    if (members := as_object(value)) is not None:
        return {key: _lift(item, mark, texts) for key, item in members.items()}
    if (items := as_list(value)) is not None:
        return [_lift(item, mark, texts) for item in items]
    return value


def _fill(frame: Sequence[bytes], texts: Sequence[str]) -> Iterator[bytes]:
    yield frame[0]
    for text, after in zip(texts, frame[1:], strict=True):
        for start in range(0, len(text), _LONG):
            yield dumps(text[start : start + _LONG])[1:-1]
        yield after


def _differs(one: object, other: object) -> bool:
    return one is not other


def _write(value: Any, newline: str) -> list[str]:
    """The whole encoder in Python, for the rare document that holds half a character."""
    deeper = newline and newline + "  "
    if isinstance(value, str):
        return [_quote(value)]
    if isinstance(value, float):
        return [js_number(value)]
    if (members := as_object(value)) is not None:
        colon = ": " if newline else ":"
        inner = [[_quote(key), colon, *_write(item, deeper)] for key, item in members.items()]
        return _bracket("{", inner, "}", newline)
    if (items := as_list(value)) is not None:
        return _bracket("[", [_write(item, deeper) for item in items], "]", newline)
    return [_encode(value).decode()]


def _bracket(opening: str, inner: list[list[str]], closing: str, newline: str) -> list[str]:
    if not inner:
        return [opening + closing]
    out = [opening]
    for position, pieces in enumerate(inner):
        out += [",", newline and newline + "  "] if position else [newline and newline + "  "]
        out += pieces
    return [*out, newline, closing]


def _quote(text: str) -> str:
    whole = re.split(_SURROGATE, text)
    halves = [f"\\u{ord(half):04x}" for half in re.findall(_SURROGATE, text)]
    quoted = [_encode(piece).decode()[1:-1] for piece in whole]
    return '"' + "".join(a + b for a, b in zip(quoted, [*halves, ""], strict=True)) + '"'


def _is_deep(value: Any) -> bool:
    """Whether something decoded has too many levels. The garbage collector knows what an object holds; a loop takes
    three times as long to find out."""
    level, depth = _held_by(value), 0
    while level and depth < _DEEPEST:
        level, depth = _held_by(*level), depth + 1
    return bool(level)


def _loads_leniently(data: bytes, path: str) -> Any:
    """Decode with the standard library, which takes lone surrogates and numbers out of range as JavaScript does."""
    import json

    def refuse(name: str) -> None:
        raise ValueError(f"{name} is not JSON")

    try:
        return json.loads(data.decode(), parse_constant=refuse)
    except RecursionError:
        raise RecordError(_NO_RECORD, path=path) from None
    except ValueError as error:
        raise _explain(data, error, path) from None


def _explain(data: bytes, error: Exception, path: str) -> RecordError:
    if not data:
        return RecordError("the file is empty", path=path)
    if not data.strip(b"\0"):
        return RecordError(f"{len(data):,} NUL bytes: the disk lost what was written here", path=path)
    if isinstance(error, UnicodeDecodeError):
        return RecordError("not UTF-8 text", path=path, place=_utf8_place(data))
    reason = str(error)
    if "truncated" in reason or data.rstrip()[-1:] not in (b"}", b"]"):
        return RecordError("torn: it ends in the middle", path=path, place=f"byte {len(data)}")
    found = re.search(_BYTE, reason)
    place = f"byte {found[1]}" if found else ""
    return RecordError(f"not JSON: {re.sub(_BYTE, '', reason).strip()}", path=path, place=place)


def _utf8_place(data: bytes) -> str:
    try:
        data.decode()
    except UnicodeDecodeError as error:
        return f"byte {error.start}"
    return ""


def _kind(value: object) -> str:
    names: dict[type, str] = {list: "an array", str: "a string", bool: "true or false", type(None): "null"}
    return names.get(type(value), "a number")
