from __future__ import annotations

import difflib
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from opensesh.line_changes import LineChange, line_changes
from opensesh.tools import diff

lines = st.lists(st.sampled_from(["a", "b", "  c", "", "d e"]), max_size=30)


def applied(old: list[str], new: list[str], results: list[LineChange]) -> list[str]:
    result: list[str] = []
    at = 0
    for change in results:
        result += old[at : change.start] + new[change.new_start : change.new_end]
        at = change.end
    return result + old[at:]


@given(lines, lines)
def test_applying_the_changes_gives_the_new_text(old: list[str], new: list[str]) -> None:
    result = line_changes(old, new)
    assert applied(old, new, result) == new
    for one, other in pairwise(result):
        assert other.start > one.end or other.new_start > one.new_end


@given(lines, lines)
def test_the_changes_are_the_fewest_there_can_be(old: list[str], new: list[str]) -> None:
    result = line_changes(old, new)
    kept = len(old) - sum(change.end - change.start for change in result)
    common = sum(block.size for block in difflib.SequenceMatcher(None, old, new, autojunk=False).get_matching_blocks())
    assert kept >= common


def test_the_unified_form_is_as_opencode_writes_it() -> None:
    result = diff.compare("/p/nonl.txt", "alpha\nbeta\ngamma", "alpha\nbeta\nGAMMA\ndelta")
    assert result.text == (
        "Index: /p/nonl.txt\n" + "=" * 67 + "\n--- /p/nonl.txt\n+++ /p/nonl.txt\n@@ -1,3 +1,4 @@\n alpha\n beta\n"
        "-gamma\n\\ No newline at end of file\n+GAMMA\n+delta\n\\ No newline at end of file\n"
    )
    assert (result.additions, result.deletions) == (2, 1)


@pytest.mark.parametrize(
    ("before", "after", "head"),
    [("", "a\nb\n", "@@ -0,0 +1,2 @@"), ("needle 3\n", "", "@@ -1,1 +0,0 @@"), ("hello\n", "you\n", "@@ -1,1 +1,1 @@")],
)
def test_a_side_without_lines_is_named_by_the_line_before(before: str, after: str, head: str) -> None:
    assert head in diff.compare("f", before, after).text


def test_changes_far_apart_have_a_hunk_each() -> None:
    before = [f"{number}\n" for number in range(40)]
    after = [*before[:3], "x\n", *before[4:30], "y\n", *before[31:]]
    text = diff.compare("f", "".join(before), "".join(after)).text
    assert text.count("@@ -") == 2
    assert "@@ -1,8 +1,8 @@" in text
    assert "@@ -27,9 +27,9 @@" in text


def test_line_ends_are_not_looked_at() -> None:
    assert diff.compare("f", "a\r\nb\r\n", "a\nb\n").additions == 0


def test_common_indentation_is_taken_off() -> None:
    text = diff.compare("f", "        a\n        b\n", "        a\n        c\n").text
    assert "\n a\n-b\n+c\n" in text


def test_huge_differences_are_called_replaced_rather_than_computed() -> None:
    old = [f"o{number}" for number in range(20_000)]
    new = [f"n{number}" for number in range(20_000)]
    assert line_changes(old, new) == [LineChange(0, 20_000, 0, 20_000)]
