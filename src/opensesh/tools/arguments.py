"""The arguments of a tool: from a struct to a JSON schema, and from what a model wrote to the struct.

Models make mistakes that are plain enough to mend: a number in quotes, ``null`` for "not given", a list written as JSON
text, ``file_path`` for ``filePath``. Anything else is told to the model, with what was wrong and what would be right.
"""

from __future__ import annotations

import re
from functools import cache
from typing import TYPE_CHECKING, Annotated, Any, TypeVar, cast

import msgspec
from msgspec import Meta, Struct

from ..errors import InvalidArgumentsError, RecordError
from ..records import loads

if TYPE_CHECKING:
    from collections.abc import Mapping

Positive = Annotated[int, Meta(ge=1)]
"""A count that starts at one."""

_PLACE = r" - at `\$\.?([^`]*)`$"
_EXPECTED = r"Expected `(.+?)`, got `(.+?)`"
_MISSING = r"Object missing required field `(.+?)`"
_LIMIT = r"Expected `(.+?)` (>=|<=|>|<|of length >=|of length <=) (\S+)"
_NAMES = {
    "str": "a string",
    "int": "a whole number",
    "float": "a number",
    "bool": "true or false",
    "array": "a list",
    "object": "an object",
    "null": "nothing",
}
_NOT_GIVEN = ("undefined", "null")


class Arguments(Struct, frozen=True, kw_only=True, rename="camel"):
    """Base of all arguments. Names are spelled as OpenCode spells them: ``file_path`` is ``filePath`` to the model."""


A = TypeVar("A", bound=Struct)


@cache
def schema_of(kind: type[Struct]) -> dict[str, Any]:
    """The JSON schema of ``kind``, every reference inlined. Optional fields are simply not required; none is null."""
    whole = msgspec.json.schema(kind)
    schema = _inline(whole, whole.get("$defs", {}))
    return cast("dict[str, Any]", schema)


def decode(tool: str, kind: type[A], arguments: Mapping[str, Any]) -> A:
    """What the model wrote, as a ``kind`` with its defaults applied; or :class:`InvalidArgumentsError`, for the
    model."""
    schema = schema_of(kind)
    try:
        return msgspec.convert(_mend(dict(arguments), schema), kind, strict=False)
    except msgspec.ValidationError as error:
        problem = _explain(str(error))
    raise InvalidArgumentsError(
        f"The {tool} tool was called with invalid arguments: {problem}. It takes {_signature(schema)}. "
        "Call it again with arguments that fit.",
        tool=tool,
    )


def _inline(node: Any, definitions: dict[str, Any]) -> Any:
    if isinstance(node, list):
        return [_inline(item, definitions) for item in cast("list[Any]", node)]
    if not isinstance(node, dict):
        return node
    fields = cast("dict[str, Any]", node)
    if "$ref" in fields:
        target = definitions[fields["$ref"].rpartition("/")[2]]
        # A struct's own docstring is for programmers; what the model reads is the field's description.
        bare = {key: value for key, value in target.items() if key not in ("title", "description")}
        beside = {key: value for key, value in fields.items() if key not in ("$ref", "$defs", "default")}
        return _inline({**beside, **bare}, definitions)
    inlined = {key: _inline(value, definitions) for key, value in fields.items() if key != "$defs"}
    return _closed(_without_null(inlined))


def _without_null(node: dict[str, Any]) -> dict[str, Any]:
    choices: list[Any] | None = node.get("anyOf")
    if choices and {"type": "null"} in choices:
        left = [choice for choice in choices if choice != {"type": "null"}]
        node = {key: value for key, value in node.items() if key != "anyOf"}
        node |= left[0] if len(left) == 1 else {"anyOf": left}
    if "default" in node and node["default"] is None:
        del node["default"]
    if "enum" in node and "type" not in node and all(isinstance(item, str) for item in node["enum"]):
        node["type"] = "string"
    return node


def _closed(node: dict[str, Any]) -> dict[str, Any]:
    if node.get("type") == "object" and "properties" in node:
        node.setdefault("required", [])
        node["additionalProperties"] = False
    return node


def _mend(arguments: dict[str, Any], schema: dict[str, Any]) -> dict[str, Any]:
    properties: dict[str, dict[str, Any]] = schema["properties"]
    required: list[str] = schema["required"]
    spelled = {_plain(name): name for name in properties}
    mended: dict[str, Any] = {}
    for given, value in arguments.items():
        name = given if given in properties else spelled.get(_plain(given), given)
        if name != given and name in arguments:
            continue
        if name not in required and (value is None or value in _NOT_GIVEN):
            continue
        mended[name] = _mend_value(value, properties.get(name, {}))
    return mended


def _mend_value(value: Any, schema: dict[str, Any]) -> Any:
    if not isinstance(value, str):
        return whole(value)
    wanted = {"array": list, "object": dict}.get(schema.get("type", ""))
    if wanted is not None:
        try:
            read = loads(value.encode("utf-8", "surrogatepass"))
        except RecordError:
            return value
        return cast("Any", read) if isinstance(read, wanted) else value
    return whole(value)


def whole(value: Any) -> Any:
    """``value`` without half characters, which no file and no record can hold."""
    match value:
        case str():
            return value if value.isascii() else _whole_text(value)
        case list():
            return [whole(item) for item in cast("list[Any]", value)]
        case dict():
            return {key: whole(item) for key, item in cast("dict[str, Any]", value).items()}
        case _:
            return value


def _whole_text(text: str) -> str:
    from ..models.sse import replace_surrogates

    return replace_surrogates(text)


def _plain(name: str) -> str:
    return name.replace("_", "").replace("-", "").lower()


def _explain(error: str) -> str:
    place = re.search(_PLACE, error)
    what = error[: place.start()] if place else error
    where = f"`{place[1]}`" if place and place[1] else "the input"
    if missing := re.match(_MISSING, what):
        inside = f" in {where}" if place and place[1] else ""
        return f"`{missing[1]}`{inside} is required, and missing"
    if found := re.match(_EXPECTED, what):
        return f"{where} should be {_named(found[1])}, not {_named(found[2])}"
    if limit := re.match(_LIMIT, what):
        return f"{where} should be {_named(limit[1])} {limit[2]} {limit[3]}"
    return f"{where}: {what}"


def _named(types: str) -> str:
    return " or ".join(_NAMES.get(name, name) for name in types.split(" | ") if name != "null" or types == "null")


def _signature(schema: dict[str, Any]) -> str:
    def shown(name: str, field: dict[str, Any]) -> str:
        optional = "" if name in schema["required"] else ", optional"
        return f"`{name}` ({field.get('type', 'anything')}{optional})"

    return ", ".join(shown(name, field) for name, field in schema["properties"].items()) or "no arguments"
