"""Whether a command line provably changes nothing: every command in it is known, and used in a way that only reads.

The list is short on purpose. What is not on it may well be harmless too; it is merely not proven, and whoever needs
proof asks the user.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from .command import TELLING
from .syntax import parse
from .words import Unparsable
from .wrapped import inner_commands

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from .command import Redirection, ShellCommand

_ANYHOW = frozenset(
    """
    : [ basename cat cd cksum cmp comm cut df diff dirname du echo egrep expr false fgrep fold free grep groups head
    hexdump id jq join ls md5sum nl nproc od paste popd printenv ps pushd pwd readlink realpath rev seq sha1sum
    sha224sum sha256sum sha384sum sha512sum sleep stat strings tac tail test tr true type uname uptime wc which whoami
    """.split()
)
"""Commands that only read, whatever their arguments are."""

_CARRIERS = frozenset(("nice", "timeout", "xargs"))
"""Commands that run another one and do nothing else. Not ``time``: the program of that name can write a file."""

_TELLING = re.compile(rf"\b{TELLING.pattern}")
_ASSIGNS = re.compile(r"\$\{[^}]*=")
_NOWHERE = ("/dev/null", "/dev/stdout", "/dev/stderr")
_BIN = re.compile(r"(?:/usr)?/bin/")

_PRINTS = re.compile(r"[0-9$]+(?:,[0-9$]+)?p")
_FIND = re.compile(r"-(?:exec|ok|delete|fprint|fls)")
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
"""Subcommands that list, and change things with other words; a listing may begin with these alone."""
_GIT_CONFIG = frozenset(("--get", "--get-all", "--get-regexp", "--list", "-l"))


def is_read_only(text: str, *, posix: bool = False) -> bool:
    """Whether it is certain that ``text``, run by a shell, writes no file and changes no state."""
    if _TELLING.search(text) or _ASSIGNS.search(text):
        return False
    try:
        return all(_reads(command) for command in parse(text, posix=posix))
    except Unparsable:
        return False


def _reads(command: ShellCommand) -> bool:
    if command.assignments or any(_writes(redirect) for redirect in command.redirects):
        return False
    if not command.words:
        return True
    first = command.words[0]
    if not first.static:
        return False
    name = _BIN.sub("", first.value) if _BIN.match(first.value) else first.value
    words = [word.value for word in command.words[1:]]
    if name in _ANYHOW:
        return True
    if name in _CARRIERS:
        return _carries_a_reader(command)
    check = _CAREFUL.get(name)
    # What an expansion comes to may be the one word that makes a difference.
    return check is not None and all(word.static for word in command.words) and check(words)


def _writes(redirect: Redirection) -> bool:
    return redirect.writes and redirect.target.value not in _NOWHERE


def _carries_a_reader(command: ShellCommand) -> bool:
    """Whether all it runs only reads. A long flag may take the next word, and then something else is run."""
    carried = list(inner_commands(command))
    own = command.words[1 : len(command.words) - sum(len(each.words) for each in carried)]
    if not carried or any(word.value.startswith("--") for word in own):
        return False
    return all(each.words[0].static and each.words[0].value in _ANYHOW for each in carried)


def _find(words: Sequence[str]) -> bool:
    return not any(_FIND.match(word) for word in words)


def _without(letters: str, *beginnings: str) -> Callable[[Sequence[str]], bool]:
    """A check that none of these letters is among the short flags, and no long one begins like this."""

    def check(words: Sequence[str]) -> bool:
        for word in words:
            if word.startswith("--"):
                if word.startswith(beginnings):
                    return False
            elif word.startswith("-") and any(letter in word for letter in letters):
                return False
        return True

    return check


def _sed(words: Sequence[str]) -> bool:
    return len(words) >= 2 and words[0] == "-n" and bool(_PRINTS.fullmatch(words[1])) and _has_no_flags(words[2:])


def _uniq(words: Sequence[str]) -> bool:
    """A second file is written; a dash is the first, and behind two of them everything is one."""
    return "--" not in words and sum(word == "-" or not word.startswith("-") for word in words) <= 1


def _date(words: Sequence[str]) -> bool:
    return all(word.startswith("+") or word in ("-u", "--utc", "-I", "-R") for word in words)


def _has_no_flags(words: Sequence[str]) -> bool:
    return not any(word.startswith("-") for word in words)


def _none(words: Sequence[str]) -> bool:
    return not words


def _printf(words: Sequence[str]) -> bool:
    return bool(words) and not words[0].startswith("-")


def _command(words: Sequence[str]) -> bool:
    return bool(words) and words[0] in ("-v", "-V")


def _git(words: Sequence[str]) -> bool:
    rest = list(words)
    while rest and rest[0] in ("--no-pager", "-P", "-C"):
        rest = rest[2:] if rest[0] == "-C" else rest[1:]
    if not rest or any(_GIT_WRITES.match(word) for word in rest):
        return False
    name, *given = rest
    if name in _GIT_READS:
        return True
    if name == "config":
        return bool(given) and given[0] in _GIT_CONFIG
    if name == "reflog":
        return not given or given[0] == "show"
    listed = _GIT_LISTS.get(name)
    if listed is None or not all(word in listed for word in given):
        return False
    return bool(given) or name in ("branch", "tag", "remote")


_CAREFUL: dict[str, Callable[[Sequence[str]], bool]] = {
    "command": _command,
    "date": _date,
    "env": _none,
    "fd": _without("xX", "--exec"),
    "file": _without("C", "--c"),
    "find": _find,
    "git": _git,
    "hostname": _none,
    "printf": _printf,
    "rg": _without("", "--pre", "--hostname-bin"),
    "sed": _sed,
    "sort": _without("oT", "--o", "--c", "--t"),
    "tree": _without("oR", "--o"),
    "uniq": _uniq,
}
"""Commands that only read if their arguments pass a check."""
