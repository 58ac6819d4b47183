"""Find the piece of a text that a model means, and put another in its place.

Models quote from memory: the indentation is off, a line is trimmed, a quote is escaped. Eight strategies, from the
exact to the lenient, propose pieces of the text that may be meant. The first piece that occurs in the text just once
is taken; so a lenient strategy has a say only where a stricter one found nothing, or nothing unique.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from typing import TYPE_CHECKING

from ..errors import ToolFailedError
from .diff import similarity

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    Strategy = Callable[[str, str], Iterator[str]]

_SIMILAR = 0.65
"""How alike the lines between two matching ends must be, on average."""

_ESCAPES = {"n": "\n", "t": "\t", "r": "\r"}
_ESCAPED = re.compile(r"\\(n|t|r|'|\"|`|\\|\n|\$)")


def replace(text: str, old: str, new: str, *, every: bool = False) -> str:
    """``text`` with ``old`` replaced, at the one place it occurs or, with ``every``, wherever it does.

    Raises :class:`ToolFailedError` if it is not there, or if there is more than one place and not ``every``.
    """
    if old == new:
        raise ToolFailedError("oldString and newString are the same, so there is nothing to change")
    if not old.strip():
        return _replace_exactly(text, old, new, every=every)
    ambiguous = oversized = False
    for strategy in _STRATEGIES:
        for proposed in strategy(text, old):
            piece = _with_same_end(text, proposed, old)
            if not piece or piece not in text:
                continue
            if _is_disproportionate(piece, old):
                oversized = True
            elif every:
                return text.replace(piece, new)
            elif text.find(piece) == text.rfind(piece):
                return text.replace(piece, new, 1)
            else:
                ambiguous = True
    if ambiguous:
        raise _not_unique()
    raise _oversized() if oversized else _not_found()


def _with_same_end(text: str, piece: str, old: str) -> str:
    """``piece`` with the end of its last line if ``old`` has one, and without if it has not."""
    if piece.endswith("\n") or old.endswith("\r"):
        return piece
    whole = piece.removesuffix("\r")
    if not old.endswith("\n"):
        return whole
    return next((whole + end for end in ("\r\n", "\n") if whole + end in text), whole)


def _replace_exactly(text: str, old: str, new: str, *, every: bool) -> str:
    """White space means only itself."""
    if not old or old not in text:
        raise _not_found()
    if every:
        return text.replace(old, new)
    if text.find(old) != text.rfind(old):
        raise _not_unique()
    return text.replace(old, new, 1)


def _not_found() -> ToolFailedError:
    return ToolFailedError(
        "oldString was not found in the file. It must be what the file holds, white space and indentation included; "
        "read the file again and copy from it."
    )


def _not_unique() -> ToolFailedError:
    return ToolFailedError(
        "oldString fits more than one place in the file. Give more of the lines around it so that it fits only one, or "
        "use replaceAll to change them all."
    )


def _oversized() -> ToolFailedError:
    return ToolFailedError(
        "The only place that resembles oldString is much larger than it, so replacing it could destroy what you do not "
        "mean. Read the file again and copy the exact text."
    )


def _is_disproportionate(piece: str, old: str) -> bool:
    """Whether a lenient match took in so much more than was asked for that it can hardly be meant."""
    lines, wanted = piece.count("\n") + 1, old.count("\n") + 1
    if lines > max(2 * wanted, wanted + 3):
        return True
    return wanted > 1 and len(piece.strip()) > max(4 * len(old.strip()), len(old.strip()) + 500)


def _exact(text: str, old: str) -> Iterator[str]:
    yield old


def _line_trimmed(text: str, old: str) -> Iterator[str]:
    """Lines that are the same but for the white space at either end."""
    wanted = [line.strip() for line in _search_lines(old)]
    lines = text.split("\n")
    trimmed = [line.strip() for line in lines]
    for start in _windows(lines, len(wanted)):
        if trimmed[start] == wanted[0] and trimmed[start : start + len(wanted)] == wanted:
            yield "\n".join(lines[start : start + len(wanted)])


def _block_anchor(text: str, old: str) -> Iterator[str]:
    """A block whose first and last lines match, and whose lines between are like those asked for."""
    wanted = _search_lines(old)
    if len(wanted) < 3:
        return
    lines = text.split("\n")
    best, best_score = None, _SIMILAR
    for start, end in _anchored(lines, wanted[0].strip(), wanted[-1].strip()):
        if len(wanted) - 2 < best_score * (end - start - 1):  # too long to be as like
            continue
        score = _likeness(lines[start + 1 : end], wanted[1:-1])
        if score >= best_score and (best is None or score > best_score):
            best, best_score = (start, end), score
    if best is not None:
        yield "\n".join(lines[best[0] : best[1] + 1])


def _anchored(lines: Sequence[str], first: str, last: str) -> Iterator[tuple[int, int]]:
    """Where a block may begin, and the nearest line behind it where it may end."""
    trimmed = [line.strip() for line in lines]
    ends = [place for place, line in enumerate(trimmed) if line == last]
    for start, line in enumerate(trimmed):
        nearest = bisect_left(ends, start + 2)
        if line == first and nearest < len(ends):
            yield start, ends[nearest]


def _likeness(lines: Sequence[str], wanted: Sequence[str]) -> float:
    """How alike two blocks are, line by line, on average; a line too many or too few counts as wholly different."""
    count = max(len(lines), len(wanted))
    if not count:
        return 1.0
    pairs = zip(lines, wanted, strict=False)
    return sum(similarity(one.strip(), other.strip()) for one, other in pairs) / count


def _whitespace_normalized(text: str, old: str) -> Iterator[str]:
    """The same words in the same order, with other white space between them."""
    wanted = _collapsed(old)
    count = len(_search_lines(old))
    lines = text.split("\n")
    collapsed = [_collapsed(line) for line in lines]
    if count > 1:
        for start in _windows(lines, count):
            if " ".join(filter(None, collapsed[start : start + count])) == wanted:
                yield "\n".join(lines[start : start + count])
        return
    words = re.compile(r"\s+".join(map(re.escape, old.split())))
    for line, folded in zip(lines, collapsed, strict=True):
        if folded == wanted:
            yield line
        elif wanted in folded and (found := words.search(line)):
            yield found[0]


def _indentation_flexible(text: str, old: str) -> Iterator[str]:
    """The same lines, all of them further in or out."""
    wanted = _outdented(_search_lines(old))
    lines = text.split("\n")
    for start in _windows(lines, len(wanted)):
        window = lines[start : start + len(wanted)]
        if window[0].strip() == wanted[0].strip() and _outdented(window) == wanted:
            yield "\n".join(window)


def _escape_normalized(text: str, old: str) -> Iterator[str]:
    r"""The same text, written with ``\n`` and ``\"`` for what they stand for."""
    if "\\" not in old and "\\" not in text:
        return
    wanted = _unescaped(old)
    if wanted in text:
        yield wanted
    count = wanted.count("\n") + 1
    lines = text.split("\n")
    for start in _windows(lines, count):
        piece = "\n".join(lines[start : start + count])
        if _unescaped(piece) == wanted:
            yield piece


