"""Words that take argparse to understand: help, mistakes, actions, and what is said in few letters."""

from __future__ import annotations

import argparse
import re
from typing import TYPE_CHECKING, Any, NoReturn

from ..errors import UsageError
from .output import terminal_columns

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .arguments import Parser


class _Help(argparse.RawDescriptionHelpFormatter):
    """Help as wide as the terminal. One is made for every argument that is declared, so it must cost nothing."""

    def __init__(self, prog: str) -> None:
        super().__init__(prog, width=terminal_columns() - 2)

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        """A description; what is laid out in columns stays so."""
        from textwrap import fill

        return "\n\n".join(
            block if re.search(r"\S {2,}\S", block) else fill(block, width) for block in text.split("\n\n")
        )


class _Parser(argparse.ArgumentParser):
    """One that raises instead of printing and leaving."""

    hint = ""

    def __init__(self, **options: Any) -> None:
        super().__init__(formatter_class=_Help, allow_abbrev=False, **options)

    def error(self, message: str) -> NoReturn:
        """Bad usage, in one line with a way on."""
        hint = self.hint if message.startswith("unrecognized") else ""
        raise UsageError(f"{message}.{hint} Try '{self.prog} --help'.")


def parse(declared: Parser, words: Sequence[str]) -> argparse.Namespace:
    """Understand words; :class:`~opensesh.errors.UsageError` if they make no sense. Help is printed, and then
    :class:`SystemExit` raised."""
    parser = _Parser(prog=declared.prog, description=declared.description)
    _declare(parser, declared)
    if declared.words is None:
        return parser.parse_args(words)
    parser.hint = " Words that begin with a dash go behind '--'."
    end = words.index("--") if "--" in words else len(words)
    options = parser.parse_intermixed_args(words[:end])
    setattr(options, declared.words, [*getattr(options, declared.words), *words[end + 1 :]])
    return options


def _declare(parser: argparse.ArgumentParser, declared: Parser) -> None:
    for argument in declared.declared:
        if argument.action != "help":  # argparse declares that itself
            parser.add_argument(*argument.names, **argument.options)
    if not declared.actions:
        return
    choice: Any = parser.add_subparsers(dest="action", metavar="ACTION", required=True, title="actions")
    for name, each in declared.actions.items():
        _declare(choice.add_parser(name, help=each.description, description=each.description), each)
