"""Commands that run other commands: ``sudo``, ``env``, ``xargs``, ``bash -c``, ``find -exec`` and their like."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from .command import Command
from .syntax import parse

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from .words import Word

_PREFIXES: dict[str, str] = {
    "builtin": "",
    "chroot": "",
    "command": "",
    "doas": "Cu",
    "env": "CSu",
    "exec": "a",
    "flock": "Ew",
    "ionice": "cnp",
    "nice": "n",
    "noglob": "",
    "nocorrect": "",
    "nohup": "",
    "parallel": "jINnaS",
    "repeat": "",
    "setsid": "",
    "stdbuf": "eio",
    "sudo": "CghprTtuUD",
    "time": "fo",
    "timeout": "ks",
    "unbuffer": "",
    "watch": "nq",
    "xargs": "adEIiLlnPs",
}
"""Commands whose arguments are a command, and which of their flags take the next word."""

_FIRST_IS_OWN = frozenset(("timeout", "chroot", "flock", "repeat"))
"""Those whose first argument is for themselves."""

_SHELLS = frozenset(("ash", "bash", "dash", "ksh", "mksh", "sh", "zsh"))
_EXECUTORS = frozenset(("-exec", "-execdir", "-ok", "-okdir"))


def runs_others(name: str) -> bool:
    """Whether a command of this name runs whatever it is told to, so that its name alone says nothing."""
    plain = os.path.basename(name)
    return plain in _PREFIXES or plain in _SHELLS or plain in ("eval", "trap")


def inner_commands(command: Command) -> Iterator[Command]:
    """The commands that ``command`` itself would run, as far as its words say so; or :class:`Unparsable`."""
    if not command.words:
        return
    name = os.path.basename(command.words[0].value)
    words = command.words[1:]
    if name in _PREFIXES:
        yield from _after_flags(name, words)
    elif name in _SHELLS:
        yield from parse(_shell_text(words))
    elif name == "eval":
        yield from parse(" ".join(word.value for word in words))
    elif name == "trap" and words:
        yield from parse(words[0].value)
    elif name == "find":
        yield from _executed(words)


def _after_flags(name: str, words: Sequence[Word]) -> Iterator[Command]:
    takes_value = _PREFIXES[name]
    index = 0
    while index < len(words) and words[index].value.startswith("-"):
        flag = words[index].value
        index += 1
        if flag == "--":
            break
        if len(flag) == 2 and flag[1] in takes_value:
            index += 1
    if name in _FIRST_IS_OWN:
        index += 1
    while index < len(words) and name in ("env", "sudo", "doas") and "=" in words[index].value:
        index += 1
    yield from _of_words(words[index:])


def _of_words(words: Sequence[Word]) -> Iterator[Command]:
    if words:
        yield Command(text=" ".join(word.text for word in words), words=tuple(words))


def _shell_text(words: Sequence[Word]) -> str:
    """What follows ``-c``, alone or at the end of other letters."""
    for place, word in enumerate(words[:-1]):
        if word.value.startswith("-") and not word.value.startswith("--") and word.value.endswith("c"):
            return words[place + 1].value
    return ""


def _executed(words: Sequence[Word]) -> Iterator[Command]:
    start: int | None = None
    for place, word in enumerate(words):
        if word.value in _EXECUTORS:
            start = place + 1
        elif start is not None and word.value in (";", "+"):
            yield from _of_words(words[start:place])
            start = None
    if start is not None:
        yield from _of_words(words[start:])
