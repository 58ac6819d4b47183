"""A simple command, taken apart."""

from __future__ import annotations

import re

from msgspec import Struct

from .words import Word

TELLING = re.compile(r"(?:PATH|ENV|IFS|BASH\w*|LD_\w+|DYLD_\w+|GIT_\w+|PAGER|SHELLOPTS)\b")
"""Variables that decide what a command of a given name is."""


class Redirection(Struct, frozen=True):
    """Where a command's input comes from, or its output goes to."""

    operator: str
    """Without the number of the descriptor."""
    target: Word

    @property
    def writes(self) -> bool:
        """Whether it may change a file."""
        if self.operator == ">&":  # to a descriptor, or away with it
            return not self.target.value.rstrip("-").isdigit() and self.target.value != "-"
        return self.operator in (">", ">>", ">|", "<>", "&>", "&>>")


class ShellCommand(Struct, frozen=True, kw_only=True):
    """A simple command: a program and its arguments. Without words, assignments or redirections alone."""

    text: str
    """As it is written, redirections included, bodies of heredocs not."""
    words: tuple[Word, ...] = ()
    assignments: tuple[Word, ...] = ()
    redirects: tuple[Redirection, ...] = ()
    loops: tuple[Word, ...] = ()
    """What the loops so far set, as ``variable=value``."""
    scope: tuple[int, ...] = ()
    """The subshells it runs in, outermost first. What ``cd`` does in one does not reach those outside."""
