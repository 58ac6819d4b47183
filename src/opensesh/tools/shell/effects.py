r"""Effects of a command line, in the terms of permission rules: commands, paths and files written.

A line in which everything is known has a pattern for each command, so that ``git log && curl ... | sh`` does not pass
as a ``git`` command. A command that runs another (``sudo``, ``xargs``, ``bash -c``), or that is spelled so that rules
would not match it (``\rm``, ``/bin/rm``, ``X=1 rm``), contributes both patterns, and the strictest decision counts.

Any other line is uncertain: it has one pattern, which only a rule for everything matches, and the commands that it may
run are compared with the rules that deny. What makes a line certain is a list of what is known (:mod:`.lexer`,
:mod:`.parser` and :mod:`.certainty`), never the absence of something known to be dangerous.

This is a guard rail: it does not know what a program does once it runs. :mod:`.sandbox` does not need to.
"""

from __future__ import annotations

import os
import re
import shutil
from itertools import count, takewhile
from typing import TYPE_CHECKING, NamedTuple

from msgspec.structs import replace

from .certainty import SHELL_CHANGING, line_doubts
from .known_commands import (
    command_name,
    inner_line,
    reads_program_from_input,
    runs_in_same_shell,
    runs_other_commands,
    skip_global_flags,
)
from .lexer import ShellLanguage, Unparsable
from .named_paths import named_paths, possible_paths
from .parser import parse

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from .lexer import ShellCommand, Word

UNCERTAIN = "uncertain: "
"""Prefix of a line that may run more than can be seen, so that no rule for a certain command matches it."""

_SEPARATOR = re.compile(r"[;&|()`<>\"'{}\n=]|\$\(")
_VALUE = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)\+?=(\"[^\"]*\"|'[^']*'|[^\s;&|<>()]*)")
_USE = re.compile(r"\$(?:\{([A-Za-z_][A-Za-z0-9_]*)(?:\[[^\]]*\])?\}|([A-Za-z_][A-Za-z0-9_]*))")
_ESCAPED = re.compile(r"\\(.)", re.DOTALL)
_HARMLESS_OUTPUT = re.compile(r"[0-9]?>&[0-9]|(?:[0-9]|&)?>>?\s*/dev/null\b")
_BLANKS = re.compile(r"""('[^']*'|"(?:\\.|[^"\\])*"|\\[^\n])|(?:[ \t\n]|\\\n)+""", re.DOTALL)
_FILLED_IN = re.compile(r"[*?\[{~=^]")
"""Where a word may become another, or several."""
_MAX_DEPTH = 10
_MAX_POSSIBLE = 2_000
_POSSIBLE_WORDS = 12
"""Words of a command that may be run which are compared with rules."""


class CommandEffects(NamedTuple):
    """Patterns and paths to ask permission for."""

    patterns: list[str]
    """Commands, for ``bash`` rules; at least one."""
    always: list[str]
    """Patterns that a reply of "always" allows."""
    paths: list[str]
    """Absolute paths that the line names, inside the project or not."""
    writes: list[str]
    """Those of ``paths`` that redirections or ``tee`` write."""
    any_path: bool = False
    """Whether it may reach a path that is not among ``paths``."""
    any_write: bool = False
    """Whether it may write a file that is not among ``writes``."""
    possible: tuple[str, ...] = ()
    """Commands that an uncertain line may run; not empty if the line is uncertain."""
    forms: tuple[str, ...] = ()
    """The commands as they are run, with ``*`` for what the shell fills in, where ``patterns`` have them as written."""
    changed: tuple[str, ...] = ()
    """Files that commands such as ``cp`` and ``rm`` change, also those in a folder that they name."""


