from __future__ import annotations

import json
import math
import random
import shutil
import struct
import subprocess
from collections.abc import Callable
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from opensesh.errors import RecordError
from opensesh.records import codec

FIXTURES = Path(__file__).parents[1] / "fixtures"
FILES = sorted(FIXTURES.glob("*/storage/**/*.json"))

any_text = st.text(st.characters(exclude_categories=()), max_size=12)


def holding(text: st.SearchStrategy[str]) -> st.SearchStrategy[Any]:
    numbers = st.integers(-(2**53), 2**53) | st.floats(allow_nan=False, allow_infinity=False)
    return st.recursive(
        st.none() | st.booleans() | numbers | text,
        lambda inner: st.lists(inner, max_size=4) | st.dictionaries(text, inner, max_size=4),
        max_leaves=12,
    )


values = holding(any_text)


def test_every_record_of_the_corpora_comes_back_to_the_byte() -> None:
    assert len(FILES) > 240
    for file in FILES:
        data = file.read_bytes()
        assert codec.dumps(codec.loads(data, str(file))) == data, file


long_texts = any_text.map(lambda unit: unit * 40_000)


@given(st.recursive(values | long_texts, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(any_text, inner)))
@example({"text": "a\ud83d" * 300_000, "list": ["\n" * 262_144, {"": "ü" * 262_143}], "cost": 0.1})
@example("é\U0001f600" * 262_144)
def test_pieces_make_the_same_bytes_as_the_whole(value: Any) -> None:
    assert b"".join(codec.dumps_in_chunks(value)) == codec.dumps(value)


def test_no_piece_of_a_long_text_is_long_wherever_it_lies() -> None:
    text = "\n" * 10_000_000
    for value in ({"text": text}, [{"before": "", "after": [text]}]):
        assert max(map(len, codec.dumps_in_chunks(value))) < 1_000_000


def test_a_record_without_a_long_text_is_one_piece() -> None:
    assert len(list(codec.dumps_in_chunks({"text": "short", "list": ["\n" * 1_000]}))) == 1


@pytest.mark.parametrize(
    ("number", "printed"),
    [
        (0.0034, "0.0034"), (1e21, "1e+21"), (5e-7, "5e-7"), (1.0, "1"), (-0.0, "0"), (1.5e-6, "0.0000015"),
        (1e-6, "0.000001"), (1e-7, "1e-7"), (1e16, "10000000000000000"), (1e20, "100000000000000000000"),
        (123456789012345680000.0, "123456789012345680000"), (5e-324, "5e-324"),
        (1.7976931348623157e308, "1.7976931348623157e+308"),
        (-1.5e-9, "-1.5e-9"), (0.1 + 0.2, "0.30000000000000004"), (math.nan, "null"), (-math.inf, "null"),
        (9007199254740993.0, "9007199254740992"), (-123.456, "-123.456"), (1e-5, "0.00001"),
    ],
)  # fmt: skip
def test_numbers_print_as_javascript_prints_them(number: float, printed: str) -> None:
    assert codec.js_number(number) == printed
    assert codec.dumps({"n": [number]}) == f'{{\n  "n": [\n    {printed}\n  ]\n}}'.encode()


@given(values)
@example({"\ud800": ["\udfff", "a\ud83db"]})
@example({"a": {}, "b": [], "c": [[]]})
@example([-0.0, 1e21, 5e-324])
def test_what_is_written_reads_back_and_writes_the_same(value: Any) -> None:
    once = codec.dumps(value)
    again = codec.loads(once)
    assert codec.dumps(again) == once
    assert codec.loads(codec.dumps_compact(value)) == again


@given(holding(st.text(max_size=8)))
@example([{"a": [1, 2], "b": {"c": {}, "d": []}}, [[1.0], "é\n"], None])
def test_half_a_character_changes_nothing_in_the_rest_of_the_record(value: Any) -> None:
    whole, half = {"a": "HALF", "b": value}, {"a": "x\udc0ay", "b": value}
    assert codec.dumps(half) == codec.dumps(whole).replace(b"HALF", b"x\\udc0ay", 1)
    assert codec.dumps_compact(half) == codec.dumps_compact(whole).replace(b"HALF", b"x\\udc0ay", 1)


def _random_value(source: random.Random, depth: int = 0) -> Any:
    match source.randrange(8 if depth < 4 else 5):
        case 0:
            return source.choice([None, True, False, source.randint(-(2**53), 2**53)])
        case 1:
            number = struct.unpack("d", source.randbytes(8))[0]
            return number if math.isfinite(number) else 0.5
        case 2:
            return source.choice([-1, 1]) * source.random() * 10.0 ** source.randint(-25, 25)
        case 3 | 4:
            return _random_text(source)
        case 5 | 6:
            return {f"k{_random_text(source)}": _random_value(source, depth + 1) for _ in range(source.randrange(5))}
        case _:
            return [_random_value(source, depth + 1) for _ in range(source.randrange(5))]


def _random_text(source: random.Random) -> str:
    planes = (0x7F, 0x7F, 0x2FFF, 0xFFFF, 0x10FFFF)
    return "".join(chr(source.randint(0, source.choice(planes))) for _ in range(source.randrange(8)))