def _trimmed_boundary(text: str, old: str) -> Iterator[str]:
    """The same text without the white space around it."""
    wanted = old.strip()
    if wanted == old:
        return
    if wanted in text:
        yield wanted
    count = old.count("\n") + 1
    lines = text.split("\n")
    for start in _windows(lines, count):
        piece = "\n".join(lines[start : start + count])
        if piece.strip() == wanted:
            yield piece


def _context_aware(text: str, old: str) -> Iterator[str]:
    """A block of as many lines, the first, the last and at least half of those between the same."""
    wanted = _search_lines(old)
    if len(wanted) < 3:
        return
    lines = text.split("\n")
    for start, end in _anchored(lines, wanted[0].strip(), wanted[-1].strip()):
        if end - start + 1 != len(wanted):
            continue
        between = zip(lines[start + 1 : end], wanted[1:-1], strict=True)
        pairs = [(one.strip(), other.strip()) for one, other in between if one.strip() or other.strip()]
        same = sum(one == other for one, other in pairs)
        if not pairs or same >= len(pairs) / 2:
            yield "\n".join(lines[start : end + 1])


_STRATEGIES: tuple[Strategy, ...] = (
    _exact,
    _line_trimmed,
    _block_anchor,
    _whitespace_normalized,
    _indentation_flexible,
    _escape_normalized,
    _trimmed_boundary,
    _context_aware,
)


def _search_lines(old: str) -> list[str]:
    lines = old.split("\n")
    return lines[:-1] if len(lines) > 1 and not lines[-1].strip() else lines


def _windows(lines: Sequence[str], count: int) -> range:
    """Where a run of ``count`` lines can start."""
    return range(len(lines) - count + 1)


def _collapsed(text: str) -> str:
    return " ".join(text.split())


def _outdented(lines: Sequence[str]) -> list[str]:
    filled = [line for line in lines if line.strip()]
    depth = min((len(line) - len(line.lstrip()) for line in filled), default=0)
    return [line[depth:].rstrip("\r") if line.strip() else "" for line in lines]


def _unescaped(text: str) -> str:
    return _ESCAPED.sub(lambda found: _ESCAPES.get(found[1], found[1]), text)
