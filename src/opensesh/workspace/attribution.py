"""Which of the files that changed while a command ran, the command changed: as far as its text or a record shows it.

Snapshots and stats show what changed meanwhile, not who changed it: an editor, a build or another session may have
been at work too. A file counts as changed by the session if the command line names it as a target (a redirection, or an
argument of a command that changes the files it is given), or if an argument of any other tool is its path. All other
changes are unattributed, and a revert leaves them alone unless it is asked to include them.
"""

from __future__ import annotations

import os
import re
import shlex
from bisect import bisect_left
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, NamedTuple
from unicodedata import normalize

from ..records import object_at

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from ..records import Document

_ALL_ARGUMENTS = frozenset(
    "chgrp chmod chown install ln mkdir mv patch rm rmdir shred tee touch truncate unlink".split()
)
"""Commands that change or remove all files that their arguments name."""
_LAST_ARGUMENT = frozenset(("cp", "rsync", "scp"))
_IN_PLACE = frozenset(("perl", "sed"))
_GIT = frozenset("apply checkout mv restore rm".split())
_PREFIXES = frozenset("! builtin command do doas else env exec nice nohup sudo then time { (".split())
_SHELLS = frozenset("bash dash ksh sh zsh".split())
_ASSIGNMENT = re.compile(r"[A-Za-z_]\w*\+?=")
_HERE_DOCUMENT = re.compile(r"<<-?[ \t]*(['\"]?)(\w+)\1")
_GLOB = re.compile(r"[*?\[]")
_MAX_NESTING = 3
_MAX_CHARACTERS = 200_000
"""Of a command line. Linux runs none of more than 131,072, and shlex takes quadratic time for a long word."""


class CallTarget(NamedTuple):
    """A path that a call says it changes."""

    path: str
    """Absolute; may be a glob pattern."""
    below: bool = False
    """Whether everything in it counts, if it is a folder."""

    def covers(self, path: str) -> bool:
        """Return whether a change of ``path`` can be explained by this target."""
        target, path = comparable(self.path), comparable(path)
        if _GLOB.search(target):
            return fnmatchcase(path, target) or (self.below and fnmatchcase(path, f"{target}/*"))
        return path == target or (self.below and path.startswith(target.rstrip("/") + "/"))


def comparable(path: str) -> str:
    """Normalise a path for disks that ignore case or the composition of characters."""
    return normalize("NFC", path).casefold()


def call_targets(part: Document, directory: str) -> Iterator[CallTarget]:
    """Yield the paths that a tool call says it changes, apart from the edits that it recorded."""
    arguments = object_at(part, "state", "input")
    if part.get("tool") != "bash":
        for value in arguments.values():
            if isinstance(value, str) and value and "\n" not in value:
                yield CallTarget(os.path.normpath(os.path.join(directory, value)))
        return
    folder = arguments.get("workdir")
    where = os.path.join(directory, folder) if isinstance(folder, str) else directory
    yield from command_targets(str(arguments.get("command", "")), where)


def command_targets(text: str, directory: str, *, depth: int = 0) -> Iterator[CallTarget]:
    """Yield the paths that a command line says it changes, with both names of a path that leads through a link."""
    if len(text) > _MAX_CHARACTERS:
        return
    for words in _commands(_without_here_documents(text)):
        written = [words[at + 1] for at, word in enumerate(words[:-1]) if _is_output(word)]
        plain = [
            word for at, word in enumerate(words) if not _is_operator(word) and not (at and _is_output(words[at - 1]))
        ]
        while plain and (plain[0] in _PREFIXES or _ASSIGNMENT.match(plain[0])):
            del plain[0]
        name = os.path.basename(plain[0]) if plain else ""
        if name == "cd" and len(plain) > 1:
            directory = os.path.join(directory, os.path.expanduser(plain[1]))
        if name in _SHELLS and "-c" in plain[:-1] and depth < _MAX_NESTING:
            yield from command_targets(plain[plain.index("-c") + 1], directory, depth=depth + 1)
        for word, below in [(word, False) for word in written] + [(word, True) for word in _changed_arguments(plain)]:
            if not word.isdigit() and not any(mark in word for mark in "$`"):
                path = os.path.normpath(os.path.join(directory, os.path.expanduser(word)))
                yield CallTarget(path, below)
                if os.path.realpath(path) != path:
                    yield CallTarget(os.path.realpath(path), below)


def _without_here_documents(text: str) -> str:
    """Return a command line without its here-documents: their operators, texts and ends."""
    if "<<" not in text:
        return text
    lines = text.split("\n")
    places: dict[str, list[int]] = {}
    for number, line in enumerate(lines):
        places.setdefault(line.lstrip(" \t"), []).append(number)
    kept: list[str] = []
    after = 0
    for number, line in enumerate(lines):
        if number < after:
            continue
        after = number + 1
        copied = 0
        for operator in _HERE_DOCUMENT.finditer(line):
            ends = places.get(operator[2], [])
            at = bisect_left(ends, after)
            if at < len(ends):  # otherwise it is a shift, or a here-string
                after = ends[at] + 1
                kept.append(line[copied : operator.start()])
                copied = operator.end()
        kept.append(line[copied:] + "\n")
    return "".join(kept)


def _commands(text: str) -> Iterator[list[str]]:
    """Yield the words of each simple command, operators included. A line that cannot be split has none."""
    lexer = shlex.shlex(text.replace("\\\n", " "), posix=True, punctuation_chars="();<>|&\n")
    lexer.whitespace, lexer.whitespace_split, lexer.commenters = " \t\r", True, ""
    words: list[str] = []
    try:
        for word in lexer:
            if _is_operator(word) and not _is_output(word) and "<" not in word:
                yield words
                words = []
            else:
                words.append(word)
    except ValueError:
        return
    yield words


def _is_operator(word: str) -> bool:
    return bool(word) and all(letter in "();<>|&\n" for letter in word)


def _is_output(word: str) -> bool:
    return _is_operator(word) and ">" in word and "(" not in word


def _changed_arguments(words: Sequence[str]) -> Iterable[str]:
    """Return the arguments that a command changes."""
    name = os.path.basename(words[0]) if words else ""
    arguments = [word for word in words[1:] if not word.startswith("-")]
    if name in _ALL_ARGUMENTS:
        return arguments
    if name in _LAST_ARGUMENT:
        return arguments[-1:]
    if name in _IN_PLACE and any(word.startswith("-") and "i" in word for word in words[1:]):
        return arguments
    if name == "git" and arguments and arguments[0] in _GIT:
        return arguments[1:]
    if name == "dd":
        return [word.removeprefix("of=") for word in arguments if word.startswith("of=")]
    return ()
