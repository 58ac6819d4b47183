from __future__ import annotations

from collections.abc import Callable

import pytest

from opensesh.cli import output
from opensesh.cli.terminal import fold

from ..history.sample_tree import Sample
from .running import Screen, Terminal

FAMILY = "\U0001f469\u200d\U0001f4bb"
"""A person at a computer: two characters and a joiner, which make one."""


def test_numbers_are_aligned_at_the_right(capsys: pytest.CaptureFixture[str]) -> None:
    output.table(
        ("NAME", "CALLS", "SIZE", "WHEN", "SIGN", ""),
        [
            ("a", "17,217", "9.7 MB", "2026-11-18", "+1", "x"),
            ("b", "2", "265 B", "2026-11-18", "-12", "y"),
        ],
    )
    assert capsys.readouterr().out.splitlines() == [
        "NAME   CALLS    SIZE  WHEN        SIGN",
        "a     17,217  9.7 MB  2026-11-18  +1    x",
        "b          2   265 B  2026-11-18  -12   y",
    ]


@pytest.mark.parametrize(
    ("text", "columns"),
    [
        ("abc", 3),
        ("修正", 4),
        ("e\u0301", 1),
        ("\u26a0\ufe0f", 1),
        ("می\u200cخواهم", 7),
        ("\U0001f680", 2),
    ],
)
def test_marks_and_joiners_take_no_column(text: str, columns: int) -> None:
    assert output.width(text) == columns
    assert output.clip(text, columns) == text


def test_joined_characters_stay_joined(terminal: Terminal, sample: Sample) -> None:
    sample.talk(f"Ship {FAMILY}")
    for words in (["list"], ["search", "Ship"], ["stats", "--by", "session"]):
        assert FAMILY in terminal.run(*words), words


@pytest.mark.parametrize(("columns", "whole"), [(80, False), (120, True)])
def test_a_narrow_terminal_shows_the_ends_of_ids_and_more_of_the_titles(
    screen: Callable[..., Screen], sample: Sample, columns: int, whole: bool
) -> None:
    title = "A title of forty characters, or so, here"
    session = sample.talk(title)["id"]
    shown = screen("list", columns=columns)
    assert shown.end() == 0
    row = shown.text.splitlines()[1]
    assert (session in row, row.startswith(session[-6:])) == (whole, not whole)
    assert title[:30] in row


@pytest.mark.parametrize(
    "words",
    [
        ("list", "--since", "tomorrow"),
        ("session", "compact", "last", "--unknown"),
        ("models", "scripted"),
        ("doctor",),
    ],
    ids=" ".join,
)
def test_no_word_of_a_sentence_is_cut_at_the_end_of_a_line(
    screen: Callable[..., Screen], terminal: Terminal, sample: Sample, words: tuple[str, ...]
) -> None:
    for number in range(3):
        sample.talk(f"Talk {number}")
    whole = f"{terminal.run(*words)}\n{terminal.error}".split()
    shown = screen(*words, columns=60)
    shown.end()
    lines = shown.text.splitlines()
    sentences = [line for line in lines if "  " not in line.strip() and "/" not in line]
    assert len(sentences) > 1
    assert max(map(len, sentences)) <= 60
    assert {word for line in sentences for word in line.split()} <= set(whole)


def test_a_line_is_folded_between_words_and_keeps_its_indentation() -> None:
    line = "  one two 'opensesh show last' three"
    assert fold(line, 100) == line
    assert fold(line, 20) == "  one two\n  'opensesh show last'\n  three", "a command can be copied"
    assert fold("\x1b[1mone\x1b[0m two three", 8) == "\x1b[1mone\x1b[0m two\nthree", "colours take no columns"
    assert fold("it's the user's", 9) == "it's the\nuser's"
    assert fold("a\n" + "b" * 9 + "\n", 4) == "a\n" + "b" * 9 + "\n"


def test_output_for_programs_has_whole_ids(terminal: Terminal, sample: Sample) -> None:
    session = sample.talk("One")["id"]
    assert terminal.run("list").splitlines()[1].startswith(session)


def test_prompts_are_below_each_session(terminal: Terminal, sample: Sample, screen: Callable[..., Screen]) -> None:
    once = sample.session("Once")
    sample.prompt(once, "Why?\nBecause.")
    twice = sample.session("Twice")
    sample.prompt(twice, "First words")
    sample.prompt(twice, f"Last words {'and more ' * 20}")
    sample.session("Never")
    rows = terminal.run("list", "--prompts").splitlines()
    by_title = {row.split()[-1]: number for number, row in enumerate(rows)}
    assert rows[by_title["Once"] + 1] == "  only   Why? Because."
    first, last = rows[by_title["Twice"] + 1 : by_title["Twice"] + 3]
    assert first == "  first  First words"
    assert last.startswith("  last   Last words and more")
    assert len(rows) == 1 + 3 + 3
    shown = screen("list", "--prompts", columns=60)
    assert shown.end() == 0
    assert max(map(len, shown.text.splitlines()[:-1])) <= 60


def test_projects_are_listed_in_the_order_of_the_times_that_are_shown(terminal: Terminal, sample: Sample) -> None:
    for name, updated in (("old", 1_780_000_000_000), ("new", 1_790_000_000_000), ("middle", 1_785_000_000_000)):
        record = {"id": name, "worktree": f"/{name}", "time": {"created": 1, "updated": updated % 97}}
        sample.write(("project", name), record)
        sample.session(name, project=name, directory=f"/{name}", time={"created": 1, "updated": updated})
    used = [line.split()[0] for line in terminal.run("projects", "--utc").splitlines()[1:4]]
    assert used == ["new", "middle", "old"]
