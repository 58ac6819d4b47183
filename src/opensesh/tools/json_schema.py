"""Whether a JSON value fits a JSON schema: the keywords of the validation vocabulary of draft 2020-12 that concern a
value itself, with references inside the schema. Formats and unknown keywords are annotations and always fit."""

from __future__ import annotations

import re
from decimal import Decimal
from typing import TYPE_CHECKING, Any, cast

from ..records import dumps_compact

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

_MAX_DEPTH = 100
"""Deeper values, and schemas that refer to themselves without an end, do not fit."""
_MAX_CHECKS = 100_000
"""Schemas met by a value. Alternatives that refer to their own parent double with each reference."""
_TYPES: dict[str, Callable[[Any], bool]] = {
    "null": lambda value: value is None,
    "boolean": lambda value: isinstance(value, bool),
    "string": lambda value: isinstance(value, str),
    "array": lambda value: isinstance(value, list),
    "object": lambda value: isinstance(value, dict),
    "number": lambda value: isinstance(value, (int, float)) and not isinstance(value, bool),
    "integer": lambda value: _TYPES["number"](value) and value == value // 1,
}


def schema_problems(value: Any, schema: Mapping[str, Any]) -> list[str]:
    """Return why ``value`` does not fit ``schema``, each with the path in the value; none if it fits.

    Raises :class:`ValueError` for a schema that is not valid where the value meets it, or takes too long to check.
    """
    try:
        return list(_Check(schema).problems(value, schema, "$", 0))
    except (TypeError, AttributeError, LookupError, ArithmeticError, RecursionError, re.error) as error:
        raise ValueError(f"the JSON schema is not valid: {error}") from error


class _Check:
    def __init__(self, root: Mapping[str, Any]) -> None:
        self._root = root
        self._checks = 0

    def problems(self, value: Any, schema: Any, path: str, depth: int) -> Iterator[str]:
        self._checks += 1
        if self._checks > _MAX_CHECKS:
            raise ValueError("the JSON schema takes too long to check: its references lead back to themselves")
        if schema is True:
            return
        if schema is False or depth > _MAX_DEPTH:
            yield f"{path}: nothing is allowed here" if schema is False else f"{path}: too deep"
            return
        if "$ref" in schema:
            yield from self.problems(value, self._referenced(schema["$ref"]), path, depth + 1)
        yield from self._of_any_kind(value, schema, path)
        yield from self._of_combinations(value, schema, path, depth)
        if isinstance(value, dict):
            yield from self._of_object(cast("dict[str, Any]", value), schema, path, depth)
        elif isinstance(value, list):
            yield from self._of_array(cast("list[Any]", value), schema, path, depth)
        elif isinstance(value, str):
            yield from _limits(len(value), schema, path, ("minLength", "maxLength"), "characters")
            if "pattern" in schema and not re.search(schema["pattern"], value):
                yield f"{path}: does not match the pattern {schema['pattern']}"
        elif _TYPES["number"](value):
            yield from _of_number(value, schema, path)

    def _of_any_kind(self, value: Any, schema: Mapping[str, Any], path: str) -> Iterator[str]:
        kinds = schema.get("type")
        if kinds is not None:
            names: list[str] = [kinds] if isinstance(kinds, str) else kinds
            if not any(_TYPES[name](value) for name in names):
                kind = next((name for name in ("integer", *_TYPES) if _TYPES[name](value)), type(value).__name__)
                yield f"{path}: expected {' or '.join(names)}, not {kind}"
        if "enum" in schema and not any(_equal(value, choice) for choice in schema["enum"]):
            yield f"{path}: expected one of {dumps_compact(schema['enum']).decode()}"
        if "const" in schema and not _equal(value, schema["const"]):
            yield f"{path}: expected {dumps_compact(schema['const']).decode()}"

    def _of_combinations(self, value: Any, schema: Mapping[str, Any], path: str, depth: int) -> Iterator[str]:
        def fits(branch: Any) -> bool:
            return next(self.problems(value, branch, path, depth + 1), None) is None

        for branch in schema.get("allOf", ()):
            yield from self.problems(value, branch, path, depth + 1)
        if "anyOf" in schema and not any(map(fits, schema["anyOf"])):
            yield f"{path}: fits none of the alternatives"
        if "oneOf" in schema and (count := sum(map(fits, schema["oneOf"]))) != 1:
            yield f"{path}: fits {count or 'none'} of the alternatives instead of one"
        if "not" in schema and fits(schema["not"]):
            yield f"{path}: is what it must not be"
        if "if" in schema:
            chosen = schema.get("then" if fits(schema["if"]) else "else", True)
            yield from self.problems(value, chosen, path, depth + 1)

    def _of_object(self, value: dict[str, Any], schema: Mapping[str, Any], path: str, depth: int) -> Iterator[str]:
        for name in schema.get("required", ()):
            if name not in value:
                yield f"{path}: {name!r} is missing"
        for name, names in schema.get("dependentRequired", {}).items():
            yield from (f"{path}: {other!r} is missing" for other in names if name in value and other not in value)
        yield from _limits(len(value), schema, path, ("minProperties", "maxProperties"), "properties")
        properties, patterns = schema.get("properties", {}), schema.get("patternProperties", {})
        for name, item in value.items():
            below = f"{path}.{name}"
            schemas = [branch for pattern, branch in patterns.items() if re.search(pattern, name)]
            schemas += [properties[name]] if name in properties else []
            if not schemas and schema.get("additionalProperties") is False:
                yield f"{path}: {name!r} is not a property of the schema"
            elif not schemas:
                schemas.append(schema.get("additionalProperties", True))
            if "propertyNames" in schema:
                yield from self.problems(name, schema["propertyNames"], below, depth + 1)
            for branch in schemas:
                yield from self.problems(item, branch, below, depth + 1)

    def _of_array(self, value: list[Any], schema: Mapping[str, Any], path: str, depth: int) -> Iterator[str]:
        yield from _limits(len(value), schema, path, ("minItems", "maxItems"), "items")
        if schema.get("uniqueItems") and len(set(map(_comparable, value))) < len(value):
            yield f"{path}: two items are the same"
        first = schema.get("prefixItems", ())
        for at, item in enumerate(value):
            branch = first[at] if at < len(first) else schema.get("items", True)
            yield from self.problems(item, branch, f"{path}[{at}]", depth + 1)
        if "contains" in schema and not any(
            next(self.problems(item, schema["contains"], path, depth + 1), None) is None for item in value
        ):
            yield f"{path}: contains no item that the schema asks for"

    def _referenced(self, reference: str) -> Any:
        target: Any = self._root
        if not reference.startswith("#"):
            raise KeyError(f"{reference} is not in the schema")
        for step in reference[1:].split("/")[1:]:
            name = step.replace("~1", "/").replace("~0", "~")
            target = target[int(name) if name.isdecimal() and isinstance(target, list) else name]
        return target


