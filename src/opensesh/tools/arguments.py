"""Arguments of a tool: JSON schema from a struct, and struct from what a model wrote.

Some mistakes of models are certain enough to repair: a number in quotes, ``null`` for an omitted argument, a list
written as JSON text, ``file_path`` for ``filePath``. The repair depends on the schema of the one tool, which general
JSON repair libraries do not look at. Every other mistake is reported to the model, with what would be valid.
"""

from __future__ import annotations

import re
from contextlib import suppress
from functools import cache
from typing import TYPE_CHECKING, Annotated, Any, TypeVar, cast

import msgspec
from msgspec import Meta, Struct

from ..errors import InvalidArgumentsError, RecordError
from ..records import loads, without_surrogates

if TYPE_CHECKING:
    from collections.abc import Mapping

Positive = Annotated[int, Meta(ge=1)]
"""A number that starts at one."""

_LOCATION = r" - at `\$\.?([^`]*)`$"
_EXPECTED = r"Expected `(.+?)`, got `(.+?)`"
_MISSING = r"Object missing required field `(.+?)`"
_LIMIT = r"Expected `(.+?)` (>=|<=|>|<|of length >=|of length <=) (\S+)"
_TYPE_NAMES = {
    "str": "a string",
    "int": "a whole number",
    "float": "a number",
    "bool": "true or false",
    "array": "a list",
    "object": "an object",
    "null": "nothing",
}


class Arguments(Struct, frozen=True, kw_only=True, rename="camel"):
    """Base class of arguments. The model sees OpenCode's spelling: ``file_path`` is ``filePath``."""


A = TypeVar("A", bound=Struct)


@cache
def schema_of(kind: type[Struct]) -> dict[str, Any]:
    """Return the JSON schema of ``kind`` without references. Optional fields are not required, and never null."""
    schema = msgspec.json.schema(kind)
    return cast("dict[str, Any]", _inline(schema, schema.get("$defs", {})))


def decode(tool: str, kind: type[A], arguments: Mapping[str, Any]) -> A:
    """Convert the model's arguments to ``kind``, with defaults applied.

    Raises :class:`InvalidArgumentsError` with a message for the model.
    """
    schema = schema_of(kind)
    try:
        return msgspec.convert(_repair(dict(arguments), schema), kind, strict=False)
    except msgspec.ValidationError as error:
        problem = _explain(str(error))
    described = [
        f"`{name}` ({field.get('type', 'anything')}{'' if name in schema['required'] else ', optional'})"
        for name, field in schema["properties"].items()
    ]
    raise InvalidArgumentsError(
        f"The {tool} tool was called with invalid arguments: {problem}. It takes "
        f"{', '.join(described) or 'no arguments'}. Call it again with valid arguments.",
        tool=tool,
    )


def _inline(node: Any, definitions: dict[str, Any]) -> Any:
    if isinstance(node, list):
        return [_inline(item, definitions) for item in cast("list[Any]", node)]
    if not isinstance(node, dict):
        return node
    fields = cast("dict[str, Any]", node).copy()
    fields.pop("$defs", None)
    if (reference := fields.pop("$ref", None)) is not None:
        fields.pop("default", None)
        target = definitions[reference.rpartition("/")[2]]
        # A struct's docstring is for programmers; the model reads the field's description.
        fields |= {key: value for key, value in target.items() if key not in ("title", "description")}
        return _inline(fields, definitions)
    inlined = {key: _inline(value, definitions) for key, value in fields.items()}
    choices: list[Any] = inlined.get("anyOf", [])
    if {"type": "null"} in choices:
        choices.remove({"type": "null"})
        del inlined["anyOf"]
        inlined |= choices[0] if len(choices) == 1 else {"anyOf": choices}
    if "default" in inlined and inlined["default"] is None:
        del inlined["default"]
    if "enum" in inlined and "type" not in inlined and all(isinstance(item, str) for item in inlined["enum"]):
        inlined["type"] = "string"
    if inlined.get("type") == "object" and "properties" in inlined:
        inlined.setdefault("required", [])
        inlined["additionalProperties"] = False
    return inlined


def _repair(arguments: dict[str, Any], schema: dict[str, Any]) -> dict[str, Any]:
    properties: dict[str, dict[str, Any]] = schema["properties"]
    required: list[str] = schema["required"]
    by_spelling = {_folded(name): name for name in properties}
    repaired: dict[str, Any] = {}
    for written, value in arguments.items():
        name = written if written in properties else by_spelling.get(_folded(written), written)
        if name != written and name in arguments:
            continue
        if name not in required and (value is None or value in ("undefined", "null")):
            continue
        repaired[name] = without_surrogates(value)
        # A list or an object may have been written as JSON text.
        container = {"array": list, "object": dict}.get(properties.get(name, {}).get("type", ""))
        if container is not None and isinstance(value, str):
            with suppress(RecordError):
                decoded = loads(value.encode("utf-8", "surrogatepass"))
                repaired[name] = decoded if isinstance(decoded, container) else value
    return repaired


def _folded(name: str) -> str:
    return name.replace("_", "").replace("-", "").lower()


def _explain(error: str) -> str:
    """Translate a message of msgspec for the model."""
    location = re.search(_LOCATION, error)
    what = error[: location.start()] if location else error
    where = f"`{location[1]}`" if location and location[1] else "the input"
    if missing := re.match(_MISSING, what):
        inside = f" in {where}" if location and location[1] else ""
        return f"`{missing[1]}`{inside} is required, and missing"
    if types := re.match(_EXPECTED, what):
        return f"{where} should be {_type_names(types[1])}, not {_type_names(types[2])}"
    if limit := re.match(_LIMIT, what):
        return f"{where} should be {_type_names(limit[1])} {limit[2]} {limit[3]}"
    return f"{where}: {what}"


def _type_names(types: str) -> str:
    return " or ".join(_TYPE_NAMES.get(name, name) for name in types.split(" | ") if name != "null" or types == "null")
