"""What a command may be told. Plain words are understood at once; for all others, and for help, argparse is loaded.

Argparse takes longer to load than most commands take to run, so a command's arguments are written down first. Words
that hold nothing but flags as they are declared, each with its value behind it, and plain arguments, mean what they
say; whatever else there is, a mistake included, is left to argparse, so that there is one answer to every line.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Sequence
    from typing import Any

SESSION = "an id, its beginning or end, a slug, or 'last'"
"""What a session is called on the command line."""
PROJECT = "name, folder, remote or id, roughly"
"""And what a project is."""
TIMES = "2026-08-01, 2026-08, 2026-08-01T12:00, today, yesterday, 90m, 12h, 3d, 2w"
"""And how a time is written."""
_MAY_BE_EMPTY = ("title",)
"""As for OpenCode, an empty title asks for one that is made of the prompt."""
_WITHOUT_VALUE = ("store_true", "store_false", "help")


class Argument:
    """An argument as it was declared, in argparse's words."""

    def __init__(self, names: tuple[str, ...], options: dict[str, Any]) -> None:
        self.names = names
        self.options = options
        self.option_strings = names if names[0].startswith("-") else ()
        """Its flags; none for an argument that is known by its place."""
        self.dest: str = options.get("dest") or _name(names)
        self.action: str = options.get("action", "store")
        self.nargs: str | int | None = 0 if self.action in _WITHOUT_VALUE else options.get("nargs")
        self.choices: Sequence[str] | None = options.get("choices")
        self.metavar: str | None = options.get("metavar")
        self.help: str = options.get("help", "")

    @property
    def default(self) -> Any:
        """What it is when nobody says."""
        if self.action in ("store_true", "store_false"):
            return self.options.get("default", self.action == "store_false")
        if self.nargs == "*" or self.action == "append":
            return [*self.options.get("default", ())]
        return self.options.get("default")


class Parser:
    """The arguments of a command."""

    def __init__(self, prog: str, description: str = "") -> None:
        self.prog = prog
        self.description = description
        self.declared: list[Argument] = []
        self.actions: dict[str, Parser] = {}
        self.words: str | None = None
        """The argument that is made of words, with options between them as they come; there is at most one."""
        self.add_argument("-h", "--help", action="help", help="show this help message and exit")

    def add_argument(self, *names: str, **options: Any) -> None:
        """Declare an argument, as one would to argparse."""
        self.declared.append(Argument(names, options))

    def add_action(self, name: str, summary: str) -> Parser:
        """Declare an action: a second word with arguments of its own."""
        self.actions[name] = Parser(f"{self.prog} {name}", summary)
        return self.actions[name]

    def parse(self, words: Sequence[str]) -> argparse.Namespace:
        """Understand the words; after ``--``, none is an option."""
        plain: Any = plain_words(self, words)
        if plain is None:
            from .parsing import parse

            plain = parse(self, words)
        said = self.actions.get(getattr(plain, "action", ""), self)
        said.refuse_nothing(plain)
        return plain

    def refuse_nothing(self, options: argparse.Namespace) -> None:
        """An option whose value is empty is no option that was left out: ``--before "$DAY"`` of a script that forgot
        to set it must not mean every day."""
        for argument in self.declared:
            asked = argument.option_strings and argument.dest not in _MAY_BE_EMPTY
            given = getattr(options, argument.dest, None) if asked and argument.default != "" else None
            if given == "" or (isinstance(given, list) and "" in given):
                from ..errors import UsageError

                raise UsageError(f"{argument.names[-1]} was given nothing; say what, or leave it out")


class Options:
    """What was said, by name."""

    def __init__(self, values: dict[str, Any]) -> None:
        self.__dict__.update(values)


def count(text: str) -> int:
    """How many, as someone typed it: the ``type`` of an argument."""
    if text.isdecimal():
        return int(text)
    from argparse import ArgumentTypeError

    raise ArgumentTypeError(f"{text!r} is no number of things; write 0, 1, 2 and so on")


def plain_words(parser: Parser, words: Sequence[str]) -> Options | None:
    """What words mean that mean what they say; ``None`` if it takes argparse to tell."""
    if parser.actions:
        return None
    flags = {flag: argument for argument in parser.declared for flag in argument.option_strings}
    values = {each.dest: each.default for each in reversed(parser.declared) if each.action != "help"}
    alone: list[str] = []
    rest = iter(words)
    for word in rest:
        if not word.startswith("-"):
            alone.append(word)
            continue
        argument = flags.get(word)
        if argument is None or not _take(argument, rest, values):
            return None
    return Options(values) if _place(parser, alone, values) else None


def _take(argument: Argument, rest: Any, values: dict[str, Any]) -> bool:
    """Note a flag that was given, with its value; whether it was as plain as that."""
    if argument.action in ("store_true", "store_false"):
        values[argument.dest] = argument.action == "store_true"
        return True
    word = next(rest, "-")
    if argument.action not in ("store", "append") or argument.nargs is not None or word.startswith("-"):
        return False
    known, value = _converted(argument, word)
    if argument.action == "append":
        values[argument.dest].append(value)
    else:
        values[argument.dest] = value
    return known


def _place(parser: Parser, alone: list[str], values: dict[str, Any]) -> bool:
    """Note the words that are no flags; whether there is one place for them, and they fit into it."""
    places = [argument for argument in parser.declared if not argument.option_strings]
    if not places:
        return not alone
    argument = places[0]
    if len(places) > 1 or argument.choices:
        return False
    if argument.dest == parser.words:
        values[argument.dest] = alone
        return True
    if argument.nargs not in (None, "?") or len(alone) > 1 or (argument.nargs is None and not alone):
        return False
    if alone:
        values[argument.dest] = alone[0]
    return True


def _converted(argument: Argument, word: str) -> tuple[bool, Any]:
    convert: Callable[[str], Any] | None = argument.options.get("type")
    try:
        value = word if convert is None else convert(word)
    except Exception:  # argparse knows how to say what is wrong with it
        return False, word
    return argument.choices is None or value in argument.choices, value


def _name(names: tuple[str, ...]) -> str:
    chosen = next((name for name in names if name.startswith("--")), names[0])
    return chosen.lstrip("-").replace("-", "_") if chosen.startswith("-") else chosen
