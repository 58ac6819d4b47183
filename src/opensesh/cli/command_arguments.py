"""The argument parser of the commands, and the arguments that several commands share."""

from __future__ import annotations

import argparse
import os
import re
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NoReturn

from ..errors import NotFoundError, UsageError
from ..text import close_matches
from .output import session_line, terminal_columns

if TYPE_CHECKING:
    from ..history.library import Library, SessionEntry

SESSION = "an id, the beginning or end of one, a slug, or 'last' (the newest of this project)"
PROJECT = "name, folder, remote or id; need not be exact"
_EMPTY_ALLOWED = ("title",)
"""As in OpenCode, an empty title means: take one from the prompt."""


class _HelpFormatter(argparse.RawDescriptionHelpFormatter):
    """Formats help to the width of the terminal."""

    def __init__(self, prog: str) -> None:
        # argparse makes one of these for every argument that is declared, so this must be cheap.
        super().__init__(prog, width=terminal_columns() - 2)

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        """Wrap a description, except for paragraphs that are laid out in columns."""
        from textwrap import fill  # only for --help

        return "\n\n".join(
            block if re.search(r"\S {2,}\S", block) else fill(block, width) for block in text.split("\n\n")
        )


class CommandParser(argparse.ArgumentParser):
    """The parser of one command, or of one action of a command.

    Invalid usage raises :class:`~opensesh.errors.UsageError`; ``--help`` prints the help and raises
    :class:`SystemExit`.
    """

    def __init__(self, prog: str, description: str = "", **options: Any) -> None:
        self.declared: list[argparse.Action] = []
        self.actions: dict[str, CommandParser] = {}
        self.free_words: str | None = None
        """The argument that collects all words which are not options, wherever they stand; none if ``None``."""
        self._subparsers_action: Any = None
        super().__init__(prog, description=description, formatter_class=_HelpFormatter, allow_abbrev=False, **options)

    def add_argument(self, *names: str, **options: Any) -> argparse.Action:
        """Declare an argument."""
        argument = super().add_argument(*names, **options)
        self.declared.append(argument)
        return argument

    def format_help(self) -> str:
        """Return the help text, with examples."""
        from .examples import aligned_examples  # only for --help

        lines = aligned_examples(self.prog.removeprefix("opensesh "))
        return super().format_help() + "".join(["\nexamples:\n", *(f"  {line}\n" for line in lines)] if lines else [])

    def add_action(self, name: str, summary: str) -> CommandParser:
        """Declare an action: a second word with arguments of its own."""
        if self._subparsers_action is None:
            self._subparsers_action = self.add_subparsers(
                dest="action", metavar="ACTION", required=True, title="actions"
            )
        self.actions[name] = self._subparsers_action.add_parser(
            name, help=summary, description=f"{summary[:1].upper()}{summary[1:]}."
        )
        return self.actions[name]

    def parse(self, words: Sequence[str]) -> argparse.Namespace:
        """Parse the words of a command line. After ``--``, no word is an option."""
        if words and words[-1] == "--":  # argparse would take it for a word where no positional argument is left
            words = words[:-1]
        if self.free_words is None:
            options, unknown = self.parse_known_args(words)
            if unknown:  # argparse would name the help of the command, which does not show the options of an action
                parser = self.actions.get(getattr(options, "action", ""), self)
                parser.error(f"unrecognized arguments: {' '.join(unknown)}")
        else:
            end = words.index("--") if "--" in words else len(words)
            options = self.parse_intermixed_args(words[:end])
            setattr(options, self.free_words, [*getattr(options, self.free_words), *words[end + 1 :]])
        # `--before "$DAY"` with an unset variable must not be taken for an option that was left out.
        for argument in self.actions.get(getattr(options, "action", ""), self).declared:
            if argument.option_strings and argument.dest not in _EMPTY_ALLOWED and argument.default != "":
                value = getattr(options, argument.dest, None)
                if value == "" or (isinstance(value, list) and "" in value):
                    raise UsageError(f"{argument.option_strings[-1]} is empty; give a value, or leave the option out")
        return options

    def error(self, message: str) -> NoReturn:
        """Raise a :class:`~opensesh.errors.UsageError` that names the help."""
        if message == "the following arguments are required: S":
            message = f"name a session: {SESSION}"
        elif message == "the following arguments are required: ACTION":
            message = f"name an action: {', '.join(self.actions)}"
        else:
            message += self._suggestion(message)
        dashes = self.free_words is not None and message.startswith("unrecognized")
        hint = " Words that begin with a dash go after '--'." if dashes else ""
        end = "" if message.endswith("?") else "."
        raise UsageError(f"{message}{end}{hint} Try '{self.prog} --help'.")

    def _suggestion(self, message: str) -> str:
        """Return what the mistyped option or choice, which argparse reports, may have been."""
        declared = [argument for parser in (self, *self.actions.values()) for argument in parser.declared]
        if match := re.match(r"unrecognized arguments: (--[^\s=]+)", message):
            known = [option for argument in declared for option in argument.option_strings]
        elif match := re.match(r"argument (?:\S+/)?(\S+): invalid choice: '(.*?)' ", message):
            names = [argument for argument in declared if match[1] in (*argument.option_strings, argument.dest)]
            known = [str(choice) for argument in names for choice in argument.choices or ()]
        else:
            return ""
        close = close_matches(match[match.lastindex or 1], known)
        return f"; did you mean {close[0]!r}?" if close else ""


def count(text: str) -> int:
    """Parse a number of things: the ``type`` of an argument."""
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"{text!r} is not a count; write 0, 1, 2 and so on")
    return int(text)


def port(text: str) -> int:
    """Parse the number of a port: the ``type`` of an argument."""
    if not text.isdecimal() or int(text) > 65535:
        raise argparse.ArgumentTypeError(f"{text!r} is not a port; write a number up to 65535")
    return int(text)


def named_session(library: Library, word: str, *, to_change: bool = False) -> SessionEntry:
    """Return the session that ``word`` names. ``last`` is the newest of this checkout, or else of this project.

    Where the project has none, a command that only reads gets the newest elsewhere, and a line says so. With
    ``to_change``, :class:`~opensesh.errors.NotFoundError` is raised instead, and names that session.
    """
    try:
        return library.session(word, here=os.getcwd())
    except NotFoundError as error:
        newest = error.data.get("id")
        if to_change or word != "last" or not isinstance(newest, str):
            raise
        entry = library.session(newest)
        print(f"This project has no session. The newest elsewhere: {session_line(entry.record)}", file=sys.stderr)
        return entry
