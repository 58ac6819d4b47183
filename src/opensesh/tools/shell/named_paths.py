"""Paths that a command line names, relative to the directory that ``cd`` has led to by then.

Variables are replaced by their known values: those that the line itself sets and those of the environment. A file that
is written, or a directory that the shell changes to, may be any if the text does not tell which.
"""

from __future__ import annotations

import os
import re
from fnmatch import fnmatchcase
from itertools import islice
from typing import TYPE_CHECKING, NamedTuple

from .lexer import brace_alternatives

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from .lexer import ShellCommand, Word

FILE_COMMANDS = frozenset(
    "cat cd chgrp chmod chown cp dd install ln mkdir mv pushd rm rmdir rsync shred tee touch truncate unlink".split()
)
"""Commands whose arguments are files."""
_CHANGING_ALL = frozenset("mkdir rm rmdir shred touch truncate unlink".split())
_CHANGING_LAST = frozenset("cp install ln mv rsync".split())
"""And, of ``mv``, the others as well."""

_ASSIGNING_COMMANDS = frozenset("declare export local readonly typeset".split())
_DEVICES = re.compile(r"/dev/(?:null|zero|u?random|tty|full|std(?:in|out|err)|fd/\d+)")
_DESCRIPTORS = re.compile(r"/dev/(?:std(?:in|out|err)|fd/\d+)")
"""Names of what the command has open. To write one opens the file again, even if it was open for reading only."""
_CONNECTIONS = ("/dev/tcp/", "/dev/udp/")
_PWD = re.compile(r"\$\(\s*pwd\s*\)|`\s*pwd\s*`")
_VARIABLE = re.compile(r"\$(?:([A-Za-z_][A-Za-z0-9_]*)|\{([A-Za-z_][A-Za-z0-9_]*)\})")
_ASSIGNMENT = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)(\+?)=(.*)", re.DOTALL)
_VISITED = re.compile(r"~(?:[+-]?\d+|[+-])(?=/|$)")
"""A directory that the shell is or was in: ``~+``, ``~-``, ``~2``."""
_ATTACHED_PATH = re.compile(r"-[A-Za-z]+([/.~$].*)", re.DOTALL)
_TARGET_FLAG = re.compile(r"-[A-Za-su-z]*t(.*)", re.DOTALL)
"""``-t DIRECTORY``, ``-tDIRECTORY`` and, after other flags, ``-vtDIRECTORY``."""
_UNKNOWN = re.compile(r"[$`]")
_SEVERAL = re.compile(r"[$`*?\[{]")
"""What makes a word stand for another name, or for several."""
_DRIVE = re.compile(r"^/([A-Za-z])(?=/|$)")
_LEADS_ELSEWHERE = re.compile(r"[/~$*]|\.\.")
_WILDCARD = re.compile(r"[*?\[]")
_UNKNOWN_VALUE = "`"
"""Stands for a value that the text does not tell."""
_MAX_VALUES = 1_000
_MAX_DEPTH = 4
_MAX_PLACES = 12
"""Directories that a shell may be in; with more, it may be in any."""
_MAX_PATTERN = 500
"""Length of a pattern; a longer one, which takes long to match, may match everything."""
_MAX_DIRECTORIES = 500
"""Directories searched for each component of a wildcard path."""

_Scope = tuple[int, ...]


class NamedPath(NamedTuple):
    """A path that a command line names."""

    path: str | None
    """``None`` is any path: of a file that is written, or read by a redirection, or of a directory changed to."""
    is_written: bool = False
    """Whether a redirection or ``tee`` writes it."""
    is_changed: bool = False
    """Whether a command such as ``cp`` or ``rm`` changes it."""
    may_connect: bool = False
    """Whether it may be a name of a redirection that some shells take for a network address."""


class _Target(NamedTuple):
    """A word that names a file."""

    word: str
    is_written: bool = False
    is_changed: bool = False
    is_redirected: bool = False


class _ShellDirectories(NamedTuple):
    """Directories that a shell may be in, and that it may have been in."""

    current: list[str]
    visited: list[str]
    unknown: bool = False
    """Whether it may be in any directory."""

    def moved(self, current: Iterable[str], *, unknown: bool) -> _ShellDirectories:
        now = list(dict.fromkeys(current))
        visited = list(dict.fromkeys([*self.visited, *now]))
        unknown = self.unknown or unknown or len(visited) > _MAX_PLACES
        return _ShellDirectories(now[:_MAX_PLACES], visited[:_MAX_PLACES], unknown)


