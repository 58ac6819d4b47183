from __future__ import annotations

import json
import os
import random
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from opensesh.config import globs
from opensesh.config.rules import matches
from opensesh.errors import ToolFailedError
from opensesh.tools import edit, file_search
from opensesh.tools.apply_patch import Chunk, apply_chunks
from opensesh.tools.glob import GlobTool
from opensesh.tools.grep import GrepTool
from opensesh.workspace.attribution import command_targets

from ..tools.bench import Bench

HOSTILE = [
    "*a" * 24 + "b",
    "**/a/" * 20 + "b",
    "{a,*}" * 40 + "b",
    "{a,{a,*}}" * 40 + "b",
    "*?" * 100 + "b",
    "*[a-c]" * 100 + "[!a]",
]


def cpu_seconds() -> float:
    return time.process_time()


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    (tmp_path / "project").mkdir()
    return Bench(tmp_path / "project")


@pytest.mark.parametrize("pattern", HOSTILE)
def test_h8_a_file_pattern_is_matched_in_linear_time(pattern: str) -> None:
    start = cpu_seconds()
    for text in ("a" * 2_000, "a/" * 1_000, "ab" * 1_000 + "c"):
        assert globs.matches(pattern, text) in (True, False)
    assert cpu_seconds() - start < 5


@pytest.mark.parametrize("pattern", ["*a" * 24 + "b", "*a" * 2_000 + "b", "*?a*" * 200 + "b *", "* " * 500 + "x"])
def test_h8_a_permission_pattern_is_matched_in_linear_time(pattern: str) -> None:
    start = cpu_seconds()
    assert not matches("a" * 100_000, pattern)
    assert not matches("a " * 50_000, pattern)
    assert cpu_seconds() - start < 10


@pytest.mark.parametrize(
    "pattern", ["[z-a" * 1_000 + "]", "[" * 4_000, "[a]" * 1_000, "[z-a" * 100_000 + "]", "{," * 1_000_000]
)
def test_h8_a_file_pattern_with_many_sets_is_read_in_bounded_time(pattern: str) -> None:
    start = cpu_seconds()
    assert not globs.matches(pattern, "abc")
    assert cpu_seconds() - start < 5


async def test_h8_glob_and_grep_refuse_patterns_that_are_longer_than_any_path(bench: Bench) -> None:
    with pytest.raises(ToolFailedError, match="longer than any path"):
        await bench.run(GlobTool(), pattern="[z-a" * 100_000)
    with pytest.raises(ToolFailedError, match="longer than any path"):
        await bench.run(GrepTool(), pattern="x", include="[z-a" * 100_000)


def test_h8_a_giant_permission_pattern_is_compared_in_linear_time() -> None:
    start = cpu_seconds()
    for pattern in ("*a" * 4_000_000, "?" * 8_000_000, "*" * 8_000_000 + "b"):
        assert not matches("ls -la", pattern)
    assert matches("a" * 2_000, "a" * 2_000 + " *")
    assert matches("a" * 2_000, "*a" * 2_000)
    assert cpu_seconds() - start < 5


REPETITIVE = {
    "same lines": ("a\n" * 80_000, "a\n" * 40_000 + "b"),
    "indented": (" a\n" * 80_000, "a\n" * 40_000 + "b\na"),
    "blocks": ("{\nx\n" * 40_000 + "}\n" * 40_000, "{\n" + "y\n" * 40_000 + "}"),
    "escapes": ("a\\n\n" * 80_000, "a\\n\n" * 40_000 + "b"),
    "blank lines": ("\n" * 80_000, " \n" * 40_000 + "b"),
    "words": ("a b\n" * 80_000, "a\nb\n" * 40_000 + "a c"),
    "long lines": ("{\n" + "q" * 1_000_000 + "\n}\n", "{\n" + "w" * 1_000_000 + "\n}"),
}


@pytest.mark.parametrize(("text", "old"), REPETITIVE.values(), ids=REPETITIVE)
def test_h8_a_text_to_replace_is_looked_for_in_linear_time(text: str, old: str) -> None:
    start = cpu_seconds()
    with pytest.raises(ToolFailedError, match="oldString"):
        edit.replace(text, old, "c")
    assert cpu_seconds() - start < 10


