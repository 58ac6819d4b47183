from __future__ import annotations

import re
import shlex
import subprocess
import sys
from typing import Any

import pytest

from opensesh.cli.examples import EXAMPLES, aligned_examples
from opensesh.cli.main import COMMANDS, command_parser
from opensesh.errors import UsageError

from .running import Terminal


def parse(name: str, *words: str) -> dict[str, Any]:
    return vars(command_parser(name)[1].parse(words))


def test_words_and_options_may_be_mixed() -> None:
    options = parse("search", "how", "--in", "titles", "does", "--regex", "it", "--limit=3")
    assert options["query"] == ["how", "does", "it"]
    assert (options["fields"], options["regex"], options["limit"]) == (["titles"], True, 3)
    assert parse("run", "-m", "scripted/demo", "do", "it")["prompt"] == ["do", "it"]


def test_after_two_dashes_no_word_is_an_option() -> None:
    assert parse("search", "a", "--", "-b", "--json")["query"] == ["a", "-b", "--json"]
    assert parse("export", "last", "--format", "json", "--")["session"] == ["last"]
    assert parse("list", "--")["limit"] == 50
    with pytest.raises(UsageError, match="after '--'"):
        parse("search", "a", "-b")


def test_an_unknown_option_of_an_action_names_the_help_of_the_action() -> None:
    with pytest.raises(UsageError, match=r"unrecognized arguments: -m x\. Try 'opensesh session compact --help'"):
        parse("session", "compact", "last", "-m", "x")
    with pytest.raises(UsageError, match="did you mean '--before'"):
        parse("session", "fork", "last", "--befor", "x")


def test_a_number_that_counts_nothing_is_refused() -> None:
    for word in ("-3", "5x", "1.5"):
        with pytest.raises(UsageError, match=f"{word!r} is not a count; write 0, 1, 2"):
            parse("list", "--limit", word)


def test_lists_are_not_shared_between_two_lines() -> None:
    _, parser = command_parser("search")
    assert parser.parse(["--in", "titles"]).fields == ["titles"]
    assert parser.parse([]).fields == []


def test_what_is_missing_is_named() -> None:
    with pytest.raises(UsageError, match="name a session: an id"):
        parse("show")
    with pytest.raises(UsageError, match="name an action: fork, rename"):
        parse("session")


def test_an_option_is_not_abbreviated() -> None:
    with pytest.raises(UsageError, match="--js"):
        parse("list", "--js")


@pytest.mark.parametrize("words", ["list --since", "stats --project", "session remove --before"])
def test_an_option_with_an_empty_value_is_refused(words: str) -> None:
    name, *rest = words.split()
    with pytest.raises(UsageError, match=f"{rest[-1]} is empty"):
        parse(name, *rest, "")


def test_an_empty_title_is_allowed() -> None:
    assert parse("run", "--title", "", "Hello")["title"] == ""


@pytest.mark.parametrize("name", COMMANDS)
def test_the_module_of_another_command_is_not_loaded(name: str) -> None:
    code = (
        "import sys; from opensesh.cli.main import load_command; load_command(sys.argv[1]);"
        "print(*(m for m in sys.modules if m.startswith('opensesh.cli.') and m.endswith('_command')))"
    )
    done = subprocess.run([sys.executable, "-c", code, name], capture_output=True, text=True, check=True)
    assert done.stdout.split() == [f"opensesh.cli.{name.replace('-', '_')}_command"]


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


def test_every_argument_of_every_command_has_a_help_text() -> None:
    for command in COMMANDS:
        _, parser = command_parser(command)
        for leaf in (parser, *parser.actions.values()):
            bare = [argument.dest for argument in leaf.declared if not argument.help and not argument.choices]
            assert bare == [], leaf.prog


@pytest.mark.parametrize("line", [line for examples in EXAMPLES.values() for line, _ in examples])
def test_every_example_of_a_help_text_is_a_valid_command_line(line: str) -> None:
    _, name, *words = shlex.split(line.rpartition("| ")[2])
    assert parse(name, *words)["debug"] is False


def test_the_help_of_every_command_and_action_that_does_something_has_an_example(terminal: Terminal) -> None:
    for command in COMMANDS:
        for name in command_parser(command)[1].actions or ("",):
            words = f"{command} {name}".strip()
            if words not in ("completion", "mcp list", "mcp logout", "auth list", "auth logout"):
                assert "\nexamples:\n  opensesh " in terminal.run(*words.split(), "--help"), words
            assert max(map(len, aligned_examples(words)), default=0) <= 78, words


@pytest.mark.parametrize(
    ("words", "suggestion"),
    [
        ("list --sinc 3d", "--since"),
        ("export --format markdwn", "markdown"),
        ("stats --by modle", "model"),
        ("session remove last --yse", "--yes"),
        ("session archive last --dryrun=1", "--dry-run"),
    ],
)
def test_a_mistyped_option_or_choice_gets_a_suggestion(words: str, suggestion: str) -> None:
    name, *rest = words.split()
    with pytest.raises(UsageError, match=rf"; did you mean '{suggestion}'\? Try 'opensesh {name}"):
        parse(name, *rest)


def test_a_mistyped_option_before_the_command_is_named_instead_of_its_value(terminal: Terminal) -> None:
    terminal.run("--sotre", "elsewhere", "list")
    assert (terminal.code, terminal.error) == (
        2,
        "opensesh: unknown option '--sotre'; did you mean --store? Try 'opensesh --help'.\n",
    )
