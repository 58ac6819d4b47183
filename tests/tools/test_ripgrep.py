from __future__ import annotations

import asyncio
import shutil
import subprocess
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from opensesh.tools import file_search as search
from opensesh.tools.file_search import packaged_ripgrep, ripgrep

LETTERS = "abA1_é漢 -.()[]{}*+?|^$\\"
NAMES = st.sampled_from(
    ["a.py", "b.txt", "sub/a.py", "sub/deep/c.md", ".hidden/d.py", "build/e.py", "né.txt", "sub/b.log"]
)
IGNORED = st.sampled_from(["*.log", "build/", "/a.py", "sub/*", "!sub/a.py", "**/deep", "*.txt", ".hidden", "# no", ""])
LINES = st.lists(st.text(LETTERS, max_size=12), max_size=5)
ENDS = st.sampled_from(["\n", "\r\n"])
PATTERNS = st.one_of(
    st.sampled_from([r"\ba", r"a$", r"^\s*$", r"(?i)A+", r"[[:alpha:]]1", r"\w\W", "é|漢", r"a.?b", r"\d", "(?<x>a)b"]),
    st.text("abA1_é漢 -.", min_size=1, max_size=3),
)
INCLUDES = st.sampled_from([None, "*.py", "*.{py,txt}", "sub/**", "**/*.md"])


@contextmanager
def project(files: dict[str, tuple[list[str], str]], ignored: list[str]) -> Generator[str]:
    with TemporaryDirectory() as directory:
        subprocess.run(["git", "init", "-q"], cwd=directory, check=True)
        for name, (lines, end) in files.items():
            path = Path(directory, name)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes("".join(line + end for line in lines).encode())
        Path(directory, ".gitignore").write_text("\n".join(ignored))
        Path(directory, "binary.py").write_bytes(b"\0a\n")
        yield directory


def test_the_packaged_ripgrep_program_is_found_although_it_is_not_on_the_path(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    result = ripgrep()
    assert result is not None, "the development dependencies hold it"
    assert result == packaged_ripgrep()
    output = subprocess.run([result, "--version"], capture_output=True, text=True, check=True).stdout
    assert output.startswith("ripgrep ")


def test_the_users_own_program_comes_first(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    own = tmp_path / "rg"
    own.write_text("#!/bin/sh\n")
    own.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert ripgrep() == str(own)


@pytest.mark.skipif(shutil.which("git") is None, reason="needs git")
@example(files={"a.py": ([], "\n"), "b.txt": (["", "x"], "\n")}, ignored=[], pattern=r"^\s*$", include=None)
@settings(max_examples=30)
@given(
    files=st.dictionaries(NAMES, st.tuples(LINES, ENDS), max_size=6),
    ignored=st.lists(IGNORED, max_size=3),
    pattern=PATTERNS,
    include=INCLUDES,
)
def test_with_ripgrep_and_without_it_the_same_is_found(
    files: dict[str, tuple[list[str], str]], ignored: list[str], pattern: str, include: str | None
) -> None:
    async def both(directory: str) -> tuple[list[str], search.SearchMatches]:
        return sorted(await search.files(directory)), await search.grep(pattern, directory, include)

    with project(files, ignored) as directory, pytest.MonkeyPatch.context() as patch:
        patch.setattr(search, "ripgrep", lambda: None)
        plain, scanned = asyncio.run(both(directory))
        for program in {ripgrep(), packaged_ripgrep()}:
            patch.setattr(search, "ripgrep", lambda program=program: program)
            listed, result = asyncio.run(both(directory))
            assert listed == plain
            assert sorted(result.matches) == sorted(scanned.matches)
            assert result.complete == scanned.complete
