r"""Effects of a command line, in the terms of permission rules: commands, paths and files written.

Every command in the line is a pattern of its own, so that ``git log && curl ... | sh`` does not pass as a ``git``
command. A command that runs another (``sudo``, ``xargs``, ``bash -c``), or that is spelled so that rules would not
match it (``\rm``, ``/bin/rm``, ``X=1 rm``), contributes both patterns, and the strictest decision counts. A line that
cannot be parsed is one pattern that only a rule for everything matches, plus a pattern for each fragment.

The steps are :func:`.parser.parse`, this classification, and the questions that :mod:`opensesh.tools.bash` asks. This
is a guard rail, not a sandbox: it does not know what a program does once it runs.
"""

from __future__ import annotations

import os
import re
from contextlib import suppress
from itertools import count
from typing import TYPE_CHECKING, NamedTuple

from msgspec.structs import replace

from .known_commands import (
    command_name,
    inner_commands,
    reads_program_from_input,
    runs_in_same_shell,
    runs_other_commands,
    skip_global_flags,
)
from .lexer import INFLUENTIAL_VARIABLE, Unparsable, brace_alternatives
from .named_paths import named_paths, possible_paths
from .parser import parse

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from .lexer import ShellCommand

UNPARSED = "unparsed: "
"""Prefix of a line that could not be parsed, so that no rule for a certain command matches it."""

_FRAGMENT = re.compile(r"[;&|(){}`\n<>\"']|\$\(")
_SEPARATOR = re.compile(r"[;&|()`<>\"']|\$\(")
_BLANKS = re.compile(r"""('[^']*'|"(?:\\.|[^"\\])*"|\\[^\n])|(?:[ \t\n]|\\\n)+""", re.DOTALL)
_MAX_DEPTH = 10


class CommandEffects(NamedTuple):
    """Patterns and paths to ask permission for."""

    patterns: list[str]
    """Commands, for ``bash`` rules. Empty if there is only ``cd``."""
    always: list[str]
    """Patterns that a reply of "always" allows."""
    paths: list[str]
    """Absolute paths that the line names, inside the project or not."""
    writes: list[str]
    """Those of ``paths`` that redirections or ``tee`` write."""


def analyse_command(
    text: str,
    directory: str,
    *,
    posix: bool = False,
    readable: bool = True,
    environment: Mapping[str, str] | None = None,
) -> CommandEffects:
    """Return the effects of running ``text`` in ``directory``.

    ``readable``: whether the line is for a shell whose syntax is known here. ``environment`` defaults to that of the
    process. The shell must run without ``CDPATH`` and ``OLDPWD``: they lead ``cd`` to directories that the text does
    not name.
    """
    environment = os.environ if environment is None else environment
    scopes = count(1)
    commands: list[tuple[ShellCommand, bool]] | None = None
    if readable:
        with suppress(Unparsable):
            commands = [pair for command in parse(text, posix=posix) for pair in _with_inner(command, scopes)]
    if commands is None:
        fragments = [" ".join(piece.split()) for piece in _FRAGMENT.split(text)]
        unparsed = dict.fromkeys([UNPARSED + text.strip(), *filter(None, fragments)])
        words = [word for fragment in _SEPARATOR.split(text) for word in fragment.split()]
        paths = dict.fromkeys(possible_paths(words, directory, environment))
        return CommandEffects(list(unparsed), [], list(paths), [])
    patterns: dict[str, str] = {}
    for command, is_inner in commands:
        for pattern, always in _patterns(command):
            # A user who allows "sudo ls" for good does not thereby allow every "ls".
            patterns[pattern] = _exact_pattern(pattern) if is_inner else always
    named = list(named_paths([command for command, _ in commands], directory, environment))
    return CommandEffects(
        list(patterns),
        [pattern for pattern in dict.fromkeys(patterns.values()) if pattern],
        list(dict.fromkeys(path for path, _ in named)),
        list(dict.fromkeys(path for path, is_written in named if is_written)),
    )


