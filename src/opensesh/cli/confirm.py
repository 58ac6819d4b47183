"""Questions that a command puts to whoever sits at the terminal, before it does something."""

from __future__ import annotations

import sys

from ..errors import UsageError


def somebody_is_there() -> bool:
    """Whether a question would be seen and could be answered. Who says ``--quiet`` is not there."""
    return sys.stdin.isatty() and sys.stderr.isatty()


def need_somebody(otherwise: str) -> None:
    """:class:`UsageError` with what to do instead, where nobody can be asked."""
    if not somebody_is_there():
        raise UsageError(otherwise)


def ask(question: str) -> str:
    """What is typed in answer; nothing if that is the end of the input. Standard output is for the result alone."""
    print(question, end=" ", file=sys.stderr, flush=True)
    line = sys.stdin.readline()
    if not line:
        print(file=sys.stderr)
    return line.strip()


def says_yes(question: str) -> bool:
    """Whether the answer is yes; anything else is no."""
    return ask(f"{question} [y/N]").lower() in ("y", "yes")