@pytest.mark.parametrize("end", ["b", ""])
def test_h8_the_lines_of_a_patch_are_looked_for_in_linear_time(end: str) -> None:
    start = cpu_seconds()
    chunk = Chunk(old=["a"] * 40_000 + ["b"] + [end] * 10_000, new=["c"])
    with pytest.raises(ToolFailedError, match="does not contain"):
        apply_chunks("file", ["a"] * 80_000, [chunk])
    assert cpu_seconds() - start < 10


@pytest.mark.parametrize(
    "line", ["cat <<a\n" * 100_000, "cat " + "<<a " * 40_000 + "\na\n" * 1_000, "rm " + "a" * 1_000_000, ">a " * 10_000]
)
def test_h8_a_command_line_of_a_record_is_read_in_linear_time(line: str) -> None:
    start = cpu_seconds()
    list(command_targets(line, "/work"))
    assert cpu_seconds() - start < 10


def test_h8_permission_patterns_match_as_the_plain_translation_does() -> None:
    def plain(text: str, pattern: str) -> bool:
        body, tail = (pattern[:-2], "(?: .*)?") if pattern.endswith(" *") else (pattern, "")
        expression = re.escape(body).replace(r"\*", ".*").replace(r"\?", ".")
        return re.compile(expression + tail, re.DOTALL).fullmatch(text) is not None

    dice = random.Random(7)
    for _ in range(20_000):
        pattern = "".join(dice.choice("ab *?.\n") for _ in range(dice.randint(0, 8)))
        text = "".join(dice.choice("aab b.\n*") for _ in range(dice.randint(0, 9)))
        assert matches(text, pattern) == plain(text, pattern), (pattern, text)


def test_h8_a_pattern_with_many_states_forgets_some_and_still_matches() -> None:
    dice = random.Random(1)
    text = "".join(dice.choice("ab") for _ in range(4_000))
    assert globs.matches("*a" + "?" * 200, text) == (text[-201] == "a")


async def test_h8_glob_and_grep_with_a_hostile_pattern_end(bench: Bench) -> None:
    name = "a" * 200
    bench.put(name, "text\n")
    assert "No files found" in (await bench.run(GlobTool(), pattern=HOSTILE[0])).output
    assert "No files found" in (await bench.run(GrepTool(), pattern="text", include=HOSTILE[0])).output


async def test_h8_an_expression_that_backtracks_for_ever_is_ended(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench.put("a.txt", "a" * 60 + "!\n")
    monkeypatch.setattr(file_search, "ripgrep", lambda: None)
    with pytest.raises(Exception, match="took longer"):
        await file_search.grep("(a+)+$", bench.directory, timeout_seconds=2)


@pytest.mark.skipif(sys.platform == "win32", reason="needs SIGINT")
def test_h8_ctrl_c_ends_a_run_whose_model_gives_a_hostile_pattern(tmp_path: Path) -> None:
    project = tmp_path / "project"
    (project / ("a/" * 60)).mkdir(parents=True)
    (project / ("a" * 200)).touch()
    calls = "".join(f"CALL glob {json.dumps({'pattern': pattern})}\n---\n" for pattern in HOSTILE)
    wait = 'CALL bash {"command":"touch waiting; sleep 300","description":"wait"}\n---\nSAY end'
    environment = {**os.environ, "HOME": str(tmp_path), "XDG_DATA_HOME": str(tmp_path / "data")}
    process = subprocess.Popen(
        [sys.executable, "-P", "-m", "opensesh", "run", "-m", "scripted/prompt", "--yes", calls + wait],
        cwd=project,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        limit = time.monotonic() + 120
        while not (project / "waiting").exists():  # all patterns were matched
            assert process.poll() is None
            assert time.monotonic() < limit
            time.sleep(0.05)
        process.send_signal(signal.SIGINT)
        assert process.wait(60) != 0
    finally:
        process.kill()
        process.wait()