def named_paths(
    commands: Iterable[ShellCommand], directory: str, environment: Mapping[str, str]
) -> Iterator[NamedPath]:
    """Yield the absolute paths that ``commands`` name."""
    by_scope: dict[_Scope, _ShellDirectories] = {(): _ShellDirectories([directory], [directory])}
    variables = _ShellVariables(environment)
    inputs: list[NamedPath] = []
    opened_again: list[_Target] = []
    for command in commands:
        scope = command.scope
        while scope not in by_scope:  # a subshell starts where the outer shell is
            scope = scope[:-1]
        directories = by_scope[scope]
        variables.assign(command)
        words = [word.value for word in command.words]
        name = os.path.basename(words[0]) if words else ""
        operands = _path_operands(name, words[1:])
        for target in _targets(command, name, operands):
            named = list(_named(target, directories, variables))
            yield from named
            if (target.is_written or target.is_changed) and _is_descriptor(target.word, directories, variables):
                opened_again.append(target)
            elif target.is_redirected and not target.is_written:
                inputs += named
        if name in ("cd", "popd", "pushd"):
            unknown = any(_is_unknown(operand, directories, variables) for operand in operands)
            by_scope[command.scope] = _after_cd(directories, operands[:1], variables, unknown=unknown)
            if unknown:
                yield NamedPath(None)
    for target in opened_again:
        for item in inputs:
            yield item._replace(is_written=target.is_written, is_changed=target.is_changed)


def _targets(command: ShellCommand, name: str, operands: Sequence[str]) -> Iterator[_Target]:
    """Yield the words of a command that name files."""
    for operand in operands:
        yield _Target(operand, is_written=name == "tee")
    for redirect in command.redirects:
        if redirect.writes or redirect.operator == "<":
            yield _Target(redirect.target.value, is_written=redirect.writes, is_redirected=True)
    for operand in _changed_operands(name, [word.value for word in command.words[1:]], operands):
        yield _Target(operand, is_changed=True)


def _named(target: _Target, directories: _ShellDirectories, variables: _ShellVariables) -> Iterator[NamedPath]:
    """Yield the paths that a word may stand for."""
    for path in _expand(target.word, directories, variables):
        yield NamedPath(path, target.is_written, target.is_changed)
    if (target.is_written or target.is_redirected) and _is_unknown(target.word, directories, variables):
        yield NamedPath(None, target.is_written)
    if target.is_redirected and _may_connect(target.word, directories, variables):
        yield NamedPath(None, target.is_written, may_connect=True)


def possible_paths(words: Iterable[str], directory: str, environment: Mapping[str, str]) -> Iterator[str]:
    """Yield the paths that words of unknown meaning may name or be set to."""
    directories, variables = _ShellDirectories([directory], [directory]), _ShellVariables(environment)
    for word in words:
        for text in dict.fromkeys((word, word.partition("=")[2])):
            yield from _expand(text, directories, variables) if text else ()


def _is_unknown(target: str, directories: _ShellDirectories, variables: _ShellVariables) -> bool:
    """Return whether a word may stand for any path, as far as is known here."""
    paths = variables.substitute(_PWD.sub("$PWD", target), directories)
    return (directories.unknown and not target.startswith("/")) or any(map(_SEVERAL.search, paths))


def _may_connect(target: str, directories: _ShellDirectories, variables: _ShellVariables) -> bool:
    """Return whether a redirection may be to ``/dev/tcp/HOST/PORT``, for which bash and ksh open a connection."""
    for path in variables.substitute(_PWD.sub("$PWD", target), directories):
        known = _UNKNOWN.split(path, maxsplit=1)[0]
        is_whole = known == path
        if any(known.startswith(name) or (not is_whole and name.startswith(known)) for name in _CONNECTIONS):
            return True
    return False


def _is_descriptor(target: str, directories: _ShellDirectories, variables: _ShellVariables) -> bool:
    """Return whether a word may name what the command has open."""
    words = brace_alternatives(target)
    return any(_DESCRIPTORS.fullmatch(path) for word in words for path in variables.substitute(word, directories))


