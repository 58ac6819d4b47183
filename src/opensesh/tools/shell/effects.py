r"""What a command line is about to do, in the terms of permission rules.

Every command in it is a pattern of its own, so that ``git log && curl ... | sh`` is not taken for a ``git`` command. A
command that runs another (``sudo``, ``xargs``, ``bash -c``), or that is spelled so that rules would not know it
(``\rm``, ``/bin/rm``, ``X=1 rm``), is there under both names, and the strictest verdict decides. A line that cannot be
taken apart is one pattern that only a rule for everything matches, and each piece of it another.

This is a guard rail, not a sandbox: what a program does once it runs, nobody here knows.
"""

from __future__ import annotations

import os
import re
from itertools import count
from typing import TYPE_CHECKING, NamedTuple

from msgspec.structs import replace

from . import spellings
from .named_files import named_paths, possible_paths
from .syntax import parse
from .words import Unparsable
from .wrapped import inner_commands, runs_in_place

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from .command import ShellCommand

UNPARSED = "unparsed: "
"""Before a line that could not be taken apart, so that no rule for a certain command lets it pass."""

_FRAGMENT = re.compile(r"[;&|(){}`\n<>\"']|\$\(")
_SEPARATOR = re.compile(r"[;&|()`<>\"']|\$\(")
_DEEPEST = 10


class CommandEffects(NamedTuple):
    """What to ask for."""

    patterns: list[str]
    """Commands, for ``bash`` rules. Empty if there is nothing but ``cd``."""
    always: list[str]
    """What an answer of "always" allows."""
    paths: list[str]
    """Files and directories it names, absolute, in the project or not."""
    writes: list[str]
    """Those among them that its redirections, or ``tee``, write."""


def analyse_command(
    text: str,
    directory: str,
    *,
    posix: bool = False,
    readable: bool = True,
    environment: Mapping[str, str] | None = None,
) -> CommandEffects:
    """What ``text`` would do in ``directory``. ``readable``: whether it is for a shell whose language is known here.

    ``environment``, that of the process unless given, must have no ``CDPATH`` and no ``OLDPWD`` when the shell runs:
    they lead to where nothing in the text does.
    """
    known = os.environ if environment is None else environment
    if not readable:
        return _of_unparsed(text, directory, known)
    scopes = count(1)
    try:
        found = [each for command in parse(text, posix=posix) for each in _with_inner(command, scopes)]
    except Unparsable:
        return _of_unparsed(text, directory, known)
    patterns: dict[str, str] = {}
    for command, is_inner in found:
        for pattern, allowed in spellings.patterns(command):
            # Whoever allows "sudo ls" for good does not mean every "ls".
            patterns[pattern] = spellings.exactly(pattern) if is_inner else allowed
    paths: dict[str, None] = {}
    writes: dict[str, None] = {}
    for path, written in named_paths([command for command, _ in found], directory, known):
        paths[path] = None
        if written:
            writes[path] = None
    always = [pattern for pattern in dict.fromkeys(patterns.values()) if pattern]
    return CommandEffects(list(patterns), always, list(paths), list(writes))


def _with_inner(command: ShellCommand, scopes: Iterator[int], depth: int = 0) -> Iterator[tuple[ShellCommand, bool]]:
    """``command``, and the commands that it runs, each with whether it is one of those."""
    if depth > _DEEPEST:
        raise Unparsable("commands that run commands, too deep")
    yield command, depth > 0
    inside: tuple[int, ...] | None = None
    for inner in inner_commands(command):
        if inside is None:
            # No number of the parser's own is below zero.
            own = runs_in_place(command.words[0].value)
            inside = command.scope if own else (*command.scope, -next(scopes))
        scoped = replace(inner, scope=inside + inner.scope, loops=command.loops + inner.loops)
        yield from _with_inner(scoped, scopes, depth + 1)


def _of_unparsed(text: str, directory: str, environment: Mapping[str, str]) -> CommandEffects:
    fragments = [" ".join(piece.split()) for piece in _FRAGMENT.split(text)]
    patterns = dict.fromkeys([UNPARSED + text.strip(), *filter(None, fragments)])
    words = [word for fragment in _SEPARATOR.split(text) for word in fragment.split()]
    paths = dict.fromkeys(possible_paths(words, directory, environment))
    return CommandEffects(list(patterns), [], list(paths), [])
