"""Write the command reference and the manual page from the argument parsers of the commands.

    python scripts/reference.py            write both
    python scripts/reference.py --check    fail if one of them is out of date

Both are made from the declared arguments, not from argparse's help, which differs between Python versions.
"""

from __future__ import annotations

import argparse
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from opensesh import __version__
from opensesh.cli.examples import aligned_examples
from opensesh.cli.main import COMMANDS, command_parser

if TYPE_CHECKING:
    from collections.abc import Iterator

    from opensesh.cli.command_arguments import CommandParser

DOCS = Path(__file__).parent.parent / "docs"
PAGE = DOCS / "reference" / "commands.md"
MANUAL = DOCS / "man" / "opensesh.1"
COMMON = ("--store", "--json", "--utc", "--quiet", "--debug")
NAMING = "Sessions are named by id, by the beginning or end of an id, by slug, or `last`, the newest of this project."
TIMES = "A time `T` is a day (`2026-08-01`), a minute (`2026-08-01T12:00`), or an age (`90m`, `12h`, `3d`, `2w`)."
EXITS = {
    0: "done",
    1: "failed; the outcome says why",
    2: "invalid usage",
    3: "not found",
    4: "busy: another process runs that session",
    5: "the store is damaged or cannot be read or written",
    130: "interrupted",
}
VARIABLES = {
    "OPENSESH_STORE": "the store to use if `--store` is not given; also `store` in `~/.config/opensesh/settings.json`",
    "OPENCODE_DB": "the database in OpenCode's data folder, or elsewhere, to use instead of all that are in the folder",
    "OPENSESH_OPENCODE_SERVER": "the address of an OpenCode server whose clients are notified of what was written into "
    "its database; also `opencodeServer` in that file",
    "XDG_DATA_HOME": "folder of OpenCode's data folder `opencode` (default: `~/.local/share`)",
    "XDG_CONFIG_HOME": "folder of OpenCode's configuration folder `opencode` (default: `~/.config`)",
    "XDG_STATE_HOME": "folder for locks, leases, the trash and undo files (default: `~/.local/state`)",
    "XDG_CACHE_HOME": "folder for caches such as the search index (default: `~/.cache`)",
    "NO_COLOR": "do not use colours",
}


class Argument(NamedTuple):
    """One argument of a command."""

    spelled: str
    """As in the table: `-o, --output FILE`."""
    brief: str
    """As in the synopsis, with brackets and dots."""
    help: str


class Command(NamedTuple):
    """A command, or an action of one."""

    words: str
    about: str
    arguments: list[Argument]
    options: list[Argument]
    actions: list[Command]

    @property
    def synopsis(self) -> str:
        """How to call it."""
        if self.actions:
            return f"{self.words} ACTION ..."
        arguments = [argument.brief for argument in (*self.options, *self.arguments)]
        return " ".join((self.words, *arguments))


def read_commands() -> list[Command]:
    """Return all commands, in the order of the overview."""
    return [read_command(f"opensesh {name}", command_parser(name)[1]) for name in COMMANDS]


def read_command(words: str, parser: CommandParser) -> Command:
    """Return a command with the arguments that its parser declares."""
    common = {*COMMON, "--help"}
    declared = [action for action in parser.declared if not common & set(action.option_strings)]
    shown = [action for action in declared if action.help != argparse.SUPPRESS]
    actions = [read_command(f"{words} {name}", subparser) for name, subparser in parser.actions.items()]
    about = (parser.description or "").strip()
    return Command(
        words,
        about,
        [read_argument(action) for action in shown if not action.option_strings],
        [read_argument(action) for action in shown if action.option_strings],
        actions,
    )


def read_argument(action: argparse.Action) -> Argument:
    """Return an argument in the forms that the pages use."""
    choices = "|".join(str(choice) for choice in action.choices or ())
    name = choices or str(action.metavar or action.dest.upper())
    text = action.help or {"S": "the session", "TITLE": "its title"}.get(name, "")
    if not action.option_strings:
        many = {"*": f"[{name} ...]", "+": f"{name} [{name} ...]", "?": f"[{name}]"}
        return Argument(name, many.get(str(action.nargs), name), text)
    value = "" if action.nargs == 0 else f" {name}"
    spelled = ", ".join(f"{option}{value if option.startswith('--') else ''}" for option in action.option_strings)
    return Argument(spelled, f"[{action.option_strings[0]}{value}]", text)


# -- the page ----------------------------------------------------------------------------------------------------------


def page(commands: list[Command]) -> str:
    """Return the reference page in Markdown."""
    blocks = [
        "<!-- Written by scripts/reference.py from the argument parsers. Change those, and run it again. -->",
        "# Commands",
        "`opensesh --help` lists the commands, `opensesh COMMAND --help` shows the arguments of one.",
        f"{NAMING} {TIMES}",
        "## Options of every command",
        table("option", common_options()),
        "## Exit codes",
        table("code", [Argument(str(code), "", words) for code, words in EXITS.items()]),
        "Errors are one or two lines on standard error: what happened, where, and what to do. With `--json` they are "
        '`{"error": {"name", "message", "data"}}` on standard output.',
        "## Environment",
        table("variable", [Argument(name, "", words) for name, words in VARIABLES.items()]),
    ]
    for command in commands:
        blocks += section(command, "##")
    return "\n\n".join(blocks) + "\n"


