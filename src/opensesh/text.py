"""Small text functions: plurals, error messages, suggestions for misspelt names, texts in files of the package."""

from __future__ import annotations

import os
from functools import cache

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

CLOSE = 70
"""Similarity in percent from which a name is suggested: one wrong letter of four, two of seven."""


@cache
def markdown(folder: str, name: str) -> str:
    """Return the text of ``<name>.md`` in a folder of this package."""
    with open(os.path.join(folder, f"{name}.md"), encoding="utf-8") as file:
        return file.read().strip()


def pluralize(number: int, noun: str) -> str:
    """Return a count with its noun: ``1 file``, ``2 files``, ``12,000 files``."""
    return f"{number:,} {noun if number == 1 else f'{noun}s'}"


def error_text(error: BaseException) -> str:
    """Return the message of an error without the error number; its class name if it has no message."""
    message = str(error)
    return message.partition("] ")[2] if message.startswith("[Errno ") else message or type(error).__name__


def close_matches(word: str, known: Iterable[str], most: int = 1, *, letters: Callable[[str], str] = str) -> list[str]:
    """Return the names in ``known`` that are similar to ``word``, best first. ``letters`` normalises names first."""
    from rapidfuzz import fuzz, process

    matches = process.extract(word, list(known), scorer=fuzz.ratio, processor=letters, score_cutoff=CLOSE, limit=most)
    return [name for name, _, _ in matches]


def did_you_mean(near: Sequence[str]) -> str:
    """Return a suggestion to append to an error message; empty if there are no similar names."""
    return f" Did you mean {' or '.join(near)}?" if near else ""


def format_count(number: int) -> str:
    """Return a count in few characters: 950, 12.3K, 4.5M."""
    for size, unit in ((10**9, "G"), (10**6, "M"), (10**3, "K")):
        if abs(number) >= size * 0.99995:  # else it would be rounded up to 1000.0 of the smaller unit
            return f"{number / size:.1f}{unit}"
    return str(number)


def format_bytes(number: int) -> str:
    """Return a number of bytes as ``950 B``, ``12.3 KB`` or ``4.5 MB``."""
    amount = float(number)
    for unit in ("B", "KB", "MB", "GB"):
        if amount < 999.95 or (unit == "B" and amount < 1000):
            return f"{amount:.0f} {unit}" if unit == "B" else f"{amount:.1f} {unit}"
        amount /= 1000
    return f"{amount:.1f} TB"
