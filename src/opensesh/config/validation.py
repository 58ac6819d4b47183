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
    from collections.abc import Iterable, Iterator, Sequence

    from ..errors import ConfigError
    from .source import SettingPath, Source

S = TypeVar("S", bound=Struct)

_STEP = r"\.([^.\[]+)|\[(\d+)\]|\[(\.\.\.)\]"
_MISSING = r"Object missing required field `(.+?)`"


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
    for section, raw, path in _pairs(view, document, ()):
        # msgspec takes null where a field is optional; OpenCode does not.
        for key in section.__struct_encode_fields__:
            if raw.get(key, ...) is None:
                raise source.error(f"expected {_expected(kind, (*path, key))}, found null", (*path, key))
    return view


def unknown_keys(view: Struct, raw: Document) -> Iterator[UnknownKey]:
    """Yield the keys of ``raw`` that its typed ``view`` has no field for. In an agent, such keys are options."""
    for section, members, here in _pairs(view, raw, ()):
        if not isinstance(section, AgentConfig):
            known = section.__struct_encode_fields__
            yield from (UnknownKey((*here, key), known) for key in members if key not in known)


def _pairs(view: object, raw: Any, path: SettingPath) -> Iterator[tuple[Struct, Document, SettingPath]]:
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
    steps: list[str | int] = []
    alone = document
    for name, index, any_member in re.findall(_STEP, where.rstrip("`")):
        if not any_member:
            steps.append(name or int(index))
            continue
        for key, member in (as_object(_at(alone, steps)) or {}).items():
            reduced = _with(alone, steps, {key: member})
            try:
                msgspec.convert(reduced, kind)
            except msgspec.ValidationError as same:
                if str(same) == error:
                    alone = reduced
                    steps.append(key)
                    break
    path = tuple(steps)
    if missing := re.match(_MISSING, message):
        return source.error(f"{missing[1]!r} is missing", path)
    value: object = _at(document, path)
    if isinstance(value, str):
        description = repr(value) if len(value) <= 40 else "a long string"
    else:
        kinds: dict[type, str] = {dict: "an object", list: "a list", type(None): "null", bool: str(value).lower()}
        description = kinds.get(type(value), str(value))
    return source.error(f"expected {_expected(kind, path)}, found {description}", path)


def _at(value: Any, path: Sequence[str | int]) -> Any:
    for step in path:
        value = value[step]
    return value


def _with(value: Any, path: Sequence[str | int], replacement: Any) -> Any:
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