def _of_number(value: float, schema: Mapping[str, Any], path: str) -> Iterator[str]:
    if "minimum" in schema and value < schema["minimum"]:
        yield f"{path}: less than {schema['minimum']}"
    if "maximum" in schema and value > schema["maximum"]:
        yield f"{path}: more than {schema['maximum']}"
    if "exclusiveMinimum" in schema and value <= schema["exclusiveMinimum"]:
        yield f"{path}: not more than {schema['exclusiveMinimum']}"
    if "exclusiveMaximum" in schema and value >= schema["exclusiveMaximum"]:
        yield f"{path}: not less than {schema['exclusiveMaximum']}"
    if "multipleOf" in schema:
        ratio = Decimal(str(value)) / Decimal(str(schema["multipleOf"]))  # as numbers are written: 0.3 is 3 times 0.1
        if ratio != ratio.to_integral_value():
            yield f"{path}: not a multiple of {schema['multipleOf']}"


def _limits(count: int, schema: Mapping[str, Any], path: str, names: tuple[str, str], unit: str) -> Iterator[str]:
    least, most = (schema.get(name) for name in names)
    if least is not None and count < least:
        yield f"{path}: has {count} {unit}, at least {least} are needed"
    if most is not None and count > most:
        yield f"{path}: has {count} {unit}, at most {most} are allowed"


def _comparable(value: Any) -> Any:
    """Return something hashable that is equal for equal JSON values."""
    if isinstance(value, dict):
        return "object", frozenset((name, _comparable(item)) for name, item in cast("dict[str, Any]", value).items())
    if isinstance(value, list):
        return "array", tuple(map(_comparable, cast("list[Any]", value)))
    return isinstance(value, bool), value


def _equal(one: Any, other: Any) -> bool:
    """Whether two JSON values are equal; unlike in Python, ``1`` is not ``true``."""
    return isinstance(one, bool) == isinstance(other, bool) and bool(one == other)
