"""Which shell runs commands."""

from __future__ import annotations

import os
import shlex
import shutil
from typing import TYPE_CHECKING, Literal, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping

Language = Literal["bash", "posix", "other"]

_BASH_LIKE = frozenset(("bash", "zsh", "ksh", "mksh"))
_FOREIGN = frozenset(("fish", "nu", "elvish", "xonsh", "csh", "tcsh", "pwsh", "powershell"))

_START_UP = {
    "bash": "[ -f ~/.bashrc ] && . ~/.bashrc >/dev/null 2>&1\nshopt -s expand_aliases",
    "zsh": '[ -f "${ZDOTDIR:-$HOME}/.zshrc" ] && . "${ZDOTDIR:-$HOME}/.zshrc" >/dev/null 2>&1',
}
"""Aliases are taken from these files only where someone types, and count only for lines that are read after them."""


class Shell(NamedTuple):
    """A program that runs command lines."""

    path: str
    language: Language

    def arguments(self, command: str) -> list[str]:
        """What to run for ``command``."""
        if os.path.basename(self.path).lower().startswith("cmd"):
            return [self.path, "/d", "/s", "/c", command]
        return [self.path, "-c", command]

    def as_in_a_terminal(self, command: str) -> list[str]:
        """What to run for a ``command`` that the user typed: with the aliases and functions of a terminal's shell."""
        start_up = _START_UP.get(_name(self.path))
        if start_up is not None:
            return [self.path, "-l", "-c", f"{start_up}\neval {shlex.quote(command)}"]
        if _name(self.path) in ("pwsh", "powershell"):
            return [self.path, "-NoProfile", "-Command", command]
        return self.arguments(command)


def of_user(environment: Mapping[str, str]) -> Shell:
    """The user's own shell, whatever it speaks."""
    own = environment.get("SHELL", "")
    found = shutil.which(own, path=environment.get("PATH")) if own else None
    return Shell(found, "other") if found and _name(own) in _FOREIGN else choose(environment)


def choose(environment: Mapping[str, str]) -> Shell:
    """The user's own shell, unless it speaks a language of its own; then bash, then whatever there is."""
    own = environment.get("SHELL", "")
    path = environment.get("PATH")
    name = _name(own)
    if own and name not in _FOREIGN and (found := shutil.which(own, path=path)):
        return _shell(found)
    if os.name == "nt":
        return _on_windows(environment)
    for candidate in ("bash", "/bin/bash", "sh"):
        if found := shutil.which(candidate, path=path):
            return _shell(found)
    return Shell("/bin/sh", "posix")


def _on_windows(environment: Mapping[str, str]) -> Shell:
    """Git's bash, by way of git itself: the ``bash.exe`` on the path may well be another system's."""
    git = shutil.which("git", path=environment.get("PATH"))
    if git:
        bash = os.path.join(os.path.dirname(os.path.dirname(git)), "bin", "bash.exe")
        if os.path.exists(bash):
            return Shell(bash, "bash")
    return Shell(environment.get("COMSPEC", "cmd.exe"), "other")


def _shell(path: str) -> Shell:
    return Shell(path, "bash" if _name(path) in _BASH_LIKE else "posix")


def _name(path: str) -> str:
    return os.path.basename(path).lower().removesuffix(".exe")