def _with_inner(command: ShellCommand, scopes: Iterator[int], depth: int = 0) -> Iterator[tuple[ShellCommand, bool]]:
    """Yield ``command`` and the commands that it runs, each with whether it is one of the latter."""
    if depth > _MAX_DEPTH:
        raise Unparsable("commands that run commands, nested too deeply")
    yield command, depth > 0
    scope: tuple[int, ...] | None = None
    for inner in inner_commands(command):
        if scope is None:
            # Negative numbers do not collide with the parser's.
            same_shell = runs_in_same_shell(command.words[0].value)
            scope = command.scope if same_shell else (*command.scope, -next(scopes))
        scoped = replace(inner, scope=scope + inner.scope, loops=command.loops + inner.loops)
        yield from _with_inner(scoped, scopes, depth + 1)


def _patterns(command: ShellCommand) -> Iterator[tuple[str, str]]:
    """Yield the patterns of a command, each with the pattern that "always" allows, if any."""
    yield from ((word.text, "") for word in command.loops if INFLUENTIAL_VARIABLE.match(word.text))
    if not command.words:
        influential = any(INFLUENTIAL_VARIABLE.match(word.text) for word in command.assignments)
        if influential or any(redirect.writes for redirect in command.redirects):
            yield command.text, _exact_pattern(command.text)
        return
    if command.words[0].value == "cd" and not command.assignments:
        return
    if reads_program_from_input(command):
        yield from ((pattern, "") for pattern, _ in _spellings(command))
    elif runs_other_commands(command.words[0].value) or any(inner_commands(command)):
        yield from ((pattern, _exact_pattern(pattern)) for pattern, _ in _spellings(command))
    else:
        yield from _spellings(command)


def _spellings(command: ShellCommand) -> Iterator[tuple[str, str]]:
    """Yield the command under every name by which a rule may know it."""
    first, words = command.words[0], [word.value for word in command.words]
    name = command_name(words)
    rest = command.text
    for word in (*command.assignments, *command.words[: len(name)]):
        rest = rest[rest.find(word.text) + len(word.text) :]
    canonical = " ".join((*name, _collapse_blanks(rest))).strip()
    if _collapse_blanks(command.text) != canonical:
        yield command.text, _exact_pattern(command.text)
    yield canonical, _always_pattern(words, canonical)
    arguments = [word.text for word in command.words[1:]]
    expanded = next(filter(None, brace_alternatives(first.bare)), "")
    for other in sorted({first.bare, expanded, os.path.basename(expanded)} - {first.value, ""}):
        pattern = " ".join((other, *arguments))
        yield pattern, _always_pattern([other, *words[1:]], pattern)
    unquoted = [word.value if word.value.startswith("-") else word.text for word in command.words[1:]]
    for variant in (unquoted if unquoted != arguments else [], skip_global_flags(words[0], unquoted)):
        if variant:
            pattern = " ".join((os.path.basename(words[0]), *variant))
            yield pattern, _exact_pattern(pattern)
    if not first.bare and len(words) > 1:  # an expansion that may be empty: then the next word is the command
        yield " ".join(arguments), ""


def _collapse_blanks(text: str) -> str:
    """Replace every run of unquoted blanks by one space."""
    return _BLANKS.sub(lambda match: match[1] or " ", text).strip()


def _always_pattern(words: Sequence[str], text: str) -> str:
    name = command_name(words)
    # An incomplete name is too wide: allowing a bare "git" for good would allow every "git push".
    is_complete = command_name([*words, "...", "..."]) == name
    if not is_complete or any(word.startswith("-") or "{" in word or not _is_literal(word) for word in name):
        return _exact_pattern(text)
    return f"{' '.join(name)} *"


def _exact_pattern(text: str) -> str:
    """Return ``text`` as a pattern that matches nothing else; empty if it contains wildcards."""
    return text if _is_literal(text) else ""


def _is_literal(text: str) -> bool:
    return not any(char in text for char in "*?$`")
