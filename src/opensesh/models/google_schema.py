"""JSON schemas cut down to what Gemini takes: a part of OpenAPI 3.0."""

from __future__ import annotations

from typing import Any, cast

from .wire_helpers import object_field

Schema = dict[str, Any]

_KEPT = {
    "array": ("description", "minItems", "maxItems"),
    "integer": ("description", "minimum", "maximum"),
    "number": ("description", "minimum", "maximum"),
}
_FORMATS = frozenset({"date-time", "float", "double", "int32", "int64"})


def simplified(schema: Schema) -> Schema | None:
    """``schema`` of an object, in Gemini's terms; ``None`` where the object has no properties.

    Enumerations become strings, references are followed (one that leads back to itself ends as a plain object), and
    words Gemini would refuse the whole request for are left out.
    """
    reduced = _Reduction(schema).of(schema)
    if "anyOf" in reduced:  # at the top there is one object, so it gets what any of the branches has
        members = [object_field(branch, "properties") for branch in reduced["anyOf"]]
        reduced = {"type": "object", "properties": {name: each[name] for each in members for name in each}}
    return reduced if reduced.get("properties") else None


class _Reduction:
    """One schema being reduced; keeps the root, where references point."""

    def __init__(self, root: Schema) -> None:
        self._root = root

    def of(self, schema: object, within: frozenset[str] = frozenset()) -> Schema:
        if not isinstance(schema, dict):
            return {"type": "string"}
        found = cast("Schema", schema)
        reference = found.get("$ref")
        if isinstance(reference, str):
            if reference in within:
                return {"type": "object"}
            within |= {reference}
            found = {**self._target(reference), **{key: found[key] for key in found if key != "$ref"}}
            return self.of(found, within)
        found = self._flattened(found, within)
        branches = found.get("anyOf") or found.get("oneOf")
        if isinstance(branches, list) and "properties" not in found:
            return self._choice(found, cast("list[object]", branches), within)
        return self._plain(found, within)

    def _target(self, reference: str) -> Schema:
        place = self._root
        for step in reference.removeprefix("#").strip("/").split("/"):
            name = step.replace("~1", "/").replace("~0", "~")
            place = object_field(place, name)
        return place

    def _flattened(self, schema: Schema, within: frozenset[str]) -> Schema:
        """``schema`` with the members of its ``allOf`` taken in."""
        members = schema.get("allOf")
        if not isinstance(members, list):
            return schema
        whole = {key: value for key, value in schema.items() if key != "allOf"}
        for member in cast("list[object]", members):
            part = self.of(member, within)
            properties = {**object_field(whole, "properties"), **object_field(part, "properties")}
            required: list[str] = [*whole.get("required", ()), *part.get("required", ())]
            whole = {**part, **whole}
            if properties:
                whole |= {"type": "object", "properties": properties, "required": required}
        return whole

    def _choice(self, schema: Schema, branches: list[object], within: frozenset[str]) -> Schema:
        """``anyOf`` stands alone in Gemini's schemas, so what was said beside it moves into the branches."""
        real = [branch for branch in branches if not _is_null(branch)]
        beside: Schema = {"nullable": True} if len(real) < len(branches) else {}
        if schema.get("description"):
            beside["description"] = schema["description"]
        reduced = [{**beside, **self.of(branch, within)} for branch in real]
        if not reduced:
            return {"type": "string", **beside}
        return reduced[0] if len(reduced) == 1 else {"anyOf": reduced}

    def _plain(self, schema: Schema, within: frozenset[str]) -> Schema:
        kind, nullable, others = _kind(schema)
        if others:
            return self._choice(schema, [{**schema, "type": name} for name in (kind, *others)], within)
        reduced: Schema = {
            "type": kind,
            **{key: schema[key] for key in _KEPT.get(kind, ("description",)) if key in schema},
        }
        if nullable:
            reduced["nullable"] = True
        if schema.get("format") in _FORMATS:
            reduced["format"] = schema["format"]
        match kind:
            case "object":
                reduced |= self._object(schema, within)
            case "array":
                reduced["items"] = self.of(schema.get("items") or {}, within)
            case "string" if values := _values(schema):
                reduced["enum"] = values
            case _:
                pass
        return reduced

    def _object(self, schema: Schema, within: frozenset[str]) -> Schema:
        properties = object_field(schema, "properties")
        if not properties:
            return {}
        required = [name for name in schema.get("required") or () if name in properties]
        members = {name: self.of(member, within) for name, member in properties.items()}
        return {"properties": members, **({"required": required} if required else {})}


def _kind(schema: Schema) -> tuple[str, bool, list[str]]:
    """The type, whether it may be null, and what else it may be."""
    declared = schema.get("type")
    names = cast("list[str]", declared) if isinstance(declared, list) else [declared] if declared else []
    nullable = "null" in names or schema.get("nullable") is True or None in (schema.get("enum") or ())
    kinds = [name for name in names if name != "null"]
    if _values(schema):
        return "string", nullable, []
    if kinds:
        return kinds[0], nullable, kinds[1:]
    if "properties" in schema:
        return "object", nullable, []
    return "array" if "items" in schema else "string", nullable, []


def _values(schema: Schema) -> list[str]:
    values = schema.get("enum") or ([schema["const"]] if "const" in schema else [])
    return [_spelled(value) for value in values if value is not None]


def _spelled(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _is_null(branch: object) -> bool:
    return isinstance(branch, dict) and cast("Schema", branch).get("type") == "null"
