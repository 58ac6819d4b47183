from __future__ import annotations

import os
import shutil
import sys
import time
from pathlib import Path

import pytest

from .running import Screen, Terminal


def test_the_demo_fixes_a_failing_test_and_cleans_up(terminal: Terminal) -> None:
    begun = time.monotonic()
    story = terminal.run("demo")
    assert (terminal.code, terminal.error) == (0, "")
    assert time.monotonic() - begun < 60
    steps = ("> read prices.py", "-m unittest  exit 1", "> edit prices.py  +1 -1", "-m unittest  ", "The test passes.")
    positions = [story.index(step) for step in steps[:3]]
    assert positions == sorted(positions)
    assert story.count("-m unittest") == 2
    assert story.count("exit 1") == 1
    for part in (steps[-1], "diff --git a/prices.py", "$0.02", "(fork #1)", "Discount taken off, not added"):
        assert part in story
    before, after = story.split("and a fork of it")
    assert "(fork #1)" not in before
    assert "(fork #1)" in after
    folder = story.split("A temporary project: ")[1].split()[0]
    assert not Path(folder).parent.exists()


def test_the_demo_touches_nothing_of_the_users(terminal: Terminal, isolated: Path) -> None:
    os.environ["OPENCODE_CONFIG_CONTENT"] = "this is no configuration"
    before = dict(os.environ), sorted(isolated.rglob("*"))
    terminal.run("demo")
    assert terminal.code == 0
    assert (dict(os.environ), sorted(isolated.rglob("*"))) == before
    del os.environ["OPENCODE_CONFIG_CONTENT"]


def test_the_demo_works_without_git(terminal: Terminal, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("bash", "sh", "env"):
        result = shutil.which(name)
        assert result
        (tmp_path / name).symlink_to(result)
    (tmp_path / "python3").symlink_to(sys.executable)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python3"))
    story = terminal.run("demo")
    assert (terminal.code, "git is not installed" in story) == (0, True)
    assert "+    return round(sum(prices) * (1 - discount), 2)" in story
    assert "diff --git" not in story


def test_the_demo_as_one_document(terminal: Terminal) -> None:
    answer = terminal.json("demo")
    assert (terminal.code, answer["outcome"], answer["messages"]) == (0, "answered", 5)
    assert answer["cost"] == pytest.approx(0.02352 + 0.00294)  # the answers, and the title
    assert "(1 - discount)" in answer["diff"]
    assert not Path(answer["folder"]).exists()


def test_what_the_demo_leaves_can_be_read(terminal: Terminal) -> None:
    answer = terminal.json("demo", "--keep")
    folder = Path(answer["folder"])
    try:
        shown = terminal.json("show", answer["sessionID"], "--store", str(folder / "data" / "opencode"))
        assert shown["info"]["title"] == "Discount taken off, not added"
        tools = [part for message in shown["messages"] for part in message["parts"] if part["type"] == "tool"]
        assert [(part["tool"], part["state"]["status"]) for part in tools] == [
            ("read", "completed"),
            ("bash", "completed"),
            ("edit", "completed"),
            ("bash", "completed"),
        ]
        listed = terminal.json("list", "--store", str(folder / "data" / "opencode"))
        assert {item["id"] for item in listed["sessions"]} == {answer["sessionID"], answer["forkID"]}
        assert "1 - discount" in (folder / "project" / "prices.py").read_text()
    finally:
        shutil.rmtree(folder)


def test_the_demo_streams_on_a_terminal_and_can_be_stopped() -> None:
    screen = Screen("demo")
    try:
        screen.until("I will read the")
        screen.type("\x03")
        assert screen.end() == 130
        assert "Traceback" not in screen.text
    finally:
        screen.close()
