from __future__ import annotations

import os
from pathlib import Path

import pytest

from opensesh.config import globs


@pytest.mark.parametrize(
    ("pattern", "path", "expected"),
    [
        ("*.py", "a.py", True),
        ("*.py", "x/a.py", True),
        ("*.py", "a.pyc", False),
        ("src/*.py", "src/a.py", True),
        ("src/*.py", "src/x/a.py", False),
        ("src/*.py", "x/src/a.py", False),
        ("src/**/*.py", "src/a.py", True),
        ("src/**/*.py", "src/x/y/a.py", True),
        ("**/test_*", "a/b/test_x", True),
        ("**", "a/b", True),
        ("a/**", "a/b/c", True),
        ("*.{ts,tsx}", "x/a.tsx", True),
        ("*.{ts,tsx}", "a.js", False),
        ("{a,b}/**/*.c", "b/x/y.c", True),
        ("?.py", "ab.py", False),
        ("[ab].py", "b.py", True),
        ("[!ab].py", "b.py", False),
        ("[!ab].py", "/.py", False),
        ("./a.py", "a.py", True),
        ("a\\*b", "a*b", True),
        ("a[b", "a[b", True),
        ("[a-c].py", "b.py", True),
        ("[c-a].py", "b.py", False),
        ("[c-a].py", "[c-a].py", True),
        ("[a-].py", "-.py", True),
        ("[a&&b].py", "&.py", True),
        ("[!].py", "[!].py", True),
        ("a+b(c)", "a+b(c)", True),
    ],
)
def test_patterns_are_read_as_editors_read_them(pattern: str, path: str, expected: bool) -> None:
    assert globs.matches(pattern, path) is expected


def test_files_are_found_in_order_through_links_and_each_folder_once(tmp_path: Path) -> None:
    for name in ("b/x.md", "a.md", ".c/deep/y.md", "b/z.txt"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    os.symlink(tmp_path, tmp_path / "b" / "again")

    def found(pattern: str) -> list[str]:
        return [os.path.relpath(path, tmp_path) for path in globs.Search().find(str(tmp_path), pattern)]

    assert found("**/*.md") == [".c/deep/y.md", "a.md", "b/x.md"]
    assert found("*.md") == ["a.md"]
    assert found("b/*.{md,txt}") == ["b/x.md", "b/z.txt"]
    assert found("{b,.c/deep}/*.md") == [".c/deep/y.md", "b/x.md"]
    assert found("nowhere/*.md") == []
