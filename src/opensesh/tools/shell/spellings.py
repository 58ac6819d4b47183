"""The names under which permission rules may know a command, however it is spelled."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING

from .arity import after_flags, prefix
from .command import TELLING
from .words import alternatives
from .wrapped import inner_commands, is_told_elsewhere, runs_others

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from .command import ShellCommand

_BLANKS = re.compile(r"""('[^']*'|"(?:\\.|[^"\\])*"|\\[^\n])|(?:[ \t\n]|\\\n)+""", re.DOTALL)


def patterns(command: ShellCommand) -> Iterator[tuple[str, str]]:
    """The names of a command, each with the pattern that allows it for good, if any."""
    yield from ((word.text, "") for word in command.loops if TELLING.match(word.text))
    if not command.words:
        told = any(TELLING.match(word.text) for word in command.assignments)
        if told or any(redirect.writes for redirect in command.redirects):
            yield command.text, exactly(command.text)
        return
    if command.words[0].value == "cd" and not command.assignments:
        return
    if is_told_elsewhere(command):
        yield from ((pattern, "") for pattern, _ in _names(command))
    elif runs_others(command.words[0].value) or any(inner_commands(command)):
        yield from ((pattern, exactly(pattern)) for pattern, _ in _names(command))
    else:
        yield from _names(command)


def _names(command: ShellCommand) -> Iterator[tuple[str, str]]:
    first, words = command.words[0], [word.value for word in command.words]
    named = prefix(words)
    canonical = " ".join((*named, _after_name(command, len(named)))).strip()
    if _folded(command.text) != canonical:
        yield command.text, exactly(command.text)
    yield canonical, _for_good(words, canonical)
    behind = [word.text for word in command.words[1:]]
    for name in _other_names(first.value, first.bare):
        pattern = " ".join((name, *behind))
        yield pattern, _for_good([name, *words[1:]], pattern)
    plain = [word.value if word.value.startswith("-") else word.text for word in command.words[1:]]
    for rest in (plain if plain != behind else [], after_flags(words[0], plain)):
        if rest:
            pattern = " ".join((os.path.basename(words[0]), *rest))
            yield pattern, exactly(pattern)
    if not first.bare and len(words) > 1:  # an expansion that may be nothing, and then the next word is the command
        yield " ".join(behind), ""


def _after_name(command: ShellCommand, count: int) -> str:
    """The text of the command behind its name, as it is written, but for blanks."""
    rest = command.text
    for word in (*command.assignments, *command.words[:count]):
        rest = rest[rest.find(word.text) + len(word.text) :]
    return _folded(rest)


def _folded(text: str) -> str:
    """``text`` with one space for all blanks in a row that are not quoted."""
    return _BLANKS.sub(lambda found: found[1] or " ", text).strip()


def _other_names(value: str, bare: str) -> list[str]:
    first = next(filter(None, alternatives(bare)), "")
    return sorted({bare, first, os.path.basename(first)} - {value, ""})


def _for_good(words: Sequence[str], text: str) -> str:
    named = prefix(words)
    # Less than a name says nothing: whoever allows a bare "git" does not mean every "git push".
    whole = prefix([*words, "...", "..."]) == named
    if not whole or any(word.startswith("-") or "{" in word or not _is_literal(word) for word in named):
        return exactly(text)
    return f"{' '.join(named)} *"


def exactly(text: str) -> str:
    """``text`` as a pattern that matches nothing else; none if it holds what a pattern would take for a wildcard."""
    return text if _is_literal(text) else ""


def _is_literal(text: str) -> bool:
    return not any(char in text for char in "*?$`")
