from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from opensesh.config import rule
from opensesh.errors import PermissionDeniedError, ToolFailedError
from opensesh.tools import file_search as search
from opensesh.tools.file_search import ripgrep
from opensesh.tools.glob import GlobTool
from opensesh.tools.grep import GrepTool

from .bench import Bench, older

needs_git = pytest.mark.skipif(shutil.which("git") is None, reason="needs git")


def git(directory: str, *arguments: str) -> None:
    subprocess.run(["git", *arguments], cwd=directory, check=True, capture_output=True)


@pytest.fixture(params=["ripgrep", "git", "python"])
def backend(request: pytest.FixtureRequest, bench: Bench, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> str:
    name = str(request.param)
    programs = tmp_path / "programs"
    programs.mkdir()
    expected = {"ripgrep": ["rg", "git"], "git": ["git"], "python": []}[name]
    if name != "ripgrep":
        monkeypatch.setattr(search, "ripgrep", lambda: None)
    for program in expected:
        result = ripgrep() if program == "rg" else shutil.which(program)
        if result is None:
            pytest.skip(f"needs {program}")
        os.symlink(result, programs / program)
    if expected:
        git(bench.directory, "init", "-q")
    monkeypatch.setenv("PATH", str(programs))
    return name


async def test_files_are_found_newest_first(bench: Bench, backend: str) -> None:
    for age, name in enumerate(["src/a.py", "src/deep/b.py", "c.py", ".hidden/d.py", "e.txt"]):
        older(bench.put(name, ""), age)
    answer = await bench.run(GlobTool(), pattern="**/*.py")
    names = ["src/a.py", "src/deep/b.py", "c.py", ".hidden/d.py"]
    assert answer.output.split("\n") == [str(bench.path(name)) for name in names]
    assert answer.metadata == {"count": 4, "truncated": False}
    assert answer.title == ""
    assert bench.patterns("glob") == ["**/*.py"]
    below = await bench.run(GlobTool(), pattern="*.py", path="src")
    assert below.output == f"{bench.path('src/a.py')}\n{bench.path('src/deep/b.py')}"
    assert below.title == "src"
    assert (await bench.run(GlobTool(), pattern="*.zzz")).output == "No files found"


async def test_what_the_repository_ignores_is_not_found(bench: Bench, backend: str) -> None:
    if backend == "python":
        pytest.skip("only git knows what a repository ignores")
    for name in ("kept.py", "node_modules/x.py", "build/y.py", "sub/local.py", "tracked.py"):
        bench.put(name, "needle\n")
    git_program = shutil.which("git") or "git"
    subprocess.run([git_program, "add", "tracked.py"], cwd=bench.directory, check=True)
    bench.put(".gitignore", "node_modules/\nbuild/\ntracked.py\n")
    bench.put("sub/.gitignore", "local.py\n")
    assert (await bench.run(GlobTool(), pattern="**/*.py")).output == str(bench.path("kept.py"))
    assert (
        await bench.run(GrepTool(), pattern="needle")
    ).output == f"Found 1 matches\n{bench.path('kept.py')}:\n  Line 1: needle"
    included = await bench.run(GrepTool(), pattern="needle", include="*.py")
    assert included.metadata["matches"] == 1


async def test_links_and_the_repository_itself_are_passed_over(bench: Bench, backend: str) -> None:
    bench.put("a.txt", "needle\n")
    bench.put(".git/needle.txt", "needle\n")
    os.symlink(bench.path("a.txt"), bench.path("link.txt"))
    assert (await bench.run(GlobTool(), pattern="*.txt")).output == str(bench.path("a.txt"))
    assert (await bench.run(GrepTool(), pattern="needle")).metadata["matches"] == 1


async def test_repositories_within_the_repository_are_searched(bench: Bench, backend: str) -> None:
    if backend == "python":
        pytest.skip("no repository")
    inner = bench.path("vendored")
    inner.mkdir()
    subprocess.run([shutil.which("git") or "git", "init", "-q"], cwd=inner, check=True)
    bench.put("vendored/x.py", "needle\n")
    assert (await bench.run(GlobTool(), pattern="**/*.py")).output == str(bench.path("vendored/x.py"))


async def test_lines_are_found_by_file(bench: Bench, backend: str) -> None:
    older(bench.put("src/a.py", "def f():\n    return 1\n\n\ndef g():\n    return 2\r\n"), 5)
    older(bench.put("ünï.py", "return 漢字\n"), 1)
    bench.put("b.txt", "return\n")
    answer = await bench.run(GrepTool(), pattern="return .", include="*.py")
    assert answer.output == (
        f"Found 3 matches\n{bench.path('ünï.py')}:\n  Line 1: return 漢字\n\n"
        f"{bench.path('src/a.py')}:\n  Line 2:     return 1\n  Line 6:     return 2"
    )
    assert answer.title == "return ."
    assert answer.metadata == {"matches": 3, "truncated": False}
    assert (await bench.run(GrepTool(), pattern="nowhere")).output == "No files found"
    one = await bench.run(GrepTool(), pattern="return", path="src/a.py")
    assert one.metadata["matches"] == 2
    rooted = await bench.run(GrepTool(), pattern="return", include="src/**/*.py")
    assert rooted.metadata["matches"] == 2


async def test_too_many_are_counted_and_the_first_are_shown(bench: Bench, backend: str) -> None:
    for number in range(150):
        bench.put(f"many/f{number}.txt", f"needle {number}\n")
    result = await bench.run(GrepTool(), pattern="needle")
    assert result.output.startswith("Found 150 matches (showing first 100)\n")
    assert result.output.endswith("\n\n(150 matches in all, 100 of them shown. Narrow the pattern, path or include.)")
    assert result.metadata == {"matches": 150, "truncated": True}
    named = await bench.run(GlobTool(), pattern="many/*")
    assert named.metadata == {"count": 100, "truncated": True}
    assert named.output.endswith("\n\n(Only the newest 100 of 150 files are shown. Narrow the pattern or the path.)")


async def test_long_lines_are_cut_and_binary_files_are_skipped(bench: Bench, backend: str) -> None:
    bench.put("long.txt", "needle" + "x" * 5000 + "\n")
    bench.put("bin", b"needle\0\n")
    answer = await bench.run(GrepTool(), pattern="needle")
    assert answer.metadata["matches"] == 1
    assert answer.output.endswith("x...")


async def test_a_bad_pattern_is_explained(bench: Bench, backend: str) -> None:
    bench.put("a", "x")
    with pytest.raises(ToolFailedError, match="Invalid regular expression"):
        await bench.run(GrepTool(), pattern="(unclosed")


async def test_patterns_are_spelled_as_for_ripgrep(bench: Bench, backend: str) -> None:
    bench.put("a", "Hello 42\n")
    for pattern in ("(?i)hello", "[[:digit:]]+", "(?<word>Hello)", r"^\w+\s\d+$", "o 4"):
        assert (await bench.run(GrepTool(), pattern=pattern)).metadata["matches"] == 1, pattern


async def test_patterns_that_look_around_or_back_work_with_every_program(bench: Bench, backend: str) -> None:
    bench.put("a", "one one\none two\n{\n")
    for pattern, count in ((r"(\w+) \1", 1), ("one(?= two)", 1), ("(?<!one )two", 0), ("{", 1)):
        assert (await bench.run(GrepTool(), pattern=pattern)).metadata["matches"] == count, pattern


async def test_an_absolute_pattern_says_where_to_look(bench: Bench, backend: str) -> None:
    path = bench.put("src/a.py", "")
    answer = await bench.run(GlobTool(), pattern=f"{bench.directory}/src/**/*.py")
    assert answer.output == path
    assert "external_directory" not in bench.permissions()


async def test_looking_outside_is_asked_for(bench: Bench, tmp_path: Path) -> None:
    bench.refuse["external_directory"] = PermissionDeniedError("no")
    for tool, arguments in (
        (GlobTool(), {"pattern": "*", "path": ".."}),
        (GlobTool(), {"pattern": f"{tmp_path}/*"}),
        (GrepTool(), {"pattern": "x", "path": str(tmp_path)}),
    ):
        bench.asked.clear()
        with pytest.raises(PermissionDeniedError):
            await bench.run(tool, **arguments)
        assert bench.patterns("external_directory") == [f"{os.path.realpath(tmp_path)}/*"]


async def test_searching_one_file_is_reading_it(bench: Bench) -> None:
    secret = bench.put(".env", "KEY=1\n")
    bench.refuse["read"] = PermissionDeniedError("no")
    with pytest.raises(PermissionDeniedError):
        await bench.run(GrepTool(), pattern=".", path=".env")
    assert bench.patterns("read") == [secret]
    await bench.run(GrepTool(), pattern="nothing", path=".")


async def test_searching_a_missing_directory_fails(bench: Bench) -> None:
    for tool, arguments in ((GlobTool(), {"pattern": "*"}), (GrepTool(), {"pattern": "x"})):
        with pytest.raises(ToolFailedError):
            await bench.run(tool, path="nowhere", **arguments)


async def test_a_search_that_never_ends_is_stopped(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(search, "ripgrep", lambda: None)
    bench.put("a", "a" * 40 + "b\n")
    with pytest.raises(ToolFailedError, match="took longer"):
        await search.grep("(a+)+c", str(bench.directory), timeout_seconds=0.5)


CAREFUL = (
    rule("*", "allow"),
    rule("read", "ask", "*.env"),
    rule("read", "deny", "*.pem"),
)


async def test_files_that_may_not_be_read_without_asking_are_not_searched(bench: Bench, backend: str) -> None:
    for name in (".env", "sub/prod.env", "key.pem", "kept.py"):
        bench.put(name, "needle\n")
    bench.rules = CAREFUL
    line = f"Found 1 matches\n{bench.path('kept.py')}:\n  Line 1: needle"
    why = "the rules forbid to read them, or to read them without asking.)"
    answer = await bench.run(GrepTool(), pattern="needle")
    assert answer.output == f"{line}\n\n(3 files were not searched: {why}"
    assert answer.metadata == {"matches": 1, "truncated": False}
    assert bench.permissions() == ["grep"], "no user is asked"
    assert (await bench.run(GrepTool(), pattern="n(?=eedle)")).metadata["matches"] == 1, (
        "which ripgrep leaves to Python"
    )
    assert (
        await bench.run(GrepTool(), pattern="nowhere")
    ).output == f"No files found\n\n(3 files were not searched: {why}"
    one = await bench.run(GrepTool(), pattern="needle", include="*.pem")
    assert one.output == (
        "No files found\n\n(1 file was not searched: the rules forbid to read it, or to read it without asking.)"
    )
    assert (await bench.run(GrepTool(), pattern="needle", include="*.py")).output == line
    assert str(bench.path(".env")) in (await bench.run(GlobTool(), pattern="**/*")).output
    bench.rules = (*CAREFUL, rule("read", "allow"))
    everything = await bench.run(GrepTool(), pattern="needle")
    assert everything.metadata["matches"] == 4
    assert "not searched" not in everything.output


@needs_git
async def test_ripgrep_and_our_own_search_leave_out_the_same(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    if ripgrep() is None:
        pytest.skip("needs ripgrep")
    git(bench.directory, "init", "-q")
    bench.rules = CAREFUL
    names = ["a.py", ".env", "sub/.env", "sub/b.env.txt", "ignored/.env", "sub/c.pem", "x y/d.pem", "x y/e.py"]
    for age, name in enumerate(names):
        older(bench.put(name, f"needle {name}\n"), age)
    bench.put(".gitignore", "ignored/\n")
    for arguments in ({}, {"path": "sub"}, {"include": "*.{py,pem}"}, {"path": "x y", "include": "*.py"}):
        asked = {"pattern": "need", **arguments}
        by_ripgrep = await bench.run(GrepTool(), **asked)
        with monkeypatch.context() as without:
            without.setattr(search, "ripgrep", lambda: None)
            by_git = await bench.run(GrepTool(), **asked)
        assert by_git == by_ripgrep
        assert "needle .env" not in by_git.output
    assert "4 files were not searched" in (await bench.run(GrepTool(), pattern="need")).output


async def test_a_link_to_a_folder_leads_to_nothing_that_may_not_be_read(bench: Bench, backend: str) -> None:
    bench.put("vault/word.txt", "needle\n")
    bench.path("door").symlink_to(bench.path("vault"))
    bench.rules = (rule("*", "allow"), rule("read", "deny", "*/vault/*"))
    answer = await bench.run(GrepTool(), pattern="needle", path="door")
    assert answer.output.startswith("No files found\n\n(1 file was not searched")


@needs_git
async def test_a_monitor_that_the_repository_names_is_not_started(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(search, "ripgrep", lambda: None)
    git(bench.directory, "init", "-q")
    bench.put("a.txt", "needle\n")
    git(bench.directory, "add", ".")
    monitor = bench.path("monitor.sh")
    monitor.write_text(f"#!/bin/sh\ntouch {bench.path('started')}\n")
    monitor.chmod(0o755)
    git(bench.directory, "config", "core.fsmonitor", str(monitor))
    assert (await bench.run(GrepTool(), pattern="needle")).metadata["matches"] == 1
    assert not bench.path("started").exists()


async def test_a_pattern_that_keeps_python_busy_forever_is_given_up() -> None:
    line = "x" * 60 + " é a"
    assert await search.spans("é|a", [line, "b"]) == [[(61, 63), (64, 65)], []]
    assert await search.spans("(x+x+)+y|a", [line], timeout_seconds=0.5) == [[]]
    assert await search.spans(r"\p{Greek}", [line]) == [[]]
    assert await search.spans("a", []) == []
