from __future__ import annotations

from typing import Annotated, Any

import pytest
from msgspec import Meta, Struct

from opensesh.errors import InvalidArgumentsError
from opensesh.tools.arguments import Arguments, Positive, decode, schema_of
from opensesh.tools.builtin_tools import builtin
from opensesh.tools.tool_registry import Features


class Inner(Struct, frozen=True, rename="camel"):
    """For programmers."""

    some_name: Annotated[str, Meta(description="A name")]
    count: int = 1


class Sample(Arguments, frozen=True):
    """For programmers."""

    file_path: Annotated[str, Meta(description="A path")]
    items: Annotated[tuple[Inner, ...], Meta(description="Things")] = ()
    offset: Annotated[Positive | None, Meta(description="Where")] = None
    flag: Annotated[bool, Meta(description="Whether")] = False
    options: dict[str, Any] = {}


def test_a_schema_holds_no_references_no_nulls_and_no_docstrings() -> None:
    schema = schema_of(Sample)
    assert schema["required"] == ["filePath"]
    assert schema["additionalProperties"] is False
    assert schema["properties"]["offset"] == {"description": "Where", "type": "integer", "minimum": 1}
    inner = schema["properties"]["items"]["items"]
    assert inner["properties"]["someName"] == {"description": "A name", "type": "string"}
    assert inner["required"] == ["someName"]
    assert "$ref" not in str(schema)
    assert "programmers" not in str(schema)


def test_every_schema_of_ours_is_an_object_whose_fields_are_described() -> None:
    for tool in builtin(Features(plan=True, batch=True, exa=True)):
        schema = tool.schema
        assert schema["type"] == "object"
        for name, field in schema["properties"].items():
            assert field["description"], (tool.id, name)
            assert "type" in field, (tool.id, name)


def test_fields_are_named_as_opencode_names_them() -> None:
    named = {tool.id: list(tool.schema["properties"]) for tool in builtin(Features(plan=True, batch=True, exa=True))}
    assert named["edit"] == ["filePath", "oldString", "newString", "replaceAll"]
    assert named["bash"] == ["command", "timeout", "workdir", "description"]
    assert named["task"] == ["description", "prompt", "subagent_type", "task_id", "command"]
    assert named["websearch"] == ["query", "numResults", "livecrawl", "type", "contextMaxCharacters"]
    assert named["codesearch"] == ["query", "tokensNum"]
    assert named["apply_patch"] == ["patchText"]
    assert named["batch"] == ["tool_calls"]
    assert named["plan_exit"] == []


def test_defaults_are_applied() -> None:
    args = decode("sample", Sample, {"filePath": "x", "items": [{"someName": "a"}]})
    assert args == Sample(file_path="x", items=(Inner("a", 1),))


@pytest.mark.parametrize(
    "arguments",
    [
        {"filePath": "x", "offset": "7"},
        {"filePath": "x", "offset": 7.0},
        {"file_path": "x", "offset": 7},
        {"FilePath": "x", "offset": 7, "unheard_of": 1},
        {"filePath": "x", "offset": 7, "flag": None, "items": None},
        {"filePath": "x", "offset": 7, "items": "[]"},
        {"filePath": "x", "offset": 7, "flag": "false"},
    ],
)
def test_plain_mistakes_are_mended(arguments: dict[str, Any]) -> None:
    assert decode("sample", Sample, arguments) == Sample(file_path="x", offset=7)


def test_a_word_for_nothing_is_nothing_where_nothing_is_allowed() -> None:
    assert decode("sample", Sample, {"filePath": "null", "offset": "undefined"}).file_path == "null"


def test_half_a_character_is_replaced() -> None:
    assert decode("sample", Sample, {"filePath": "a\ud83db"}).file_path == "a\ufffdb"
    assert decode("sample", Sample, {"filePath": "a\ud83d\ude00b"}).file_path == "a\U0001f600b"
    assert decode("sample", Sample, {"filePath": "x", "items": [{"someName": "\ud83d"}]}).items[0].some_name == "\ufffd"


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ({}, "`filePath` is required, and missing"),
        ({"filePath": 3}, "`filePath` should be a string, not a whole number"),
        ({"filePath": "x", "offset": 0}, "`offset` should be a whole number >= 1"),
        ({"filePath": "x", "offset": "soon"}, "`offset` should be a whole number, not a string"),
        ({"filePath": "x", "items": [{"count": 1}]}, "`someName` in `items[0]` is required, and missing"),
        ({"filePath": "x", "items": "none"}, "`items` should be a list, not a string"),
    ],
)
def test_what_cannot_be_mended_is_explained_to_the_model(arguments: dict[str, Any], problem: str) -> None:
    with pytest.raises(InvalidArgumentsError) as caught:
        decode("sample", Sample, arguments)
    assert problem in caught.value.message
    assert caught.value.message.startswith("The sample tool was called with invalid arguments: ")
    assert "`filePath` (string), `items` (array, optional)" in caught.value.message