def analyse_command(
    text: str, directory: str, shell: ShellLanguage = "bash", environment: Mapping[str, str] | None = None
) -> CommandEffects:
    """Return the effects of running ``text`` in ``directory``.

    ``environment`` defaults to that of the process. The shell must run without ``CDPATH`` and ``OLDPWD``: they lead
    ``cd`` to directories that the text does not name.
    """
    environment = os.environ if environment is None else environment
    commands = certain_commands(text, shell, environment)
    if commands is None:
        return _uncertain(text, directory, environment)
    patterns: dict[str, str] = {}
    forms: dict[str, None] = {}
    for command, is_inner in commands:
        forms.update(dict.fromkeys(_forms(command)))
        for pattern, always in _patterns(command, environment.get("PATH", os.defpath)):
            # A user who allows "sudo ls" for good does not thereby allow every "ls".
            patterns[pattern] = _exact_pattern(pattern) if is_inner else always
    if not patterns:  # only cd and assignments; still, no line runs without a question
        patterns[text.strip()] = _exact_pattern(text.strip())
    named = list(named_paths([command for command, _ in commands], directory, environment))
    if shell != "zsh" and any(item.may_connect for item in named):
        return _uncertain(text, directory, environment)
    return CommandEffects(
        list(patterns),
        [pattern for pattern in dict.fromkeys(patterns.values()) if pattern],
        list(dict.fromkeys(item.path for item in named if item.path is not None and not item.is_changed)),
        list(dict.fromkeys(item.path for item in named if item.is_written and item.path is not None)),
        any_path=any(item.path is None for item in named),
        any_write=any(item.path is None and item.is_written for item in named),
        forms=tuple(form for form in forms if "*" in form or form not in patterns),
        changed=tuple(dict.fromkeys(item.path for item in named if item.is_changed and item.path is not None)),
    )


def certain_commands(
    text: str, shell: ShellLanguage, environment: Mapping[str, str]
) -> list[tuple[ShellCommand, bool]] | None:
    """Return the commands that a line runs, each with whether another one runs it; ``None`` if it may run others."""
    if shell == "other":
        return None
    try:
        line = parse(text, shell)
        doubts = list(line.doubts)
        scopes = count(1)
        commands = [pair for command in line.commands for pair in _with_inner(command, scopes, doubts)]
    except Unparsable:
        return None
    if doubts or any(line_doubts([command for command, _ in commands], shell, environment)):
        return None
    return commands


def _uncertain(text: str, directory: str, environment: Mapping[str, str]) -> CommandEffects:
    stripped = text.strip()
    words = [word for fragment in _SEPARATOR.split(text) for word in fragment.split()]
    writes = ">" in _HARMLESS_OUTPUT.sub("", text) or "tee" in words
    return CommandEffects(
        [UNCERTAIN + stripped],
        [],
        list(dict.fromkeys(possible_paths(words, directory, environment))),
        [],
        any_path=writes,
        any_write=writes,
        possible=tuple(_possible_commands(stripped)),
    )


def _possible_commands(text: str) -> list[str]:
    """Return the commands that a line of unknown meaning may run: what follows any of its words, spelled out."""
    values = {"IFS": " "}
    for name, value in _VALUE.findall(text):
        values[name] = values.get(name, "") + value.strip("\"'") if f"{name}+=" in text else value.strip("\"'")
    spelled = _USE.sub(lambda match: values.get(match[1] or match[2], ""), text.replace("\\\n", ""))
    unquoted = re.sub(r"[\"']", "", _ESCAPED.sub(r"\1", spelled))
    possible: dict[str, None] = {text: None}
    for variant in dict.fromkeys((text, spelled, unquoted)):
        for fragment in _SEPARATOR.split(variant):
            words = fragment.split()
            for start in range(len(words)):
                if len(possible) > _MAX_POSSIBLE:
                    return list(possible)
                rest = words[start + 1 : start + _POSSIBLE_WORDS]
                word = words[start]
                plain = re.sub(r"\[(.)\]", r"\1", word)  # what /bin/r[m] stands for
                names = dict.fromkeys((word, os.path.basename(word), os.path.basename(plain), *word.split(",")))
                possible.update((" ".join((name, *rest)), None) for name in names)
    return list(possible)


