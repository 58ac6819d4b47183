"""Which files a command line names, from whichever directory ``cd`` has led to by then."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING

from .words import alternatives

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from .command import Command

FILE_COMMANDS = frozenset(
    "cat cd chgrp chmod chown cp ln mkdir mv pushd rm rmdir shred tee touch truncate unlink".split()
)
"""Commands whose arguments are files."""

_DEVICES = re.compile(r"/dev/(?:null|zero|u?random|tty|full|std(?:in|out|err)|fd/\d+)")
_HOME = re.compile(r"\$HOME\b|\$\{HOME\}")
_PWD = re.compile(r"\$PWD\b|\$\{PWD\}")
_UNKNOWN = re.compile(r"[$`]")
_DRIVE = re.compile(r"^/([A-Za-z])(?=/|$)")

_Scope = tuple[int, ...]


def named_paths(commands: Iterable[Command], directory: str) -> Iterator[tuple[str, bool]]:
    """The files that ``commands`` name, absolute, and whether they are written by redirection or ``tee``."""
    places: dict[_Scope, list[str]] = {(): [directory]}
    for command in commands:
        here = _inherited(places, command.scope)
        words = [word.value for word in command.words]
        name = os.path.basename(words[0]) if words else ""
        given = list(_arguments(words[1:])) if name in FILE_COMMANDS else []
        if name in ("cd", "pushd") and len(words) == 1:
            given = ["~"]
        for path in given:
            yield from ((found, name == "tee") for found in _from(here, path))
        for redirect in command.redirects:
            if redirect.writes or redirect.operator == "<":
                yield from ((found, redirect.writes) for found in _from(here, redirect.target.value))
        if name in ("cd", "pushd") and given:
            places[command.scope] = _after(here, given[0])


def resolve(path: str, directory: str) -> str:
    """An absolute path, ``..`` and all; of one with expansions, as much as can be known; empty if that is nothing."""
    path = _HOME.sub(lambda _: os.path.expanduser("~"), path)
    path = os.path.expanduser(_PWD.sub(lambda _: directory, path))
    unknown = _UNKNOWN.search(path)
    if unknown:
        path = path[: path.rfind("/", 0, unknown.start()) + 1]
        if not path:
            return ""
    if os.name == "nt":
        path = _DRIVE.sub(r"\1:", path)
    return os.path.join(directory, path)


def _inherited(places: dict[_Scope, list[str]], scope: _Scope) -> list[str]:
    while scope not in places:
        scope = scope[:-1]
    return places[scope]


def _from(directories: Sequence[str], word: str) -> Iterator[str]:
    for path in alternatives(word):
        if not _DEVICES.fullmatch(path):
            for found in filter(None, (resolve(path, directory) for directory in directories)):
                lexical, physical = os.path.normpath(found), os.path.realpath(found)
                # "link/.." is here to cd, and beside the link's target to everyone else.
                yield lexical
                if physical != os.path.realpath(lexical):
                    yield physical


def _after(directories: list[str], target: str) -> list[str]:
    """Where one may be after ``cd target``. If it is not sure to succeed, also where one was."""
    reached = list(_from(directories, target))
    if reached and all(os.path.isdir(path) for path in reached):
        return reached
    return list(dict.fromkeys([*directories, *reached]))


def _arguments(words: Sequence[str]) -> Iterator[str]:
    """The words that may be paths: all that are no flags, and what flags are set to."""
    only_paths = False
    for word in words:
        if only_paths or not word.startswith("-"):
            yield word
        elif word == "--":
            only_paths = True
        elif "=" in word:
            yield word.partition("=")[2]
