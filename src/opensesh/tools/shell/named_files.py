"""Which files a command line names, from whichever directory ``cd`` has led to by then.

What is known is put in the place of variables: what the line itself sets them to, and what the environment does.
"""

from __future__ import annotations

import os
import re
from itertools import islice
from typing import TYPE_CHECKING, NamedTuple

from .file_patterns import through_links
from .words import alternatives

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from .command import ShellCommand

FILE_COMMANDS = frozenset(
    "cat cd chgrp chmod chown cp dd install ln mkdir mv pushd rm rmdir rsync shred tee touch truncate unlink".split()
)
"""Commands whose arguments are files."""

_SETTING = frozenset("declare export local readonly typeset".split())
_DEVICES = re.compile(r"/dev/(?:null|zero|u?random|tty|full|std(?:in|out|err)|fd/\d+)")
_PWD = re.compile(r"\$\(\s*pwd\s*\)|`\s*pwd\s*`")
_VARIABLE = re.compile(r"\$(?:(\w+)|\{(\w+)\})")
_ASSIGNED = re.compile(r"(\w+)\+?=(.*)", re.DOTALL)
_BEEN = re.compile(r"~(?:[+-]?\d+|[+-])(?=/|$)")
"""A directory that the shell is or was in: ``~+``, ``~-``, ``~2``."""
_ATTACHED = re.compile(r"-[A-Za-z]+([/.~$].*)", re.DOTALL)
_UNKNOWN = re.compile(r"[$`]")
_DRIVE = re.compile(r"^/([A-Za-z])(?=/|$)")
_LEADS_AWAY = re.compile(r"[/~$*]|\.\.")
_MOST_VALUES = 1_000
_DEEPEST = 4

_Scope = tuple[int, ...]


class _Place(NamedTuple):
    """Where a shell may be, and where it has been."""

    here: list[str]
    been: list[str]

    def moved(self, here: Iterable[str]) -> _Place:
        now = list(dict.fromkeys(here))
        return _Place(now, list(dict.fromkeys([*self.been, *now])))


def named_paths(
    commands: Iterable[ShellCommand], directory: str, environment: Mapping[str, str]
) -> Iterator[tuple[str, bool]]:
    """The files that ``commands`` name, absolute, and whether they are written by redirection or ``tee``."""
    places: dict[_Scope, _Place] = {(): _Place([directory], [directory])}
    variables = _Variables(environment)
    for command in commands:
        place = _inherited(places, command.scope)
        variables.take(command)
        words = [word.value for word in command.words]
        name = os.path.basename(words[0]) if words else ""
        given = _operands(name, words[1:])
        for path in given:
            yield from ((found, name == "tee") for found in _from(place, path, variables))
        for redirect in command.redirects:
            if redirect.writes or redirect.operator == "<":
                target = redirect.target.value
                yield from ((found, redirect.writes) for found in _from(place, target, variables))
        if name in ("cd", "popd", "pushd"):
            places[command.scope] = _after(place, given[:1], variables)


def possible_paths(words: Iterable[str], directory: str, environment: Mapping[str, str]) -> Iterator[str]:
    """The files that words of no known meaning may name, or be set to."""
    place, variables = _Place([directory], [directory]), _Variables(environment)
    for word in words:
        for each in dict.fromkeys((word, word.partition("=")[2])):
            yield from _from(place, each, variables) if each else ()


def _resolve(path: str, directory: str) -> str:
    """An absolute path, ``..`` and all; of one with expansions, as much as can be known; empty if that is nothing."""
    path = os.path.expanduser(path)
    unknown = _UNKNOWN.search(path)
    if unknown:
        path = path[: path.rfind("/", 0, unknown.start()) + 1]
        if not path:
            return ""
    if os.name == "nt":
        path = _DRIVE.sub(r"\1:", path)
    return os.path.join(directory, path)


class _Variables:
    """What variables may hold by the time they are used."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self._environment = environment
        self._set: dict[str, dict[str, None]] = {}

    def take(self, command: ShellCommand) -> None:
        """What a command, or a loop around it, sets."""
        setting = command.words[0].value in _SETTING if command.words else False
        told = (*command.loops, *command.assignments, *(command.words[1:] if setting else ()))
        for found in filter(None, (_ASSIGNED.fullmatch(word.value) for word in told)):
            self._set.setdefault(found[1], {})[found[2]] = None

    def values(self, path: str, place: _Place) -> list[str]:
        """``path`` with whatever its variables may hold in their place; itself if nothing is known of them.

        Where there are too many, those that lead nowhere in particular are left out first.
        """
        return list(dict.fromkeys(islice(self._filled(path, place), _MOST_VALUES)))

    def _filled(self, path: str, place: _Place, depth: int = 0) -> Iterator[str]:
        found = next((each for each in _VARIABLE.finditer(path) if self._known(each[1] or each[2], place)), None)
        if found is None or depth > _DEEPEST:
            yield path
            return
        known = self._known(found[1] or found[2], place)
        for value in sorted(known, key=lambda each: not _LEADS_AWAY.search(each)):
            yield from self._filled(path[: found.start()] + value + path[found.end() :], place, depth + 1)

    def _known(self, name: str, place: _Place) -> list[str]:
        match name:
            case "PWD":
                return place.here
            case "OLDPWD":
                return place.been
            case _:
                inherited = self._environment.get(name)
                # One that holds itself is longer than it was, and leads to the same places.
                stated = [value for value in self._set.get(name, ()) if f"${name}" not in value]
                return [*stated, *([inherited] if inherited and "$" not in inherited else [])]


def _inherited(places: dict[_Scope, _Place], scope: _Scope) -> _Place:
    while scope not in places:
        scope = scope[:-1]
    return places[scope]


def _from(place: _Place, word: str, variables: _Variables) -> Iterator[str]:
    for spelled in alternatives(_PWD.sub("$PWD", word)):
        for path in variables.values(spelled, place):
            been = _BEEN.match(path)
            directories = place.been if been and been[0] != "~+" else place.here
            if not _DEVICES.fullmatch(path):
                yield from _absolute(f".{path[been.end() :]}" if been else path, directories)


def _absolute(path: str, directories: Sequence[str]) -> Iterator[str]:
    for found in filter(None, (_resolve(path, directory) for directory in directories)):
        lexical, physical = os.path.normpath(found), os.path.realpath(found)
        # "link/.." is here to cd, and beside the link's target to everyone else.
        yield lexical
        if physical != os.path.realpath(lexical):
            yield physical
        yield from through_links(found)


def _after(place: _Place, target: Sequence[str], variables: _Variables) -> _Place:
    """Where one may be after ``cd target``. If it is not sure to succeed, also where one was; without a target,
    somewhere one has been."""
    if not target:
        return place.moved(place.been)
    reached = list(_from(place, target[0], variables))
    if reached and all(os.path.isdir(path) for path in reached):
        return place.moved(reached)
    return place.moved([*place.here, *reached])


def _operands(name: str, words: Sequence[str]) -> list[str]:
    """The files among the words behind a command's name."""
    if name not in FILE_COMMANDS:
        return []
    given = list(_arguments(words))
    if name == "cd" and not given and "-" not in words:
        return ["~"]
    if name == "pushd":
        return [each for each in given if not each.startswith("+")]
    return [each.partition("=")[2] or each for each in given] if name == "dd" else given


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
        elif attached := _ATTACHED.fullmatch(word):
            yield attached[1]
