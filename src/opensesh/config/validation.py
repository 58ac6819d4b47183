"""Validates settings against the schema, with exact positions and reasons.

The check itself is one ``msgspec.convert``. Its messages leave out the names of map members (``$.provider[...]``), so
the position of an error is found by converting again with one member at a time.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar, cast

import msgspec
from msgspec import Struct, inspect

from ..records import Document, as_list, as_object
from ..text import close_matches
from .schema import AgentConfig

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from ..errors import ConfigError
    from .source import SettingPath, Source

S = TypeVar("S", bound=Struct)

_STEP = r"\.([^.\[]+)|\[(\d+)\]|\[(\.\.\.)\]"
_MISSING = r"Object missing required field `(.+?)`"
_ANY = object()


class UnknownKey(NamedTuple):
    """A key that the schema does not have."""

    path: SettingPath
    known: tuple[str, ...]
    """The keys that are allowed there."""

    @property
    def reason(self) -> str:
        """The message for the user, with suggestions."""
        close = close_matches(str(self.path[-1]), self.known, 2)
        return f"unknown key {self.path[-1]!r}" + (f"; did you mean {' or '.join(map(repr, close))}?" if close else "")


def check(document: Document, kind: type[S], source: Source) -> S:
    """Convert ``document`` to a ``kind``. Raises :class:`~opensesh.errors.ConfigError` with position and reason."""
    try:
        view = msgspec.convert(document, kind)
    except msgspec.ValidationError as error:
        raise _explain(document, kind, str(error), source) from None
    for path in _nulls(view, document, ()):
        raise source.error(f"expected {_expected(kind, path)}, found null", path)
    return view


def unknown_keys(view: object, raw: Any, path: SettingPath = ()) -> Iterator[UnknownKey]:
    """Yield the keys of ``raw`` that its typed ``view`` has no field for. In an agent, such keys are options."""
    for inner, value, here in _pairs(view, raw, path):
        if isinstance(inner, Struct) and not isinstance(inner, AgentConfig):
            known = inner.__struct_encode_fields__
            yield from (UnknownKey((*here, key), known) for key in cast("Document", value) if key not in known)


def _nulls(view: object, raw: Any, path: SettingPath) -> Iterator[SettingPath]:
    for inner, value, here in _pairs(view, raw, path):
        if isinstance(inner, Struct):
            members = cast("Document", value)
            yield from ((*here, key) for key in inner.__struct_encode_fields__ if members.get(key, ...) is None)


def _pairs(view: object, raw: Any, path: SettingPath) -> Iterator[tuple[object, Any, SettingPath]]:
    """Yield every typed section with its raw value and path."""
    if isinstance(view, Struct):
        yield view, raw, path
        names = dict(zip(view.__struct_encode_fields__, view.__struct_fields__, strict=True))
        inside: Iterable[tuple[str, object]] = [(key, getattr(view, names[key])) for key in raw if key in names]
    else:
        inside = (as_object(view) or {}).items()
    for key, member in inside:
        if isinstance(member, (Struct, dict)):
            yield from _pairs(cast("object", member), raw[key], (*path, key))


def _explain(document: Document, kind: type[Struct], error: str, source: Source) -> ConfigError:
    message, _, where = error.partition(" - at `")
    path = _pinpoint(document, kind, error, _steps(where))
    missing = re.match(_MISSING, message)
    if missing:
        return source.error(f"{missing[1]!r} is missing", path)
    return source.error(f"expected {_expected(kind, path)}, found {_describe(_at(document, path))}", path)


def _steps(where: str) -> list[Any]:
    return [
        name or (_ANY if any_member else int(index)) for name, index, any_member in re.findall(_STEP, where.rstrip("`"))
    ]


def _pinpoint(document: Document, kind: type[Struct], error: str, steps: list[Any]) -> SettingPath:
    path: SettingPath = ()
    for step in steps:
        if step is not _ANY:
            path = (*path, step)
            continue
        members = as_object(_at(document, path)) or {}
        for name, member in members.items():
            alone = _with(document, path, {name: member})
            if _conversion_error(alone, kind) == error:
                document, path = alone, (*path, name)
                break
    return path


def _conversion_error(document: Document, kind: type[Struct]) -> str:
    try:
        msgspec.convert(document, kind)
    except msgspec.ValidationError as error:
        return str(error)
    return ""


def _at(value: Any, path: SettingPath) -> Any:
    for step in path:
        value = value[step]
    return value


def _with(value: Any, path: SettingPath, replacement: Any) -> Any:
    """Return a copy of ``value`` with ``replacement`` at ``path``."""
    if not path:
        return replacement
    copy = list(items) if (items := as_list(value)) is not None else dict(cast("Document", value))
    copy[cast("Any", path[0])] = _with(value[path[0]], path[1:], replacement)
    return copy


def _expected(kind: type[Struct], path: SettingPath) -> str:
    """Describe what the schema requires at ``path``."""
    kinds: list[inspect.Type] = [inspect.type_info(kind)]
    for step in path:
        kinds = [inner for outer in kinds for inner in _inside(outer, step)]
    words = list(dict.fromkeys(word for outer in kinds for word in _words(outer)))
    return " or ".join([", ".join(words[:-1]), words[-1]] if len(words) > 1 else words)


def _inside(kind: Any, step: str | int) -> list[Any]:
    match kind:
        case inspect.StructType():
            inner_types = [field.type for field in kind.fields if field.encode_name == step]
        case inspect.DictType():
            inner_types = [kind.value_type]
        case inspect.ListType():
            inner_types = [kind.item_type]
        case _:
            inner_types = []
    return [one for inner in inner_types for one in (inner.types if isinstance(inner, inspect.UnionType) else [inner])]


def _words(kind: Any) -> list[str]:
    match kind:
        case inspect.NoneType():
            return []
        case inspect.LiteralType():
            return [repr(value) for value in kind.values]
        case inspect.StrType(pattern=str(pattern)):
            return ["'#RRGGBB'", *(repr(name) for name in re.findall(r"[a-z]{4,}", pattern))]
        case inspect.IntType(ge=int(least)):
            return [f"a whole number from {least} up"]
        case _:
            return [_NAMES.get(type(cast("object", kind)).__name__, "an object")]


_NAMES = {
    "StrType": "a string",
    "IntType": "a whole number",
    "FloatType": "a number",
    "BoolType": "true or false",
    "ListType": "a list",
}


def _describe(value: object) -> str:
    if isinstance(value, str):
        return repr(value) if len(value) <= 40 else "a long string"
    kinds: dict[type, str] = {dict: "an object", list: "a list", type(None): "null", bool: str(value).lower()}
    return kinds.get(type(value), str(value))
