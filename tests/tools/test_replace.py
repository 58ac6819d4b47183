from __future__ import annotations

import time

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from opensesh.errors import ToolFailedError
from opensesh.tools.edit import replace

TEXT = """class A:
    def one(self):
        x = 1
        y = compute(x)
        return y

    def two(self):
        x = 2
        y = compute(x)
        return y
"""


@pytest.mark.parametrize(
    ("strategy", "text", "old", "expected"),
    [
        ("exact", "a b c", "b", "a NEW c"),
        ("line trimmed", "if x:\n        a\n    b\n", "a\nb", "if x:\nNEW\n"),
        ("line trimmed, with the end of the line", "  a\n  b\nc\n", "a\nb\n", "NEWc\n"),
        (
            "block anchor",
            "begin\n  middle line one\n  middle line two\nend\n",
            "begin\n  middle lime one\n  midle line two\nend",
            "NEW\n",
        ),
        ("whitespace normalised, a line", "x  =   1\ny\n", "x = 1", "NEW\ny\n"),
        ("whitespace normalised, within a line", "if (a  &&  b) {", "a && b", "if (NEW) {"),
        ("whitespace normalised, lines", "f(a,\n   b  c)\nz", "f(a,\nb c)", "NEW\nz"),
        ("indentation flexible", "    if a:\n        b\n", "if a:\n    b", "NEW\n"),
        ("escape normalised", "a\n\tb\n", "a\\n\\tb", "NEW\n"),
        ("escape normalised, quotes", 'say("hi")', 'say(\\"hi\\")', "NEW"),
        ("trimmed boundary", "a b c", "\n  b  \n", "a NEW c"),
        (
            "context aware",
            "start\nkept one\nutterly different\nkept two\nstop\n",
            "start\nkept one\n#\nkept two\nstop",
            "NEW\n",
        ),
    ],
)
def test_each_strategy_finds_the_quoted_text(strategy: str, text: str, old: str, expected: str) -> None:
    assert replace(text, old, "NEW") == expected


def test_the_strictest_strategy_that_finds_one_place_decides() -> None:
    assert replace("a\n  a\n", "  a", "b") == "a\nb\n"
    assert replace(TEXT, "        x = 2", "        x = 3").count("x = 3") == 1


@pytest.mark.parametrize("old", ["        y = compute(x)", "y = compute(x)\nreturn y", "return  y"])
def test_what_fits_several_places_changes_none(old: str) -> None:
    with pytest.raises(ToolFailedError, match="more than one part"):
        replace(TEXT, old, "NEW")


def test_every_place_can_be_changed() -> None:
    assert replace(TEXT, "return y", "return z", replace_all=True).count("return z") == 2


@pytest.mark.parametrize("old", ["nowhere", "begin\nnothing like it\nat all\nend", "", "\t\t"])
def test_what_is_not_there_is_not_found(old: str) -> None:
    text = "begin\nthe quick brown fox\njumps over\nend\n"
    with pytest.raises(ToolFailedError, match="not found"):
        replace(text, old, "NEW")


def test_a_block_much_larger_than_what_was_asked_for_is_refused() -> None:
    inner = "\n".join(f"    line {number}" for number in range(9))
    text = f"def f():\n{inner}\n    return 1\n"
    with pytest.raises(ToolFailedError, match=r"not found|much larger"):
        replace(text, "def f():\n    line 0\n    return 1", "NEW")


def test_a_long_file_is_soon_looked_through() -> None:
    text = "\n".join("" if number % 4 == 0 else f"    line {number} of many" for number in range(20_000))
    begun = time.process_time()
    with pytest.raises(ToolFailedError, match="not found"):
        replace(text, "\nline 17, from memory\nline 18\nno such line", "x")
    assert time.process_time() - begun < 5  # it was 25


def test_dollars_and_backslashes_in_the_new_text_are_only_themselves() -> None:
    assert replace("a", "a", r"$1 \1 \g<0> $&") == r"$1 \1 \g<0> $&"


words = st.text(alphabet="ab \t\n{}", min_size=1, max_size=30)


@given(words, words, words)
def test_an_exact_and_unique_piece_is_replaced_and_all_else_stays(before: str, piece: str, after: str) -> None:
    text = f"{before}<{piece}>{after}"
    assert replace(text, f"<{piece}>", "NEW") == f"{before}NEW{after}"


@given(words, words)
def test_a_replacement_never_changes_the_rest_of_the_text(text: str, old: str) -> None:
    assume(old != "\0")
    try:
        result = replace(text, old, "\0")
    except ToolFailedError:
        return
    assert result.count("\0") == 1
    before, _, after = result.partition("\0")
    assert text.startswith(before)
    assert text.endswith(after)
    assert len(before) + len(after) < len(text)


@given(st.lists(st.sampled_from(["a = 1", "b(2)", "", "if c:", "  d"]), min_size=1, max_size=8), st.integers(1, 8))
def test_a_block_quoted_with_another_indentation_is_found(lines: list[str], depth: int) -> None:
    assume(lines[0].strip() and lines[-1].strip())
    block = "\n".join(" " * depth + line if line else "" for line in lines)
    text = f"top\n{block}\nbottom\n"
    assume(text.count(lines[0].strip()) == 1)
    result = replace(text, "\n".join(lines), "NEW")
    assert result.startswith("top\n")
    assert result.endswith("\nbottom\n")
    assert lines[-1].strip() not in result or len(lines) == 1