def common_options() -> list[Argument]:
    """Return the options of every command."""
    _, parser = command_parser("list")
    return [read_argument(action) for action in parser.declared if set(COMMON) & set(action.option_strings)]


def section(command: Command, mark: str) -> Iterator[str]:
    """Yield the section of a command and of its actions."""
    yield f"{mark} {command.words.removeprefix('opensesh ')}"
    yield f"```text\n{wrapped(command.synopsis)}\n```"
    yield from paragraphs(command.about)
    if command.arguments or command.options:
        yield table("argument", [*command.arguments, *command.options])
    if examples := aligned_examples(command.words.removeprefix("opensesh ")):
        yield "\n".join(("```text", *examples, "```"))
    for action in command.actions:
        yield from section(action, f"{mark}#")


def paragraphs(text: str) -> Iterator[str]:
    """Yield the paragraphs of a description; those laid out in columns as code."""
    for block in text.split("\n\n"):
        yield f"```text\n{block}\n```" if re.search(r"\S {3,}\S", block) else block


def table(head: str, arguments: list[Argument]) -> str:
    """Return a table of arguments and their help texts."""
    rows = [f"| `{code(item.spelled)}` | {item.help.replace('|', chr(92) + '|')} |" for item in arguments]
    return "\n".join((f"| {head} | |", "| --- | --- |", *rows))


def code(text: str) -> str:
    """Escape bars, which end a cell of a table even in code."""
    return text.replace("|", "\\|")


def wrapped(synopsis: str, width: int = 100) -> str:
    """Break a synopsis into lines, between arguments."""
    lines = [""]
    for word in re.findall(r"\[[^\]]*\]|\S+", synopsis):
        if lines[-1] and len(lines[-1]) + 1 + len(word) > width:
            lines.append("   ")
        lines[-1] = f"{lines[-1]} {word}" if lines[-1] else word
    return "\n".join(lines)


# -- the manual page ---------------------------------------------------------------------------------------------------


def manual(commands: list[Command]) -> str:
    """Return the manual page in roff."""
    lines = [
        '.\\" Written by scripts/reference.py from the argument parsers.',
        f'.TH OPENSESH 1 "" "opensesh {__version__}" "User Commands"',
        ".SH NAME",
        "opensesh \\- store, read, search and run OpenCode sessions",
        ".SH SYNOPSIS",
        ".B opensesh",
        ".I COMMAND",
        ".RI [ ARGUMENTS ]",
        ".SH DESCRIPTION",
        roff(
            "opensesh stores sessions where and how OpenCode does. It lists, searches, prices, exports, moves, repairs "
            "and runs them."
        ),
        ".PP",
        roff(NAMING),
        roff(TIMES),
        ".SH OPTIONS",
        "Every command takes these.",
        *entries(common_options()),
        ".SH COMMANDS",
    ]
    for command in commands:
        lines += manual_section(command)
    lines += [".SH ENVIRONMENT", *entries([Argument(name, "", words) for name, words in VARIABLES.items()])]
    lines += [".SH EXIT STATUS", *entries([Argument(str(status), "", words) for status, words in EXITS.items()])]
    lines += [".SH FILES", *entries(FILES)]
    return "\n".join(lines) + "\n"


FILES = [
    Argument("~/.local/share/opencode", "", "OpenCode's data folder: sessions, keys, snapshots"),
    Argument("~/.config/opencode", "", "OpenCode's configuration"),
    Argument("~/.local/state/opensesh", "", "locks, leases, the trash, undo files, the log"),
    Argument("~/.cache/opensesh", "", "caches such as the search index"),
]


def manual_section(command: Command) -> Iterator[str]:
    """Yield the section of a command and of its actions."""
    yield f'.SS "{roff(command.words)}"'
    if not command.actions:
        yield ".nf"
        yield from map(roff, wrapped(command.synopsis, 76).splitlines())
        yield ".fi"
        yield ".PP"
    for number, block in enumerate(command.about.split("\n\n")):
        yield from [".PP"] if number else []
        columns = re.search(r"\S {3,}\S", block)
        yield from [".nf", *map(roff, block.splitlines()), ".fi"] if columns else map(roff, block.splitlines())
    yield from entries([*command.arguments, *command.options])
    if examples := aligned_examples(command.words.removeprefix("opensesh ")):
        yield from (".PP", ".nf", *map(roff, examples), ".fi")
    for action in command.actions:
        yield from manual_section(action)


def entries(arguments: list[Argument]) -> Iterator[str]:
    """Yield a list of arguments and their help texts."""
    for item in arguments:
        yield ".TP"
        yield f".B {roff(item.spelled)}"
        yield roff(item.help or "-")


def roff(text: str) -> str:
    """Escape text for roff."""
    text = text.replace("\\", "\\e").replace("-", "\\-").replace("`", "").replace('"', "\\(dq").replace("'", "\\(aq")
    return f"\\&{text}" if text.startswith(".") else text


def main(words: list[str]) -> int:
    """Write both files, or compare them."""
    commands = read_commands()
    expected = {PAGE: page(commands), MANUAL: manual(commands)}
    stale = [path for path, text in expected.items() if not path.exists() or path.read_text("utf-8") != text]
    if words == ["--check"]:
        for path in stale:
            print(f"{path} is out of date; run python scripts/reference.py", file=sys.stderr)
        return 1 if stale else 0
    for path in stale:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(expected[path], "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
