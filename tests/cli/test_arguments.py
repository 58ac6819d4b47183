from __future__ import annotations

import random
import re
import subprocess
import sys
from collections.abc import Iterator

import pytest

from opensesh.cli.arguments import Options, Parser, plain_words
from opensesh.cli.main import COMMANDS, command_parser
from opensesh.cli.parsing import parse
from opensesh.errors import OpenseshError

from .running import Terminal

WORDS = ("", "last", "7", "x y", "day", "user", "jsonl", "2026-08-01", "=", "ünï")
ODD = ("-", "--", "-1", "--limit=3", "--no-such", "--js", "-o", "--help", "-h", "-mx", "--by=day")


def said(parser: Parser, words: list[str]) -> dict[str, object] | str:
    try:
        return vars(parse(parser, words))
    except OpenseshError as error:
        return error.message
    except SystemExit:
        return "help"


def lines(parser: Parser, chance: random.Random) -> Iterator[list[str]]:
    flags = [flag for each in parser.declared for flag in each.option_strings]
    choices = [str(choice) for each in parser.declared for choice in each.choices or ()]
    yield []
    for _ in range(150):
        pool = [*flags, *WORDS, *choices, *(ODD if chance.random() < 0.3 else ())]
        yield chance.choices(pool, k=chance.randint(1, 6))


def pairs(parser: Parser, chance: random.Random) -> Iterator[list[str]]:
    for each in parser.declared:
        if each.option_strings:
            value = [str((each.choices or ("3",))[0])] if each.nargs is None else []
            yield [each.option_strings[0], *value]
            yield [chance.choice(WORDS), each.option_strings[-1], *value, chance.choice(WORDS)]


@pytest.mark.parametrize("name", COMMANDS)
def test_what_is_understood_at_once_is_what_argparse_understands(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    chance = random.Random(name)
    _, whole = command_parser(name)
    for parser in (whole, *whole.actions.values()):
        for words in (*pairs(parser, chance), *lines(parser, chance)):
            plain = plain_words(parser, words)
            if plain is not None:
                assert vars(plain) == said(parser, words), words


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("stats", ""),
        ("stats", "--by model --since 3d --limit 5 --json"),
        ("list", "--store somewhere --utc"),
        ("search", "how --in titles does --regex it work"),
        ("show", "last --full"),
        ("projects", "shop"),
        ("run", "-m scripted/demo do it"),
    ],
)
def test_usual_lines_need_no_argparse(name: str, words: str) -> None:
    assert plain_words(command_parser(name)[1], words.split()) is not None


def test_lists_are_not_shared_between_two_lines() -> None:
    _, parser = command_parser("search")
    first, second = plain_words(parser, ["--in", "titles"]), plain_words(parser, [])
    assert isinstance(first, Options)
    assert isinstance(second, Options)
    assert vars(first)["fields"] == ["titles"]
    assert vars(second)["fields"] == []


def test_the_sums_are_printed_without_loading_a_parser_of_words() -> None:
    code = "import sys; from opensesh.cli.main import run; run(['stats']); print('argparse' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "False"


def test_a_description_is_as_wide_as_the_terminal_and_columns_stay(
    terminal: Terminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    for command in COMMANDS:
        shown = terminal.run(command, "--help").split("\n\n", 1)[1]
        about = re.split(r"\n\n(?:positional arguments|options|actions):\n", shown)[0]
        if command not in ("search", "completion"):
            assert max(map(len, about.splitlines())) <= 60, command
    assert '\n"a phrase"      words in this order;' in terminal.run("search", "--help")


def test_what_is_laid_out_in_columns_fits_a_terminal_of_80(terminal: Terminal) -> None:
    for words in (["--help"], ["search", "--help"], ["completion", "--help"]):
        assert max(map(len, terminal.run(*words).splitlines())) <= 80


def test_every_argument_of_every_command_says_what_it_is() -> None:
    for command in COMMANDS:
        _, parser = command_parser(command)
        for each in (parser, *parser.actions.values()):
            bare = [argument.dest for argument in each.declared if not argument.help and not argument.choices]
            assert bare == [], each.prog