class _ShellVariables:
    """Values that variables may have when they are used."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self._environment = environment
        self._assigned: dict[str, dict[str, None]] = {}
        self._certain: set[str] = set()
        """Variables whose assignment is certainly carried out."""
        self._in_loops: set[str] = set()
        self._loops: tuple[Word, ...] = ()
        """Those of the last command."""

    def assign(self, command: ShellCommand) -> None:
        """Record what a command, or a loop around it, assigns."""
        name = command.words[0].value if command.words else ""
        arguments = command.words[1:]
        loops, self._loops = () if command.loops is self._loops else command.loops, command.loops
        own_words = (*command.assignments, *(arguments if name in _ASSIGNING_COMMANDS else ()))
        for match in filter(None, (_ASSIGNMENT.fullmatch(word.value) for word in (*loops, *own_words))):
            # What is appended, or set for one command only, leads to a value that is not known here.
            is_known = match[2] == "" and not (name and any(word.value == match[0] for word in command.assignments))
            self._assigned.setdefault(match[1], {})[match[3] if is_known else _UNKNOWN_VALUE] = None
        if command.unconditional and not command.scope:
            own = (_ASSIGNMENT.fullmatch(word.value) for word in own_words)
            self._certain.update(match[1] for match in own if match)
        if name == "read":
            for word in arguments:
                self._assigned.setdefault(word.value, {})[_UNKNOWN_VALUE] = None
        self._in_loops = set(command.loop_variables)

    def substitute(self, path: str, directories: _ShellDirectories) -> list[str]:
        """Return ``path`` with all possible values of its variables; unchanged if none is known.

        If there are too many, values without a path in them are dropped first.
        """
        return list(dict.fromkeys(islice(self._substituted(path, directories), _MAX_VALUES)))

    def _substituted(self, path: str, directories: _ShellDirectories, depth: int = 0) -> Iterator[str]:
        for match in _VARIABLE.finditer(path) if depth <= _MAX_DEPTH else ():
            values = self._values(match[1] or match[2], directories)
            if values:
                for value in sorted(values, key=lambda value: not _LEADS_ELSEWHERE.search(value)):
                    replaced = path[: match.start()] + value + path[match.end() :]
                    yield from self._substituted(replaced, directories, depth + 1)
                return
        yield path

    def _values(self, name: str, directories: _ShellDirectories) -> list[str]:
        match name:
            case "PWD":
                return directories.current
            case "OLDPWD":
                return directories.visited
            case _:
                inherited = self._environment.get(name)
                # A value that contains its own variable only makes the path longer.
                assigned = [value for value in self._assigned.get(name, ()) if f"${name}" not in value]
                unset = [""] if assigned and not inherited and name not in self._certain | self._in_loops else []
                return [*assigned, *unset, *([inherited] if inherited and "$" not in inherited else [])]


def _expand(word: str, directories: _ShellDirectories, variables: _ShellVariables) -> Iterator[str]:
    for alternative in brace_alternatives(_PWD.sub("$PWD", word)):
        for path in variables.substitute(alternative, directories):
            visited = _VISITED.match(path)
            starts = directories.visited if visited and visited[0] != "~+" else directories.current
            if not _DEVICES.fullmatch(path):
                yield from _absolute(f".{path[visited.end() :]}" if visited else path, starts)


def _absolute(path: str, directories: Sequence[str]) -> Iterator[str]:
    """Yield the absolute forms of ``path``; of one with unknown expansions, the directory before the first."""
    path = os.path.expanduser(path)
    if unknown := _UNKNOWN.search(path):
        path = path[: path.rfind("/", 0, unknown.start()) + 1]
        if not path:
            return
    if os.name == "nt":
        path = _DRIVE.sub(r"\1:", path)
    for joined in filter(None, (os.path.join(directory, path) for directory in directories)):
        lexical, physical = os.path.normpath(joined), os.path.realpath(joined)
        # "link/.." is the current directory for cd, and the parent of the link's target for all other commands.
        yield lexical
        if physical != os.path.realpath(lexical):
            yield physical
        yield from _wildcard_targets(joined)


def _after_cd(
    directories: _ShellDirectories, target: Sequence[str], variables: _ShellVariables, *, unknown: bool
) -> _ShellDirectories:
    """Return the directories after ``cd target``: also the present ones if it may fail; without a target, a visited
    one."""
    if not target:
        return directories.moved(directories.visited, unknown=unknown)
    reached = list(islice(_expand(target[0], directories, variables), _MAX_PLACES + 1))
    if reached and all(os.path.isdir(path) for path in reached):
        return directories.moved(reached, unknown=unknown)
    return directories.moved([*directories.current, *reached], unknown=unknown)


def _path_operands(name: str, words: Sequence[str]) -> list[str]:
    """Return the arguments of a command that may be paths: all but flags, and the values of flags."""
    if name not in FILE_COMMANDS:
        return []
    operands: list[str] = []
    only_paths = False
    for word in words:
        if only_paths or not word.startswith("-"):
            operands.append(word)
        elif word == "--":
            only_paths = True
        elif name in _CHANGING_LAST and name != "rsync" and (flag := _TARGET_FLAG.fullmatch(word)):
            operands += [flag[1]] if flag[1] else []
        elif "=" in word:
            operands.append(word.partition("=")[2])
        elif attached := _ATTACHED_PATH.fullmatch(word):
            operands.append(attached[1])
    if name == "cd" and not operands and "-" not in words:
        return ["~"]
    if name == "pushd":
        return [operand for operand in operands if not operand.startswith("+")]
    return [operand.partition("=")[2] or operand for operand in operands] if name == "dd" else operands


def _changed_operands(name: str, words: Sequence[str], operands: Sequence[str]) -> list[str]:
    """Return the operands that a command changes, also below a target that may be a folder."""
    if name in _CHANGING_ALL:
        return list(operands)
    if name == "dd":
        return [word.removeprefix("of=") for word in words if word.startswith("of=")]
    if name not in _CHANGING_LAST or not operands:
        return []
    # The last operand may be a source, and what looks like a flag may be the value of another one: all are taken.
    targets = {operands[-1]: None}
    for at, word in enumerate(words):
        flag = _TARGET_FLAG.fullmatch(word) if name != "rsync" else None
        if flag and flag[1]:
            targets[flag[1]] = None
        elif (flag or word == "--target-directory") and at + 1 < len(words):
            targets[words[at + 1]] = None
        elif word.startswith("--target-directory="):
            targets[word.partition("=")[2]] = None
    below = [
        os.path.join(to, os.path.basename(source.rstrip("/"))) for to in targets for source in operands if source != to
    ]
    return [*targets, *below, *(operands if name == "mv" else ())]


class _WildcardPath(NamedTuple):
    path: str
    is_linked: bool
    """Whether a matching name on the way is a symbolic link or leads up."""


def _wildcard_targets(path: str) -> Iterator[str]:
    """Yield the real paths that a wildcard path reaches through symbolic links, or through ``..``, which some shells
    match with ``.*``. Not all of them where there are very many."""
    parts = path.split(os.sep)
    first = next((index for index, part in enumerate(parts) if _WILDCARD.search(part)), None)
    if first is None:
        return
    matches = [_WildcardPath(os.sep.join(parts[:first]) or os.sep, is_linked=False)]
    for index, pattern in enumerate(parts[first:], first):
        part = pattern if len(pattern) <= _MAX_PATTERN else "*"
        last = index == len(parts) - 1
        matches = [step for match in matches[:_MAX_DIRECTORIES] for step in _wildcard_step(match, part, last=last)]
    yield from dict.fromkeys(os.path.realpath(match.path) for match in matches if match.is_linked)


def _wildcard_step(match: _WildcardPath, part: str, *, last: bool) -> Iterator[_WildcardPath]:
    if not _WILDCARD.search(part):
        path = os.path.join(match.path, part)
        yield _WildcardPath(path, match.is_linked or os.path.islink(path))
        return
    if _matches_name("..", part):
        yield _WildcardPath(os.path.join(match.path, ".."), is_linked=True)
    try:
        with os.scandir(match.path) as entries:
            matching = [entry for entry in entries if _matches_name(entry.name, part)]
    except OSError:
        return
    for entry in matching:
        is_linked = match.is_linked or entry.is_symlink()
        if is_linked or not last:
            yield _WildcardPath(entry.path, is_linked)


def _matches_name(name: str, pattern: str) -> bool:
    """As shells match: a leading dot is matched only by a dot."""
    return fnmatchcase(name, pattern) and (pattern[0] == "." or name[0] != ".")
