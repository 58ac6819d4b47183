"""Encodes and decodes records, byte for byte as OpenCode does.

OpenCode writes ``JSON.stringify(value, null, 2)``: two spaces, no final newline, numbers and strings formatted as in
JavaScript. Decoding keeps all fields and their order, so that writing a record back unchanged gives the same bytes.
``msgspec`` does the work; this module handles what it formats differently: numbers and lone surrogates.
"""

from __future__ import annotations

import math
import os
import re
from gc import get_referents
from operator import is_not
from typing import TYPE_CHECKING, Any, cast, overload

import msgspec

from ..errors import RecordError
from ..ids import LATEST_MS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

Document = dict[str, Any]
"""A decoded record. Typed views are made from it, never the other way round."""

MAX_COUNT = (1 << 53) - 1
"""The largest integer that JavaScript represents exactly."""
MAX_DOLLARS = 1e30

_decode = msgspec.json.Decoder().decode
_encode = msgspec.json.Encoder().encode
_WHOLE_NUMBER_TYPES = (int, bool)
"""Numbers that msgspec encodes as JavaScript does."""
_BYTE = r"\(byte (\d+)\)"
_SURROGATE = "[\ud800-\udfff]"
_CHUNK_CHARACTERS = 262_144
_MAX_DEPTH = 300
"""Levels of nesting in a record. Some Python versions decode much deeper ones, which later code cannot traverse."""
_ALWAYS_SHALLOW_BYTES = 2 * _MAX_DEPTH
"""A document of this size cannot be too deep: each level needs two brackets."""
_TOO_DEEP_INDENT = b"\n" + b"  " * (_MAX_DEPTH + 1)
"""The indentation of a line that is too deep. Encoded strings contain no line breaks."""
_TOO_DEEP_TO_READ = "nested too deeply to be a record"
_TOO_DEEP_TO_STORE = "nested too deeply to be stored"


def loads(data: bytes, path: str = "") -> Any:
    """Decode one JSON value, or raise :class:`RecordError` with ``path`` and the position of the error."""
    try:
        value = _decode(data)
    except RecursionError:
        raise RecordError(_TOO_DEEP_TO_READ, path=path) from None
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        if not (b"\\u" in data or isinstance(error, msgspec.ValidationError)):
            raise _explain(data, error, path) from None
        value = _loads_leniently(data, path)
    if len(data) > _ALWAYS_SHALLOW_BYTES and _is_too_deep(value):
        raise RecordError(_TOO_DEEP_TO_READ, path=path)
    return value


def plain(value: Any) -> Any:
    """Return a copy of ``value`` as it would be read after it was stored. Raises the errors of :func:`dumps`."""
    return loads(dumps(value))


def loads_object(data: bytes, path: str = "") -> Document:
    """Decode one JSON object, or raise :class:`RecordError`."""
    value = loads(data, path)
    document = as_object(value)
    if document is None:
        names: dict[type, str] = {list: "an array", str: "a string", bool: "true or false", type(None): "null"}
        raise RecordError(
            f"expected an object, found {names.get(type(cast('object', value)), 'a number')}", path=path, place="$"
        )
    return document


def as_object(value: Any) -> Document | None:
    """Return ``value`` if it is an object, else ``None``."""
    return cast("Document", value) if isinstance(value, dict) else None


def as_list(value: Any) -> list[Any] | None:
    """Return ``value`` if it is an array, else ``None``."""
    return cast("list[Any]", value) if isinstance(value, list) else None


def object_at(document: Document, *names: str) -> Document:
    """Return the object inside ``document`` that these names lead to; an empty one if there is none."""
    for name in names:
        value = document.get(name)
        document = cast("Document", value) if isinstance(value, dict) else {}
    return document


def objects_in(value: Any) -> list[Document]:
    """Return the objects in an array; none if ``value`` is not an array."""
    return [cast("Document", item) for item in as_list(value) or () if isinstance(item, dict)]


def as_whole(value: Any) -> int:
    """Return ``value`` as an integer; 0 if it is not a number, or larger than any count can be."""
    return int(value) if isinstance(value, (int, float)) and abs(value) <= MAX_COUNT else 0


def as_time(value: Any) -> int:
    """Return ``value`` as milliseconds since 1970; 0 if it is not a number, or not a time before the year 10000."""
    return int(value) if isinstance(value, (int, float)) and 0 <= value <= LATEST_MS else 0


def as_amount(value: Any) -> float:
    """Return ``value`` as US dollars; 0 if it is not a number, or more than any cost can be."""
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    return float(value) if is_number and abs(value) <= MAX_DOLLARS else 0.0


def merged(*documents: Mapping[str, Any]) -> Document:
    """Merge documents into a new one: later values win, objects are merged recursively."""
    result: Document = {}
    for document in documents:
        for key, value in document.items():
            inner = as_object(value)
            result[key] = value if inner is None else merged(as_object(result.get(key)) or {}, inner)
    return result


def dumps(value: Any) -> bytes:
    """Encode like ``JSON.stringify(value, null, 2)``."""
    return b"".join(dumps_in_chunks(value))


