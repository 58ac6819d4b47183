"""Commands that run other commands: ``sudo``, ``env``, ``xargs``, ``bash -c``, ``find -exec`` and their like."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, NamedTuple

from .command import ShellCommand
from .syntax import parse

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from .words import Word


class _Flags(NamedTuple):
    """The flags of a command that take the next word, unless their value is attached to them."""

    letters: str = ""
    names: str = ""


_NONE = _Flags()
_PREFIXES: dict[str, _Flags] = {
    "builtin": _NONE,
    "busybox": _NONE,
    "caffeinate": _Flags("tw"),
    "chroot": _Flags("", "groups userspec"),
    "command": _NONE,
    "doas": _Flags("Cu"),
    "entr": _NONE,
    "env": _Flags("Cu", "chdir unset"),
    "exec": _Flags("a"),
    "fakeroot": _Flags("bils", "fd-base faked lib"),
    "flock": _Flags("Ew", "conflict-exit-code timeout wait"),
    "gtimeout": _Flags("ks", "kill-after signal"),
    "ionice": _Flags("cnpPu", "class classdata pgid pid uid"),
    "nice": _Flags("n", "adjustment"),
    "nocorrect": _NONE,
    "noglob": _NONE,
    "nohup": _NONE,
    "parallel": _Flags("ajINnS", "arg-file jobs max-args sshlogin"),
    "pkexec": _Flags("", "user"),
    "repeat": _NONE,
    "setsid": _NONE,
    "stdbuf": _Flags("eio", "error input output"),
    "strace": _Flags("abeEIoOpPsSuUX", "attach env output string-limit trace user"),
    "sudo": _Flags(
        "CDRTghprtuU", "chdir chroot close-from command-timeout group host other-user prompt role type user"
    ),
    "taskset": _NONE,
    "time": _Flags("fo", "format output"),
    "timeout": _Flags("ks", "kill-after signal"),
    "toybox": _NONE,
    "unbuffer": _NONE,
    "unshare": _Flags("GRSw", "root setgid setuid wd"),
    "watch": _Flags("nq", "equexit interval"),
    "xargs": _Flags("adEIJLnPRsS", "arg-file delimiter max-args max-chars max-procs process-slot-var"),
}
"""Commands whose arguments are a command."""

_FIRST_IS_OWN = frozenset(("chroot", "flock", "gtimeout", "repeat", "taskset", "timeout"))
"""Those whose first argument is for themselves."""

_JOINING = frozenset(("parallel", "watch"))
"""Those that hand their arguments to a shell, as one text."""

_SHELLS = frozenset(("ash", "bash", "dash", "ksh", "mksh", "sh", "zsh"))
_TELLING_A_SHELL = _SHELLS | {"runuser", "script", "su"}
"""Those that take a text for a shell behind ``-c``."""

_INTERPRETERS = frozenset("bun deno lua node osascript perl php psql python python3 ruby sqlite3 tsx".split())
"""Those that run a program in another language, which may come by their input."""

_EXECUTORS = {
    "find": frozenset(("-exec", "-execdir", "-ok", "-okdir")),
    **dict.fromkeys(("fd", "fdfind"), frozenset(("-x", "-X", "--exec", "--exec-batch"))),
}


def runs_others(name: str) -> bool:
    """Whether a command of this name runs whatever it is told to, so that its name alone says nothing."""
    plain = os.path.basename(name)
    return plain in _PREFIXES or plain in _TELLING_A_SHELL or plain in (".", "eval", "source", "trap")


def runs_in_place(name: str) -> bool:
    """Whether what it runs is run by the same shell, so that a ``cd`` in it counts from then on."""
    return os.path.basename(name) in ("builtin", "command", "eval", "exec", "nocorrect", "noglob", "repeat")


def is_told_elsewhere(command: ShellCommand) -> bool:
    """Whether it is told what to run by none of its words: by its input, as the ``sh`` of ``curl ... | sh``, or by the
    heredoc behind it, which is not part of its text."""
    name = os.path.basename(command.words[0].value)
    if not runs_others(name) and name not in _INTERPRETERS:
        return False
    if any(redirect.operator in ("<<", "<<-") for redirect in command.redirects):
        return True
    words = [word.value for word in command.words[1:]]
    return (name in _SHELLS or name in _INTERPRETERS) and all(
        word.startswith("-") and not word.startswith("--") for word in words
    )


def inner_commands(command: ShellCommand) -> Iterator[ShellCommand]:
    """The commands that ``command`` itself would run, as far as its words say so; or :class:`Unparsable`."""
    if not command.words:
        return
    name = os.path.basename(command.words[0].value)
    words = command.words[1:]
    if name in _PREFIXES:
        yield from _after_flags(name, words)
    elif name in _TELLING_A_SHELL:
        yield from parse(_shell_text(words))
    elif name == "eval":
        yield from parse(_joined(words))
    elif name == "trap" and words:
        yield from parse(words[0].value)
    elif name in _EXECUTORS:
        yield from _executed(words, _EXECUTORS[name])


def _after_flags(name: str, words: Sequence[Word]) -> Iterator[ShellCommand]:
    own = _PREFIXES[name]
    index = 0
    while index < len(words) and words[index].value.startswith("-"):
        flag = words[index].value
        index += 1
        if flag == "--":
            break
        if name == "env" and _splits(flag):
            yield from parse(" ".join((_attached(flag), _joined(words[index:]))))
            return
        if _takes_next(flag, own):
            index += 1
    if name in _FIRST_IS_OWN:
        index += 1
    while index < len(words) and name in ("env", "sudo", "doas") and "=" in words[index].value:
        index += 1
    rest = words[index:]
    if name in _JOINING:
        yield from parse(_joined(rest))
    elif name == "flock" and rest and rest[0].value in ("-c", "--command"):
        yield from parse(_joined(rest[1:2]))
    else:
        yield from _of_words(rest)


def _takes_next(flag: str, own: _Flags) -> bool:
    if flag.startswith("--"):
        return any(name.startswith(flag[2:]) for name in own.names.split())
    valued = next((place for place, letter in enumerate(flag) if place and letter in own.letters), None)
    return valued == len(flag) - 1


def _splits(flag: str) -> bool:
    """Whether it is the flag by which ``env`` is given a whole command line as one word."""
    if flag.startswith("--"):
        return flag.startswith("--s")
    # Behind a letter that takes a value, the rest of the word is that value.
    return "S" in flag and not any(letter in flag.partition("S")[0] for letter in "Cu")


def _attached(flag: str) -> str:
    return flag.partition("=")[2] if flag.startswith("--") else flag.partition("S")[2]


def _joined(words: Sequence[Word]) -> str:
    return " ".join(word.value for word in words)


def _of_words(words: Sequence[Word]) -> Iterator[ShellCommand]:
    if words:
        yield ShellCommand(text=" ".join(word.text for word in words), words=tuple(words))


def _shell_text(words: Sequence[Word]) -> str:
    """The text for a shell: the first word behind ``-c`` that is no flag, nor what one is set to."""
    values = [word.value for word in words]
    for place, value in enumerate(values):
        if value.startswith("--command="):
            return value.partition("=")[2]
        if value == "--command" or (value.startswith("-") and value[1:2] != "-" and "c" in value):
            return _first_operand(values[place:])
    return ""


def _first_operand(values: Sequence[str]) -> str:
    """``values`` begin with a flag."""
    index = 0
    while index < len(values) and values[index][:1] in ("-", "+"):
        index += 2 if values[index][-1:] in ("o", "O") else 1
    return values[index] if index < len(values) else ""


def _executed(words: Sequence[Word], executors: frozenset[str]) -> Iterator[ShellCommand]:
    start: int | None = None
    for place, word in enumerate(words):
        if word.value in executors:
            start = place + 1
        elif start is not None and word.value in (";", "+"):
            yield from _of_words(words[start:place])
            start = None
    if start is not None:
        yield from _of_words(words[start:])
