from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from opensesh.line_changes import whole_file_patch

from ..history.sample_tree import Sample
from .running import Screen, Terminal

LINES = 100


@pytest.fixture
def long(sample: Sample) -> str:
    session = sample.session("Long")
    sample.prompt(session, "\n".join(f"line {number}" for number in range(LINES)))
    return session["id"]


def test_what_is_longer_than_the_screen_goes_through_the_pager(
    screen: Callable[..., Screen], long: str, tmp_path: Path
) -> None:
    paged = tmp_path / "paged"
    shown = screen("show", long, PAGER=f"tee {paged} >/dev/null", MANPAGER="false")
    assert shown.end() == 0
    assert shown.text == ""
    assert f"line {LINES - 1}\n" in paged.read_text()


@pytest.mark.parametrize("words", [("list", "--limit", "0"), ("search", "Question", "--limit", "0")])
def test_a_list_that_begins_with_the_best_does_not_run_out_of_sight(
    screen: Callable[..., Screen], sample: Sample, words: tuple[str, ...]
) -> None:
    for number in range(60):
        sample.talk(f"Number {number}")
    shown = screen(*words, PAGER="head -n 2")
    assert shown.end() == 0
    first, second, *rest = shown.text.splitlines()
    assert "SESSION" in first or "Number 59" in first
    assert second
    assert len(rest) == 1  # how many there are


def test_what_fits_on_the_screen_does_not(screen: Callable[..., Screen], sample: Sample) -> None:
    shown = screen("show", sample.talk("Short")["id"], PAGER="false")
    assert shown.end() == 0
    assert "Short" in shown.text


def test_a_blank_line_is_above_every_message_of_a_transcript(screen: Callable[..., Screen], sample: Sample) -> None:
    shown = screen("show", sample.talk("Short", answers=2)["id"], PAGER="cat")
    assert shown.end() == 0
    lines = shown.text.splitlines()
    heads = [number for number, line in enumerate(lines) if "──" in line]
    assert len(heads) > 2
    assert {lines[number - 1] for number in heads} == {""}
    assert "" not in (lines[number + 1] for number in heads)


@pytest.mark.parametrize("pager", ["no-such-pager", "", " "])
def test_without_a_pager_that_can_be_run_nothing_is_lost(screen: Callable[..., Screen], long: str, pager: str) -> None:
    shown = screen("show", long, PAGER=pager)
    assert shown.end() == 0
    assert f"line {LINES - 1}\n" in shown.text


def test_a_pager_may_be_left_before_the_end(screen: Callable[..., Screen], sample: Sample) -> None:
    session = sample.session("Longer than a pipe holds")
    sample.prompt(session, "word\n" * 50_000)
    shown = screen("show", session["id"], PAGER="head -n 1")
    assert shown.end() == 0
    assert shown.text == "Longer than a pipe holds\n"


def diff_of(sample: Sample, patch: str) -> str:
    session = sample.talk(answers=1)["id"]
    sample.write(("session_diff", session), [{"file": "x", "patch": patch, "additions": 1, "deletions": 1}])
    return session


def test_a_diff_is_painted_on_a_terminal_and_cannot_steer_it(screen: Callable[..., Screen], sample: Sample) -> None:
    session = diff_of(sample, "--- x\n+++ x\n@@ -1,3 +1,3 @@\n same\n--- old\n+\x1b]0;new\x07\n")
    shown = screen("session", "diff", session)
    assert shown.end() == 0
    assert shown.raw.splitlines()[:6] == [
        "\x1b[1m--- x\x1b[0m",
        "\x1b[1m+++ x\x1b[0m",
        "\x1b[36m@@ -1,3 +1,3 @@\x1b[0m",
        " same",
        "\x1b[31m--- old\x1b[0m",
        "\x1b[32m+␛]0;new␇\x1b[0m",
    ]


def test_a_diff_is_what_it_is_for_everyone_else(terminal: Terminal, sample: Sample) -> None:
    patch = "--- x\n+++ x\n@@ -1 +1 @@\n-old\n+\x1b]0;new\x07\n"
    assert terminal.run("session", "diff", diff_of(sample, patch)) == patch


def test_of_a_patch_with_a_whole_file_only_the_changed_lines_are_shown(terminal: Terminal, sample: Sample) -> None:
    lines = "".join(f"{number}\n" for number in range(40))
    patch = whole_file_patch("x", lines, lines.replace("20\n", "twenty\n"))
    shown = terminal.run("session", "diff", diff_of(sample, patch))
    assert "\n-20\n+twenty\n" in shown
    assert "\n 1\n" not in shown
