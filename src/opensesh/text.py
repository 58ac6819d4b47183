"""How words are spelt: what someone who mistyped a name may have meant, and things by their number."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

CLOSE = 70
"""How much of two words must agree, of a hundred, for one to be taken for a slip of the other: a letter of four, two of
seven. What agrees less is another word, and to suggest it would only mislead."""


def pluralize(number: int, noun: str) -> str:
    """``1 file``, ``2 files``, ``12,000 files``."""
    return f"{number:,} {noun if number == 1 else f'{noun}s'}"


def error_text(error: BaseException) -> str:
    """What an error says, without the operating system's number for it; its kind if it says nothing."""
    words = str(error)
    return words.partition("] ")[2] if words.startswith("[Errno ") else words or type(error).__name__


def close_matches(word: str, known: Iterable[str], most: int = 1, *, letters: Callable[[str], str] = str) -> list[str]:
    """Those of ``known`` that are spelt much like ``word``, best first; often none. ``letters`` gives what counts."""
    from rapidfuzz import fuzz, process

    found = process.extract(word, list(known), scorer=fuzz.ratio, processor=letters, score_cutoff=CLOSE, limit=most)
    return [name for name, _, _ in found]


def did_you_mean(near: Sequence[str]) -> str:
    """A question to put behind a complaint; nothing if nothing is near."""
    return f" Did you mean {' or '.join(near)}?" if near else ""
