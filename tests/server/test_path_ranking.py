from __future__ import annotations

import pytest

from opensesh.server.path_ranking import rank_paths

NAMES = ["README.md", "notes.txt", "src/a.py", "made.txt", "once.txt", "undone.txt"]
CHANGED = {"made.txt", "once.txt", "undone.txt"}
RECORDED = {
    "R": ["/", "src/", "made.txt", "once.txt", "src/a.py", "README.md", "notes.txt", "undone.txt"],
    "RE": ["README.md", "made.txt", "once.txt", "undone.txt", "notes.txt", "src/", "src/a.py"],
    "REA": ["README.md", "src/a.py", "made.txt", "once.txt", "undone.txt", "notes.txt", "src/"],
    "READ": ["README.md", "made.txt", "src/a.py"],
}
"""What OpenCode 1.18.33 lists for these files."""
ALIGNED = [
    "re", "rxe", "rxxxxe", "rxxxxxe", "rxxxxxxxe", "xre", "xxre", "rxxxxxxxxz", "xxrxe", "xxrxxe", "xe", "xr",
]  # fmt: skip
"""In the order in which OpenCode 1.18.33 lists them for ``re``, filled up to one length."""


@pytest.mark.parametrize("query", RECORDED)
def test_paths_are_ranked_as_opencode_ranks_them(query: str) -> None:
    assert rank_paths(query, NAMES, CHANGED) == RECORDED[query]


def test_letters_that_are_left_out_or_are_not_at_the_beginning_cost_as_in_opencode() -> None:
    names = [name.ljust(12, "x") for name in ALIGNED]
    assert rank_paths("re", names[::-1], ()) == names


@pytest.mark.parametrize(("query", "count"), [("abcdefgh", 6), ("abcdef", 8), ("abcd", 10), ("abcxyz", 0)])
def test_two_letters_may_be_wrong(query: str, count: int) -> None:
    letters = "abcdefgh"
    names = [f"z{letters[start:]}_{start}" for start in range(8)]
    names += [f"y{letters[:end]}_{8 - end}" for end in range(1, 9)]
    assert len(rank_paths(query, names, ())) == count


def test_a_query_that_ends_in_a_slash_finds_folders_only() -> None:
    assert rank_paths("src/", [*NAMES, "src/deep/b.py"], ()) == ["src/", "src/deep/"]


def test_a_query_that_is_longer_than_any_path_finds_nothing_at_once() -> None:
    assert rank_paths("ab" * 20_000, ["ab" * 100], ()) == []