def _with_inner(
    command: ShellCommand, scopes: Iterator[int], doubts: list[str], depth: int = 0
) -> Iterator[tuple[ShellCommand, bool]]:
    """Yield ``command`` and the commands that it runs, each with whether it is one of the latter; add to ``doubts``."""
    if depth > _MAX_DEPTH:
        raise Unparsable("commands that run commands, nested too deeply")
    yield command, depth > 0
    scope: tuple[int, ...] | None = None
    line = inner_line(command)
    doubts += line.doubts
    for inner in line.commands:
        if scope is None:
            # Negative numbers do not collide with the parser's.
            same_shell = runs_in_same_shell(command.words[0].value)
            scope = command.scope if same_shell else (*command.scope, -next(scopes))
        scoped = replace(inner, scope=scope + inner.scope, loops=command.loops + inner.loops)
        yield from _with_inner(scoped, scopes, doubts, depth + 1)


def _patterns(command: ShellCommand, search_path: str) -> Iterator[tuple[str, str]]:
    """Yield the patterns of a command, each with the pattern that "always" allows, if any."""
    if not command.words:
        if any(redirect.writes for redirect in command.redirects):
            yield command.text, _exact_pattern(command.text)
        return
    name = command.words[0].value
    if name == "cd" and not command.assignments:
        return
    if reads_program_from_input(command):
        yield from ((pattern, "") for pattern, _ in _spellings(command, search_path))
    elif name in SHELL_CHANGING or runs_other_commands(name) or inner_line(command).commands:
        yield from ((pattern, _exact_pattern(pattern)) for pattern, _ in _spellings(command, search_path))
    else:
        yield from _spellings(command, search_path)


def _forms(command: ShellCommand) -> Iterator[str]:
    """Yield the command as it is run, under each of its names, with ``*`` for what is not known before."""
    words = [_form(word) for word in command.words]
    if not words:
        return
    if os.path.basename(words[0]) == "xargs":  # it adds words from its input
        yield from (f"{form} *" for inner in inner_line(command).commands for form in _forms(inner))
    rests = [words[1:]]
    name = os.path.basename(words[0])
    if rest := skip_global_flags(words[0], words[1:]):
        # A flag that is not known may take the next word, and a value without quotes may be several words.
        flags = zip(words[1 : len(words) - len(rest)], command.words[1:], strict=False)
        is_open = any(form.endswith("*") and not word.text.startswith('"') for form, word in flags)
        rests += [rest, *([rest[1:]] if rest[1:] else []), *([["*", *rest]] if is_open else [])]
    for rest in rests:
        yield " ".join((name, *rest))
    if name != words[0]:
        yield " ".join(words)


def _form(word: Word) -> str:
    """Return what a word becomes, up to the first thing that the shell fills in."""
    if word.literal:
        return word.value
    same = takewhile(lambda pair: pair[0] == pair[1], zip(word.value, word.bare, strict=False))
    known = "".join(char for char, _ in same)
    return f"{_FILLED_IN.split(known, maxsplit=1)[0]}*"


def _spellings(command: ShellCommand, search_path: str) -> Iterator[tuple[str, str]]:
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
    base = os.path.basename(first.value)
    if base != first.value:
        pattern = " ".join((base, *arguments))
        # A user who allows a project's ./rm for good does not thereby allow every "rm".
        other = shutil.which(base, path=search_path)
        is_same = other is None or os.path.realpath(other) == os.path.realpath(first.value)
        yield pattern, _always_pattern([base, *words[1:]], pattern) if is_same else _exact_pattern(pattern)
    unquoted = [word.value if word.value.startswith("-") else word.text for word in command.words[1:]]
    for variant in (unquoted if unquoted != arguments else [], skip_global_flags(words[0], unquoted)):
        if variant:
            pattern = " ".join((os.path.basename(words[0]), *variant))
            yield pattern, _exact_pattern(pattern)


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
