from __future__ import annotations

import time
from typing import Any

import pytest

from opensesh.tools.json_schema import schema_problems

PERSON: dict[str, Any] = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "minLength": 1, "pattern": "^[A-Z]"},
        "age": {"type": "integer", "minimum": 0, "exclusiveMaximum": 200},
        "tags": {"type": "array", "items": {"enum": ["a", "b", 1]}, "maxItems": 2, "uniqueItems": True},
        "parent": {"anyOf": [{"$ref": "#"}, {"type": "null"}]},
        "size": {"oneOf": [{"type": "number", "multipleOf": 0.5}, {"const": "large"}]},
    },
    "required": ["name"],
    "additionalProperties": False,
}


@pytest.mark.parametrize(
    "value",
    [
        {"name": "Ann"},
        {"name": "Ann", "age": 199, "tags": ["a", 1], "parent": None, "size": 1.5},
        {"name": "Ann", "age": 3.0, "parent": {"name": "Bo", "parent": {"name": "Cy"}}, "size": "large"},
    ],
)
def test_values_that_fit_have_no_problems(value: Any) -> None:
    assert schema_problems(value, PERSON) == []


@pytest.mark.parametrize(
    ("value", "problem"),
    [
        ([], "$: expected object, not array"),
        ({}, "$: 'name' is missing"),
        ({"name": ""}, "$.name: has 0 characters, at least 1 are needed"),
        ({"name": "ann"}, "$.name: does not match the pattern ^[A-Z]"),
        ({"name": "Ann", "age": True}, "$.age: expected integer, not boolean"),
        ({"name": "Ann", "age": 1.5}, "$.age: expected integer, not number"),
        ({"name": "Ann", "age": -1}, "$.age: less than 0"),
        ({"name": "Ann", "age": 200}, "$.age: not less than 200"),
        ({"name": "Ann", "tags": ["c"]}, '$.tags[0]: expected one of ["a","b",1]'),
        ({"name": "Ann", "tags": [True]}, '$.tags[0]: expected one of ["a","b",1]'),
        ({"name": "Ann", "tags": ["a", "a"]}, "$.tags: two items are the same"),
        ({"name": "Ann", "tags": ["a", "b", 1]}, "$.tags: has 3 items, at most 2 are allowed"),
        ({"name": "Ann", "parent": {"name": 3}}, "$.parent: fits none of the alternatives"),
        ({"name": "Ann", "size": 1.3}, "$.size: fits none of the alternatives instead of one"),
        ({"name": "Ann", "other": 1}, "$: 'other' is not a property of the schema"),
    ],
)
def test_a_value_that_does_not_fit_has_a_problem_with_its_place(value: Any, problem: str) -> None:
    assert problem in schema_problems(value, PERSON)


@pytest.mark.parametrize(
    ("schema", "value", "fits"),
    [
        ({"allOf": [{"minimum": 1}, {"maximum": 3}]}, 2, True),
        ({"allOf": [{"minimum": 1}, {"maximum": 3}]}, 4, False),
        ({"not": {"type": "string"}}, "x", False),
        ({"if": {"type": "string"}, "then": {"minLength": 2}, "else": {"minimum": 2}}, "x", False),
        ({"if": {"type": "string"}, "then": {"minLength": 2}, "else": {"minimum": 2}}, 2, True),
        ({"prefixItems": [{"type": "string"}], "items": False}, ["x"], True),
        ({"prefixItems": [{"type": "string"}], "items": False}, ["x", 1], False),
        ({"contains": {"const": 1}}, [2, 1], True),
        ({"contains": {"const": 1}}, [2], False),
        (
            {"patternProperties": {"^x": {"type": "integer"}}, "additionalProperties": {"type": "string"}},
            {"x1": 1},
            True,
        ),
        (
            {"patternProperties": {"^x": {"type": "integer"}}, "additionalProperties": {"type": "string"}},
            {"y": 1},
            False,
        ),
        ({"propertyNames": {"maxLength": 2}}, {"long": 1}, False),
        ({"dependentRequired": {"a": ["b"]}}, {"a": 1}, False),
        ({"$defs": {"n": {"type": ["integer", "null"]}}, "$ref": "#/$defs/n"}, None, True),
        ({"$defs": {"n": {"type": ["integer", "null"]}}, "$ref": "#/$defs/n"}, "x", False),
        ({"format": "date", "x-unknown": 3}, "no date", True),
        ({"multipleOf": 0.01}, 19.99, True),
        ({"multipleOf": 0.01}, 19.995, False),
        ({"multipleOf": 1}, 10**400, True),
        (True, object, True),
    ],
)
def test_keywords_combine(schema: Any, value: Any, fits: bool) -> None:
    assert (schema_problems(value, schema) == []) == fits


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "whole"},
        {"required": 3},
        {"pattern": "("},
        {"$ref": "#/nowhere"},
        {"allOf": [], "$ref": "#/allOf/0"},
        {"multipleOf": 0},
        3,
    ],
)
def test_an_invalid_schema_is_an_error(schema: Any) -> None:
    with pytest.raises(ValueError, match="the JSON schema is not valid"):  # noqa: PT012 - which value meets it differs
        values: list[Any] = ["x", {}, 1]
        for value in values:
            schema_problems(value, schema)


def test_a_schema_that_refers_to_itself_comes_to_an_end() -> None:
    assert schema_problems(1, {"$ref": "#"}) == ["$: too deep"]


@pytest.mark.parametrize("keyword", ["anyOf", "oneOf", "allOf"])
def test_a_schema_whose_alternatives_refer_to_itself_is_refused_in_bounded_time(keyword: str) -> None:
    schema = {keyword: [{"$ref": "#"}] * 3}
    with pytest.raises(ValueError, match="takes too long"):
        schema_problems({"a": 1}, schema)


UNIQUE: list[tuple[list[Any], bool]] = [
    ([1, 2, "1", True, None, [1], {"a": 1}], True),
    ([1, 1.0], False),
    ([{"a": [1], "b": 2}, {"b": 2.0, "a": [1]}], False),
    ([[True], [1]], True),
    ([[], {}, "", 0, False, None], True),
    (["object", ["object"]], True),
]


@pytest.mark.parametrize(("items", "are_unique"), UNIQUE)
def test_items_are_unique_if_no_two_are_equal(items: list[Any], are_unique: bool) -> None:
    assert (schema_problems(items, {"uniqueItems": True}) == []) == are_unique


def test_items_of_a_long_list_are_compared_in_linear_time() -> None:
    start = time.process_time()
    assert schema_problems([[number] for number in range(45_000)], {"uniqueItems": True}) == []
    assert time.process_time() - start < 10