def dumps_in_chunks(value: Any) -> Iterable[bytes]:
    """Encode like :func:`dumps`, in chunks, so that a text of many megabytes is not copied as a whole."""
    mark, texts = os.urandom(16).hex(), list[str]()
    try:
        prepared = _prepared(value, mark, texts)
        try:
            frame = msgspec.json.format(_encode(prepared), indent=2)
        except UnicodeEncodeError:
            frame = _dumps_surrogates(prepared, dumps)
    except RecursionError:
        raise RecordError(_TOO_DEEP_TO_STORE) from None
    if _TOO_DEEP_INDENT in frame:
        raise RecordError(_TOO_DEEP_TO_STORE)
    return _fill(frame.split(mark.encode()), texts) if texts else (frame,)


def dumps_compact(value: Any) -> bytes:
    """Encode like ``JSON.stringify(value)``, on one line."""
    try:
        return _encode(_prepared(value))
    except UnicodeEncodeError:
        return _dumps_surrogates(value, dumps_compact)
    except RecursionError:
        raise RecordError(_TOO_DEEP_TO_STORE) from None


def js_number(number: float) -> str:
    """Format a float as JavaScript does; infinity and NaN become ``null``."""
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


def _prepared(value: Any, mark: str = "", texts: list[str] | None = None) -> Any:
    """Return ``value`` with its floats formatted; the same object if it has none. With ``texts``, long texts are moved
    there, and ``mark`` takes their place."""
    kind: object = type(cast("object", value))
    if kind is float:
        return msgspec.Raw(js_number(value).encode())
    if kind is str and texts is not None and len(value) > _CHUNK_CHARACTERS:
        texts.append(value)
        return mark
    if kind is dict:
        changed: Document | None = None
        for key, item in cast("Document", value).items():
            if type(item) in _WHOLE_NUMBER_TYPES or (type(item) is str and len(item) <= _CHUNK_CHARACTERS):
                continue
            prepared = _prepared(item, mark, texts)
            if prepared is not item:
                changed = cast("Document", value).copy() if changed is None else changed
                changed[key] = prepared
        return value if changed is None else changed
    if kind is list:
        items = [_prepared(item, mark, texts) for item in value]
        return items if any(map(is_not, items, value)) else value
    return value


def _joined(text: str) -> str:
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


@overload
def without_surrogates(value: str) -> str: ...
@overload
def without_surrogates(value: Any, change: Callable[[str], str] = ...) -> Any: ...
def without_surrogates(value: Any, change: Callable[[str], str] = _joined) -> Any:
    """Return a text or a JSON value with a replacement character in place of each lone surrogate, half a character,
    which neither files nor providers take; halves that belong together are joined. ``change`` does this for a text."""
    if isinstance(value, str):
        return value if value.isascii() else change(value)
    if (members := as_object(value)) is not None:
        return {without_surrogates(key, change): without_surrogates(item, change) for key, item in members.items()}
    if (items := as_list(value)) is not None:
        return [without_surrogates(item, change) for item in items]
    return value


def _fill(frame: Sequence[bytes], texts: Sequence[str]) -> Iterator[bytes]:
    """Yield the pieces of a frame with the long texts between them, in chunks."""
    yield frame[0]
    for text, after in zip(texts, frame[1:], strict=True):
        for start in range(0, len(text), _CHUNK_CHARACTERS):
            yield dumps(text[start : start + _CHUNK_CHARACTERS])[1:-1]
        yield after


def _dumps_surrogates(value: Any, encode: Callable[[Any], bytes]) -> bytes:
    """Encode a document with lone surrogates, which msgspec rejects: each becomes a mark, and then an escape."""
    mark = os.urandom(16).hex()

    def with_marks(text: str) -> str:
        return re.sub(_SURROGATE, lambda half: f"{mark}{ord(half[0]):04x}", text)

    return encode(without_surrogates(value, with_marks)).replace(mark.encode(), b"\\u")


def _is_too_deep(value: Any) -> bool:
    """Whether a decoded value has too many levels. Asking the garbage collector is three times as fast as a loop."""
    level, depth = get_referents(value), 0
    while level and depth < _MAX_DEPTH:
        level, depth = get_referents(*level), depth + 1
    return bool(level)


def _loads_leniently(data: bytes, path: str) -> Any:
    """Decode with the standard library, which accepts lone surrogates and large numbers as JavaScript does."""
    import json

    def refuse(name: str) -> None:
        raise ValueError(f"{name} is not JSON")

    try:
        return json.loads(data.decode(), parse_constant=refuse)
    except RecursionError:
        raise RecordError(_TOO_DEEP_TO_READ, path=path) from None
    except ValueError as error:
        raise _explain(data, error, path) from None


def _explain(data: bytes, error: Exception, path: str) -> RecordError:
    if not data:
        return RecordError("the file is empty", path=path)
    if not data.strip(b"\0"):
        return RecordError(f"{len(data):,} NUL bytes: the content was lost on the disk", path=path)
    if isinstance(error, UnicodeDecodeError):
        # msgspec's own error has no position.
        try:
            data.decode()
        except UnicodeDecodeError as decoding:
            return RecordError("not UTF-8 text", path=path, place=f"byte {decoding.start}")
        return RecordError("not UTF-8 text", path=path)
    reason = str(error)
    if "truncated" in reason or data.rstrip()[-1:] not in (b"}", b"]"):
        return RecordError("torn: it ends in the middle", path=path, place=f"byte {len(data)}")
    byte = re.search(_BYTE, reason)
    position = f"byte {byte[1]}" if byte else ""
    return RecordError(f"not JSON: {re.sub(_BYTE, '', reason).strip()}", path=path, place=position)
