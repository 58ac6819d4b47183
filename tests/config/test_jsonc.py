from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from opensesh.config import jsonc
from opensesh.errors import ConfigError
from opensesh.records import as_list, as_object

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=20,
)
FILLERS = st.lists(
    st.sampled_from([" ", "\n", "\t", "\r\n", "// x, ] } \" '\n", "/* , } ] */", '/* " */', "/**/", "//\n", "/* \n */"])
).map("".join)


class Writer:
    """Writes a value as JSON with something at every place where something may stand, and notes where values begin."""

    def __init__(self, draw: Any, trailing: bool) -> None:
        self.draw = draw
        self.trailing = trailing
        self.text = ""
        self.spots: dict[tuple[str | int, ...], tuple[int, int]] = {}

    def fill(self) -> None:
        self.text += self.draw(FILLERS)

    def spot(self) -> tuple[int, int]:
        return self.text.count("\n") + 1, len(self.text) - (self.text.rfind("\n") + 1) + 1

    def write(self, value: Any, path: tuple[str | int, ...] = ()) -> None:
        self.fill()
        self.spots[path] = self.spot()
        if (members := as_object(value)) is not None:
            self.members("{", [(key, f"{json.dumps(key)}", item) for key, item in members.items()], "}", path)
        elif (items := as_list(value)) is not None:
            self.members("[", [(at, "", item) for at, item in enumerate(items)], "]", path)
        else:
            self.text += json.dumps(value, ensure_ascii=False)
        self.fill()

    def members(
        self, opening: str, items: list[tuple[Any, str, Any]], closing: str, path: tuple[str | int, ...]
    ) -> None:
        self.text += opening
        for at, (name, key, item) in enumerate(items):
            self.text += "," if at else ""
            self.fill()
            if key:
                self.text += key
                self.fill()
                self.text += ":"
            self.write(item, (*path, name))
        self.text += "," if items and self.trailing else ""
        self.fill()
        self.text += closing


@given(VALUES, st.booleans(), st.data())
def test_comments_and_trailing_commas_change_neither_the_value_nor_any_position(
    value: Any, trailing: bool, data: st.DataObject
) -> None:
    writer = Writer(data.draw, trailing)
    writer.write(value)
    read = jsonc.decode(writer.text, "x.jsonc")
    assert read.value == value
    assert {path: tuple(read.source.where(path)) for path in writer.spots} == writer.spots


@given(VALUES)
def test_any_json_is_jsonc(value: Any) -> None:
    assert jsonc.decode(json.dumps(value, indent=1)).value == value


@given(st.text())
def test_any_text_is_either_decoded_or_refused_with_a_place_inside_it(text: str) -> None:
    problem = None
    try:
        jsonc.decode(text, "x")
    except ConfigError as error:
        problem = error
    assert problem is None or (1 <= problem.line <= text.count("\n") + 1 and problem.column >= 1)


@pytest.mark.parametrize(
    ("text", "line", "column", "reason"),
    [
        ('{"a": 1 "b": 2}', 1, 9, "',' delimiter"),
        ("{\n  'a': 1\n}", 2, 3, "double quotes"),
        ("{a: 1}", 1, 2, "property name"),
        ('{\n "a": 1,,\n}', 2, 9, "property name"),
        ("[,]", 1, 2, "value"),
        ("{,}", 1, 2, "property name"),
        ('{"a": ,}', 1, 7, "value"),
        ('{"a": 1', 1, 8, "never closed"),
        ('{"a": "x', 1, 7, "unterminated string"),
        ('// fine\n{"a": /* open', 2, 7, "comment is never closed"),
        ('{"a": NaN}', 1, 7, "NaN"),
        ('{"a": "NaN", "b": -Infinity}', 1, 19, "-Infinity"),
        ('{"a": 1e999}', 1, 7, "too large"),
        ('{"a": ' + "9" * 5000 + "}", 1, 7, "too large"),
        ('{"a": 0x10}', 1, 8, "delimiter"),
        ('{"a": +1}', 1, 7, "value"),
        ('{"a": .5}', 1, 7, "value"),
        ('{"a": "x\ny"}', 1, 9, "control character"),
        ('{"a": "\\x"}', 1, 8, "escape"),
        ("{} {}", 1, 4, "extra data"),
        ('{"a"\u00a0: 1}', 1, 5, "delimiter"),
        ('{"a": "\\ud83d\\ude00",\n "b": "x\\uD83D"}', 2, 7, "half a character"),
        ('{"\\ude00\\ud83d": 1}', 1, 2, "half a character"),
        ('{"a": "\udcff"}', 1, 7, "half a character"),
    ],
)
def test_what_is_not_json_is_refused_where_it_stands(text: str, line: int, column: int, reason: str) -> None:
    with pytest.raises(ConfigError) as caught:
        jsonc.decode(text, "/x/opencode.json")
    assert (caught.value.path, caught.value.line, caught.value.column) == ("/x/opencode.json", line, column)
    assert reason.lower() in caught.value.reason.lower()
    assert str(caught.value).startswith(f"/x/opencode.json:{line}:{column}: ")


@pytest.mark.parametrize("text", ["", "  \n", "// nothing\n/* at all */", "\ufeff"])
def test_a_text_without_content_is_an_empty_object(text: str) -> None:
    assert jsonc.decode(text).value == {}


def test_slashes_and_commas_in_strings_are_not_comments() -> None:
    text = '{"url": "http://x/*y*/", "quote": "\\" // ,]", "list": ["a,]", "b,}",],}'
    assert jsonc.decode(text).value == {"url": "http://x/*y*/", "quote": '" // ,]', "list": ["a,]", "b,}"]}


def test_a_byte_order_mark_is_overlooked() -> None:
    read = jsonc.decode('\ufeff{"a": 1}')
    assert read.value == {"a": 1}


def test_whole_floats_are_whole_numbers_as_in_javascript() -> None:
    value = jsonc.decode('{"a": 5e3, "b": 1.0, "c": 1.5}').value
    assert [type(item) for item in value.values()] == [int, int, float]


def test_the_last_of_two_equal_keys_counts_and_has_the_position() -> None:
    read = jsonc.decode('{"a": 1,\n "b": 2,\n "a": 3}')
    assert read.value == {"a": 3, "b": 2}
    assert read.source.where(("a",)) == (3, 7)
    assert read.source.where(("a",), key=True) == (3, 2)


def test_a_text_nested_beyond_reason_is_refused() -> None:
    with pytest.raises(ConfigError, match="nested too deeply"):
        jsonc.decode("[" * 100_000 + "]" * 100_000)


def test_a_path_that_is_not_there_is_placed_at_what_is_around_it() -> None:
    read = jsonc.decode('{\n  "provider": {\n    "x": {}\n  }\n}')
    assert read.source.where(("provider", "x", "models", "m")) == (3, 10)