@pytest.mark.skipif(shutil.which("node") is None, reason="compares with a real JavaScript engine, if one is installed")
def test_javascript_itself_prints_the_same() -> None:
    source = random.Random(7)
    lines = [json.dumps(_random_value(source)) for _ in range(4_000)]
    script = (
        "const lines=require('fs').readFileSync(0,'utf8').split('\\n');"
        "process.stdout.write(JSON.stringify(lines.map(l=>JSON.stringify(JSON.parse(l),null,2))))"
    )
    done = subprocess.run(["node", "-e", script], input="\n".join(lines), capture_output=True, text=True, check=True)
    expected: list[str] = json.loads(done.stdout)
    assert [codec.dumps(codec.loads(line.encode())).decode() for line in lines] == expected


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"", "empty"),
        (b"\0" * 40, "40 NUL bytes"),
        (b'{"a": [1, 2', "torn"),
        (b'{"a": "\xff"}', "not UTF-8"),
        (b'{"a": 1,}', "not JSON"),
        (b"\xef\xbb\xbf{}", "not JSON"),
        (b'{"a": NaN}', "not JSON"),
        (b'{"a": "\\ud83d", "b": NaN}', "not JSON"),
        (b"[" * 200_000 + b"]" * 200_000, "too deeply"),
        (b'{"a": ' + b"[" * 301 + b"]" * 301 + b"}", "too deeply"),
        (b'{"\\ud800": ' + b"[" * 200_000 + b"]" * 200_000 + b"}", "too deeply"),
    ],
)
def test_bad_input_says_where_and_why(data: bytes, words: str) -> None:
    with pytest.raises(RecordError, match=words) as caught:
        codec.loads(data, "message/x.json")
    assert "message/x.json" in str(caught.value)


@pytest.mark.parametrize(
    ("data", "place"),
    [
        (b'{"a": 1,}', "byte 8"),
        (b'{"a": [1, 2', "byte 11"),
        (b'{"a": "cut off here', "byte 19"),
        (b'{"a": {"b": 1}, ', "byte 16"),
        (b'{"a": {"b": 1}', "byte 14"),
        (b"[1,]", "byte 3"),
        (b'{"a": "\\ud83d", "b": NaN}', ""),
        (b'{"a": "\xff"}', "byte 7"),
        (b'{"a": "\\ud83d", "b": "\xff"}', "byte 22"),
        (b"", ""),
        (b"\0" * 40, ""),
    ],
)
def test_the_place_of_an_error_is_named(data: bytes, place: str) -> None:
    with pytest.raises(RecordError) as caught:
        codec.loads(data)
    assert (caught.value.path, caught.value.place) == ("", place)


@pytest.mark.parametrize(
    ("data", "result"),
    [
        (b"[]", "an array"),
        (b'"x"', "a string"),
        (b"true", "true or false"),
        (b"null", "null"),
        (b"5", "a number"),
        (b"5.5", "a number"),
    ],
)
def test_an_object_is_asked_for_where_a_record_must_be_one(data: bytes, result: str) -> None:
    with pytest.raises(RecordError) as caught:
        codec.loads_object(data, "the/file.json")
    assert str(caught.value) == f"the/file.json at $: expected an object, found {result}"
    with pytest.raises(RecordError, match=r"^record at "):
        codec.loads_object(data)
    assert codec.loads_object(b'{"a": 1}') == {"a": 1}


@pytest.mark.parametrize("encode", [codec.dumps, codec.dumps_in_chunks, codec.dumps_compact])
@pytest.mark.parametrize("innermost", ["whole", "half \ud800"])
def test_what_is_nested_too_deeply_is_refused_in_words(encode: Callable[[Any], object], innermost: str) -> None:
    with pytest.raises(RecordError, match="nested too deeply to be stored"):
        encode(nested(5_000, innermost))


@pytest.mark.parametrize("encode", [codec.dumps, codec.dumps_in_chunks])
@pytest.mark.parametrize("innermost", ["whole", "half \ud800"])
def test_what_can_be_stored_can_be_read(encode: Callable[[Any], object], innermost: str) -> None:
    deepest = nested(300, innermost)
    assert codec.loads(codec.dumps(deepest)) == deepest
    encode(deepest)
    with pytest.raises(RecordError, match="nested too deeply to be stored"):
        encode(nested(301, innermost))


def nested(levels: int, value: Any) -> Any:
    for _ in range(levels):
        value = [value]
    return value


def test_numbers_out_of_range_read_as_javascript_reads_them() -> None:
    assert codec.dumps(codec.loads(b'{"a": 1e400}')) == b'{\n  "a": null\n}'


def test_documents_are_merged_member_by_member_and_stay_as_they_are() -> None:
    first: dict[str, Any] = {"a": {"x": 1, "y": {"z": 1}}, "b": {"c": 1}, "d": 1, "e": [1]}
    second: dict[str, Any] = {"a": {"y": {"w": 2}}, "b": 2, "d": {"f": 2}, "e": [2]}
    before = deepcopy((first, second))
    merged = codec.merged(first, second)
    assert merged == {"a": {"x": 1, "y": {"z": 1, "w": 2}}, "b": 2, "d": {"f": 2}, "e": [2]}
    merged["a"]["y"]["z"] = merged["d"]["f"] = 3
    assert (first, second) == before
    assert codec.merged() == {}


@pytest.mark.parametrize(
    ("value", "read"),
    [(7, 7), (7.9, 7), (True, 1), (10**400, 0), (1e300, 0), (math.inf, 0), (math.nan, 0), ("7", 0), (None, 0)],
)
def test_a_whole_number_is_made_of_what_is_one(value: object, read: int) -> None:
    assert codec.as_whole(value) == read
