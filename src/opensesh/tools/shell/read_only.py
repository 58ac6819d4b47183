"""Proof that a command line changes nothing: every command in it is known, and used in a way that only reads.

The list is short on purpose. Plan mode asks the user about every command that is not proven here.
"""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING

from .effects import certain_commands
from .known_commands import FIND_ACTIONS, inner_line

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from .lexer import ShellCommand, ShellLanguage

_ALWAYS_READ_ONLY = frozenset(
    """
    : [ basename cat cd cksum cmp comm cut df diff dirname du echo egrep expr false fgrep fold free grep groups head
    hexdump id jq join ls md5sum nl nproc od paste popd printenv ps pushd pwd readlink realpath rev seq sha1sum
    sha224sum sha256sum sha384sum sha512sum sleep stat strings tac tail test tr true type uname uptime wc which whoami
    """.split()
)
"""Commands that only read, with any arguments."""

_READ_ONLY_WRAPPERS = frozenset(("nice", "timeout", "xargs"))
"""Commands that run another one and do nothing else. Not ``time``: the program of that name can write a file."""

_BIN = re.compile(r"(?:/usr)?/bin/")

_SED_PRINT = re.compile(r"[0-9$]+(?:,[0-9$]+)?p")
_GIT_WRITES = re.compile(r"--(?:ou|op|ext|exe|te|up)|-[oO]")
_GIT_READS = frozenset(
    """
    blame cat-file check-ignore cherry count-objects describe diff diff-files diff-index diff-tree for-each-ref grep log
    ls-files ls-tree merge-base name-rev rev-list rev-parse shortlog show show-ref status whatchanged
    """.split()
)
_GIT_LISTS: dict[str, frozenset[str]] = {
    "branch": frozenset(("-a", "-r", "-v", "-vv", "-l", "--all", "--remotes", "--list", "--show-current", "--verbose")),
    "tag": frozenset(("-l", "--list")),
    "remote": frozenset(("-v", "--verbose")),
    "stash": frozenset(("list",)),
    "worktree": frozenset(("list",)),
    "submodule": frozenset(("status",)),
}
"""Subcommands that list with these arguments and change things with others."""
_GIT_CONFIG = frozenset(("--get", "--get-all", "--get-regexp", "--list", "-l"))


def is_read_only(
    text: str, shell: ShellLanguage = "bash", environment: Mapping[str, str] | None = None, *, literal: bool = False
) -> bool:
    """Return whether it is certain that ``text``, run by a shell, writes no file and changes no state.

    ``literal``: accept only commands that read with any arguments, and no expansions. What git and similar programs do
    depends on files in the project.
    """
    commands = certain_commands(text, shell, os.environ if environment is None else environment)
    if commands is None:
        return False
    if literal:
        return all(_is_literal(command) for command, _ in commands)
    return all(_only_reads(command) for command, is_inner in commands if not is_inner)


def _is_literal(command: ShellCommand) -> bool:
    words = (*command.words, *command.loops)
    return _only_reads(command) and command.words[0].value in _ALWAYS_READ_ONLY and all(word.static for word in words)


def _only_reads(command: ShellCommand) -> bool:
    writes = [redirect for redirect in command.redirects if redirect.writes]
    if command.assignments or any(redirect.target.value != "/dev/null" for redirect in writes):
        return False
    if not command.words:
        return True
    first = command.words[0].value
    name = _BIN.sub("", first) if _BIN.match(first) else first
    if name in _ALWAYS_READ_ONLY:
        return True
    if name in _READ_ONLY_WRAPPERS:
        inner = inner_line(command).commands
        return bool(inner) and all(run.words[0].static and run.words[0].value in _ALWAYS_READ_ONLY for run in inner)
    check = _ARGUMENT_CHECKS.get(name)
    # An expansion may produce the one argument that makes a difference.
    is_static = all(word.static for word in command.words)
    return check is not None and is_static and check([word.value for word in command.words[1:]])


def _without(letters: str, *prefixes: str) -> Callable[[Sequence[str]], bool]:
    """Return a check that no short flag contains one of these letters and no long flag has one of these prefixes."""

    def check(words: Sequence[str]) -> bool:
        for word in words:
            if word.startswith("--"):
                if word.startswith(prefixes):
                    return False
            elif word.startswith("-") and any(letter in word for letter in letters):
                return False
        return True

    return check


def _git(words: Sequence[str]) -> bool:
    rest = list(words)
    while rest and rest[0] in ("--no-pager", "-P", "-C"):
        rest = rest[2:] if rest[0] == "-C" else rest[1:]
    if not rest or any(_GIT_WRITES.match(word) for word in rest):
        return False
    name, *arguments = rest
    if name in _GIT_READS:
        return True
    if name == "config":
        return bool(arguments) and arguments[0] in _GIT_CONFIG
    if name == "reflog":
        return not arguments or arguments[0] == "show"
    listing = _GIT_LISTS.get(name)
    if listing is None or not all(word in listing for word in arguments):
        return False
    return bool(arguments) or name in ("branch", "tag", "remote")


def _sed(words: Sequence[str]) -> bool:
    prints = len(words) >= 2 and words[0] == "-n" and bool(_SED_PRINT.fullmatch(words[1]))
    return prints and not any(word.startswith("-") for word in words[2:])


def _uniq(words: Sequence[str]) -> bool:
    """uniq writes its second file. A dash is a file too, and behind ``--`` everything is one."""
    return "--" not in words and sum(word == "-" or not word.startswith("-") for word in words) <= 1


_ARGUMENT_CHECKS: dict[str, Callable[[Sequence[str]], bool]] = {
    "command": lambda words: bool(words) and words[0] in ("-v", "-V"),
    "date": lambda words: all(word.startswith("+") or word in ("-u", "--utc", "-I", "-R") for word in words),
    "env": lambda words: not words,
    "fd": _without("xX", "--exec"),
    "file": _without("C", "--c"),
    "find": lambda words: not any(word.startswith(FIND_ACTIONS) for word in words),
    "git": _git,
    "hostname": lambda words: not words,
    "printf": lambda words: bool(words) and not words[0].startswith("-"),
    "rg": _without("", "--pre", "--hostname-bin"),
    "sed": _sed,
    "sort": _without("oT", "--o", "--c", "--t"),
    "tree": _without("oR", "--o"),
    "uniq": _uniq,
}
"""Commands that only read if their arguments pass a check."""
