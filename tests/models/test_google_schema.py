from __future__ import annotations

from typing import Any

import pytest

from opensesh.models.google_request import simplify_schema


def of(schema: dict[str, Any], **root: Any) -> dict[str, Any]:
    """What becomes of one property."""
    whole = simplify_schema({"type": "object", "properties": {"it": schema}, **root})
    assert whole is not None
    return whole["properties"]["it"]


@pytest.mark.parametrize(
    ("schema", "expected"),
    [
        ({"type": "string", "description": "d", "minLength": 1}, {"type": "string", "description": "d"}),
        ({"type": "integer", "enum": [1, 2]}, {"type": "string", "enum": ["1", "2"]}),
        ({"type": "string", "enum": ["a", None]}, {"type": "string", "nullable": True, "enum": ["a"]}),
        ({"const": "x"}, {"type": "string", "enum": ["x"]}),
        ({"const": True}, {"type": "string", "enum": ["true"]}),
        ({"type": "array"}, {"type": "array", "items": {"type": "string"}}),
        ({"type": "array", "items": {}}, {"type": "array", "items": {"type": "string"}}),
        (
            {"type": "array", "items": {"type": "number"}, "minItems": 1, "uniqueItems": True},
            {"type": "array", "minItems": 1, "items": {"type": "number"}},
        ),
        ({"type": "string", "properties": {"a": {}}, "required": ["a"]}, {"type": "string"}),
        ({"type": "integer", "exclusiveMinimum": 0, "maximum": 9}, {"type": "integer", "maximum": 9}),
        ({"type": "string", "format": "uri"}, {"type": "string"}),
        ({"type": "string", "format": "date-time"}, {"type": "string", "format": "date-time"}),
        ({"type": ["string", "null"]}, {"type": "string", "nullable": True}),
        ({"type": ["string", "integer"]}, {"anyOf": [{"type": "string"}, {"type": "integer"}]}),
        ({"anyOf": [{"type": "string"}, {"type": "null"}]}, {"type": "string", "nullable": True}),
        (
            {"oneOf": [{"type": "string"}, {"type": "boolean"}], "description": "d"},
            {"anyOf": [{"type": "string", "description": "d"}, {"type": "boolean", "description": "d"}]},
        ),
        ({}, {"type": "string"}),
        ({"type": "object", "additionalProperties": {"type": "string"}}, {"type": "object"}),
        (
            {"properties": {"a": {"type": "string"}}, "required": ["a", "gone"], "additionalProperties": False},
            {"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"]},
        ),
        (
            {"type": "object", "properties": {"a": {"type": "string"}}, "anyOf": [{"required": ["a"]}]},
            {"type": "object", "properties": {"a": {"type": "string"}}},
        ),
        (
            {
                "allOf": [
                    {"properties": {"a": {"type": "string"}}, "required": ["a"]},
                    {"properties": {"b": {"type": "number"}}},
                ]
            },
            {"type": "object", "properties": {"a": {"type": "string"}, "b": {"type": "number"}}, "required": ["a"]},
        ),
    ],
)
def test_what_gemini_does_not_know_is_put_in_its_terms(schema: dict[str, Any], expected: dict[str, Any]) -> None:
    assert of(schema) == expected


def test_references_are_followed() -> None:
    defs = {"Size": {"type": "string", "enum": ["s", "m"]}}
    reference = {"$ref": "#/$defs/Size", "description": "d"}
    assert of(reference, **{"$defs": defs}) == {"type": "string", "enum": ["s", "m"], "description": "d"}
    assert of({"$ref": "#/definitions/a~1b"}, definitions={"a/b": {"type": "number"}}) == {"type": "number"}
    assert of({"$ref": "#/$defs/Gone"}) == {"type": "string"}


def test_a_reference_that_leads_back_to_itself_ends() -> None:
    node = {"type": "object", "properties": {"next": {"$ref": "#/$defs/Node"}, "n": {"type": "integer"}}}
    got = of({"$ref": "#/$defs/Node"}, **{"$defs": {"Node": node}})
    assert got["properties"] == {"next": {"type": "object"}, "n": {"type": "integer"}}


def test_an_object_without_properties_has_no_parameters() -> None:
    assert simplify_schema({"type": "object", "properties": {}}) is None
    assert simplify_schema({"type": "object"}) is None


def test_a_choice_at_the_top_becomes_one_object() -> None:
    branches = [{"type": "object", "properties": {name: {"type": "string"}}, "required": [name]} for name in "ab"]
    assert simplify_schema({"anyOf": branches}) == {
        "type": "object",
        "properties": {"a": {"type": "string"}, "b": {"type": "string"}},
    }


def test_googles_own_types_accept_it() -> None:
    types = pytest.importorskip("google.genai.types")
    schema = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "type": "object",
        "properties": {
            "todos": {
                "type": "array",
                "items": {
                    "type": "object",
                    "properties": {"status": {"enum": ["pending", "done"]}, "n": {"type": ["integer", "null"]}},
                    "additionalProperties": False,
                },
            },
            "either": {"anyOf": [{"type": "string"}, {"type": "integer", "exclusiveMinimum": 0}]},
        },
        "additionalProperties": False,
    }
    types.Schema.model_validate(simplify_schema(schema))
