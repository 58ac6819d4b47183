"""Edit a part of a file, or write a whole one.

Models quote from memory: the indentation is off, a line is trimmed, a quote is escaped. Eight strategies, from the
exact to the lenient, propose parts of the text. The first proposal that occurs exactly once is taken, so a lenient
strategy decides only where the stricter ones found nothing, or nothing unique.
"""

from __future__ import annotations

import asyncio
import os
import re
from bisect import bisect_left
from itertools import accumulate
from typing import TYPE_CHECKING, Annotated, Any

from msgspec import Meta

from ..errors import ToolFailedError
from . import diff
from . import path_access as paths
from .arguments import Arguments
from .file_types import TextFile, ensure_unchanged, load_text, load_text_if_exists
from .tool import BuiltinTool, Context, ToolOutput

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    Strategy = Callable[[str, str], Iterator[str]]

_MAX_COMPARED_LINES = 2_000_000
"""Lines that a lenient strategy compares."""
_PAIRS_A_LINE = 1 << 12
"""Pairs of characters whose comparison takes as long as that of two short lines."""
_MIN_SIMILARITY = 0.65
"""Required average similarity of the lines between two matching ends."""
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r"}
_ESCAPED = re.compile(r"\\(n|t|r|'|\"|`|\\|\n|\$)")
_NOT_FOUND = (
    "oldString was not found in the file. It must be what the file holds, white space and indentation included; "
    "read the file again and copy from it."
)
_NOT_UNIQUE = (
    "oldString matches more than one part of the file. Add lines from around it until it matches only one, or use "
    "replaceAll to change them all."
)
_TOO_REPETITIVE = (
    "oldString was not found exactly, and the file repeats itself too often to look for something similar. Read the "
    "file again and copy the exact text."
)
_TOO_LARGE = (
    "The only part of the file that resembles oldString is much larger than it, so replacing it could destroy other "
    "text. Read the file again and copy the exact text."
)


class EditArguments(Arguments, frozen=True):
    """The file and the replacement."""

    file_path: Annotated[str, Meta(description="The absolute path of the file")]
    old_string: Annotated[str, Meta(description="The text to replace, exactly as the file has it")]
    new_string: Annotated[str, Meta(description="The text to put in its place; must differ from oldString")]
    replace_all: Annotated[bool, Meta(description="Replace oldString wherever it occurs (default false)")] = False


class EditTool(BuiltinTool[EditArguments]):
    """Replaces one text. Everything else in the file stays, byte for byte, with byte order mark and line endings."""

    id = "edit"
    parameters = EditArguments

    async def execute(self, args: EditArguments, ctx: Context) -> ToolOutput:
        """Find the text, ask with the difference shown, and write."""
        if args.old_string == args.new_string:
            raise ToolFailedError("oldString and newString are the same, so there is nothing to change")
        target = paths.resolve(ctx, args.file_path)
        path = target.path
        await paths.ask_if_outside(ctx, target)
        async with ctx.files.lock(path):
            before: TextFile | None = None
            if args.old_string:
                before = load_text(target.real)
                ctx.files.check(path)
                old, new = before.with_line_endings(args.old_string), before.with_line_endings(args.new_string)
                text = await asyncio.to_thread(replace, before.text, old, new, replace_all=args.replace_all)
                after = before.with_text(text)
            elif os.path.lexists(target.real):
                raise ToolFailedError(
                    f"oldString is empty, which creates a file, but {path} exists. Give the text to replace, or use "
                    "write to replace the whole file.",
                    path=path,
                )
            else:
                after = TextFile(text=args.new_string)
            difference = await change_file(ctx, target, before, after)
            shown, written = before.shown if before else "", load_text(target.real)
            if written.text != after.text:  # a subscriber of the change event has formatted the file
                difference = await asyncio.to_thread(diff.compare, path, shown, written.shown)
            file_diff = {"file": path, "before": shown, "after": written.shown}
            file_diff |= {"additions": difference.additions, "deletions": difference.deletions}
            metadata = {"diagnostics": {}, "diff": difference.text, "filediff": file_diff}
            return ToolOutput(paths.relative(ctx, path), "Edit applied successfully.", metadata)


class WriteArguments(Arguments, frozen=True):
    """The file and its content."""

    content: Annotated[str, Meta(description="All that the file should hold")]
    file_path: Annotated[str, Meta(description="The absolute path of the file")]


class WriteTool(BuiltinTool[WriteArguments]):
    """Creates a file, or replaces the text of one that the session has read."""

    id = "write"
    parameters = WriteArguments

    async def execute(self, args: WriteArguments, ctx: Context) -> ToolOutput:
        """Ask with the difference shown, and write. An existing byte order mark is kept."""
        target = paths.resolve(ctx, args.file_path)
        path = target.path
        await paths.ask_if_outside(ctx, target)
        async with ctx.files.lock(path):
            existing = load_text_if_exists(target.real)
            if existing is not None:
                ctx.files.check(path)
            before = existing or TextFile()
            after = before.with_text(args.content.removeprefix("\ufeff") if before.bom else args.content)
            await change_file(ctx, target, existing, after)
        metadata: dict[str, Any] = {"diagnostics": {}, "filepath": path, "exists": existing is not None}
        return ToolOutput(paths.relative(ctx, path), "Wrote file successfully.", metadata)


async def change_file(ctx: Context, target: paths.Target, before: TextFile | None, after: TextFile) -> diff.Diff:
    """Ask with the difference shown, write the file, and return the difference.

    Raises :class:`ToolFailedError` if the file no longer equals ``before`` when the user has answered.
    """
    path = target.path
    difference = await asyncio.to_thread(diff.compare, path, before.shown if before else "", after.shown)
    await paths.ask_edit(ctx, [target], {"filepath": path, "diff": difference.text})
    await ctx.before_write({path: after.data})
    ensure_unchanged(target.real, before)
    try:
        after.save(target.real)
    except BaseException:
        ctx.after_write(path)  # for the revert, if the old content could not be restored
        raise
    ctx.files.note(path)
    ctx.after_write(path)
    ctx.files.note(path)  # again: a subscriber may have formatted the file
    return difference


def replace(text: str, old: str, new: str, *, replace_all: bool = False) -> str:
    """Return ``text`` with ``old`` replaced, where it occurs once, or everywhere with ``replace_all``.

    Raises :class:`ToolFailedError` if it does not occur, or occurs more than once without ``replace_all``.
    """
    if old == new:
        raise ToolFailedError("oldString and newString are the same, so there is nothing to change")
    # White space alone is matched only exactly.
    strategies = STRATEGIES if old.strip() else (exact,) if old else ()
    # A lenient match that is much larger than the quoted text is probably wrong.
    quoted_lines, quoted_size = old.count("\n") + 1, len(old.strip())
    max_lines = max(2 * quoted_lines, quoted_lines + 3)
    max_size = max(4 * quoted_size, quoted_size + 500) if quoted_lines > 1 else len(text)
    is_ambiguous = is_too_large = False
    seen: set[str] = set()
    for strategy in strategies:
        for proposed in strategy(text, old):
            if proposed in seen:
                continue
            seen.add(proposed)
            piece = _with_same_end(text, proposed, old)
            if not piece or piece not in text:
                continue
            if piece.count("\n") + 1 > max_lines or len(piece.strip()) > max_size:
                is_too_large = True
            elif replace_all:
                return text.replace(piece, new)
            elif text.find(piece) == text.rfind(piece):
                return text.replace(piece, new, 1)
            else:
                is_ambiguous = True
    if is_ambiguous:
        raise ToolFailedError(_NOT_UNIQUE)
    raise ToolFailedError(_TOO_LARGE if is_too_large else _NOT_FOUND)


def _with_same_end(text: str, piece: str, old: str) -> str:
    """Return ``piece`` with the end of its last line if ``old`` has one, and without it otherwise."""
    if piece.endswith("\n") or old.endswith("\r"):
        return piece
    whole = piece.removesuffix("\r")
    if not old.endswith("\n"):
        return whole
    return next((whole + end for end in ("\r\n", "\n") if whole + end in text), whole)


# Strategies.


class _Budget:
    """Bounds the work of a strategy: in a file that repeats one line, every part looks like every other."""

    def __init__(self) -> None:
        self._lines = _MAX_COMPARED_LINES

    def spend(self, lines: int) -> None:
        self._lines -= lines
        if self._lines < 0:
            raise ToolFailedError(_TOO_REPETITIVE)


def exact(text: str, old: str) -> Iterator[str]:
    """Propose the text itself."""
    yield old


def line_trimmed(text: str, old: str) -> Iterator[str]:
    """Propose lines that are equal except for the white space at either end."""
    quoted = [line.strip() for line in _quoted_lines(old)]
    lines = text.split("\n")
    trimmed = [line.strip() for line in lines]
    budget = _Budget()
    for start in range(len(lines) - len(quoted) + 1):
        end = start + len(quoted)
        if trimmed[start] == quoted[0] and trimmed[end - 1] == quoted[-1]:
            budget.spend(len(quoted))
            if trimmed[start:end] == quoted:
                yield "\n".join(lines[start:end])


def block_anchor(text: str, old: str) -> Iterator[str]:
    """Propose the block whose first and last lines match and whose other lines are the most similar."""
    quoted = _quoted_lines(old)
    if len(quoted) < 3:
        return
    from rapidfuzz.distance.Levenshtein import normalized_similarity  # most texts are found exactly

    lines = text.split("\n")
    best, best_score = None, _MIN_SIMILARITY
    budget = _Budget()
    for start, end in _anchored(lines, quoted[0].strip(), quoted[-1].strip()):
        if len(quoted) - 2 < best_score * (end - start - 1):  # too long to reach the score
            continue
        inner, inner_quoted = lines[start + 1 : end], quoted[1:-1]
        # A missing or an additional line counts as wholly different.
        count = max(len(inner), len(inner_quoted))
        pairs = list(zip(inner, inner_quoted, strict=False))
        budget.spend(count + sum(len(one) * len(other) for one, other in pairs) // _PAIRS_A_LINE)
        score = sum(normalized_similarity(one.strip(), other.strip()) for one, other in pairs) / count if count else 1.0
        if score >= best_score and (best is None or score > best_score):
            best, best_score = (start, end), score
    if best is not None:
        yield "\n".join(lines[best[0] : best[1] + 1])


def whitespace_normalized(text: str, old: str) -> Iterator[str]:
    """Propose the same words in the same order, with other white space between them."""
    quoted = " ".join(old.split())
    count = len(_quoted_lines(old))
    lines = text.split("\n")
    collapsed = [" ".join(line.split()) for line in lines]
    if count > 1:
        budget = _Budget()
        # Characters up to each line, with a space behind every line that is not empty.
        sizes = [0, *accumulate(len(line) + bool(line) for line in collapsed)]
        for start in range(len(lines) - count + 1):
            if sizes[start + count] - sizes[start] == len(quoted) + 1:
                budget.spend(count)
                if " ".join(filter(None, collapsed[start : start + count])) == quoted:
                    yield "\n".join(lines[start : start + count])
        return
    words = re.compile(r"\s+".join(map(re.escape, old.split())))
    for line, folded in zip(lines, collapsed, strict=True):
        if folded == quoted:
            yield line
        elif quoted in folded and (match := words.search(line)):
            yield match[0]


def indentation_flexible(text: str, old: str) -> Iterator[str]:
    """Propose the same lines at another depth of indentation."""
    quoted = _outdented(_quoted_lines(old))
    first, last = quoted[0].strip(), quoted[-1].strip()
    lines = text.split("\n")
    trimmed = [line.strip() for line in lines]
    budget = _Budget()
    for start in range(len(lines) - len(quoted) + 1):
        end = start + len(quoted)
        if trimmed[start] == first and trimmed[end - 1] == last:
            budget.spend(len(quoted))
            if _outdented(lines[start:end]) == quoted:
                yield "\n".join(lines[start:end])


def escape_normalized(text: str, old: str) -> Iterator[str]:
    r"""Propose the same text with escapes such as ``\n`` and ``\"`` resolved."""
    if "\\" not in old and "\\" not in text:
        return
    quoted = _unescaped(old)
    if quoted in text:
        yield quoted
    yield from _windows(text, quoted, quoted.count("\n") + 1, _unescaped)


def trimmed_boundary(text: str, old: str) -> Iterator[str]:
    """Propose the same text without the white space around it."""
    quoted = old.strip()
    if quoted == old:
        return
    if quoted in text:
        yield quoted
    yield from _windows(text, quoted, old.count("\n") + 1, str.strip)


def context_aware(text: str, old: str) -> Iterator[str]:
    """Propose blocks of as many lines, with equal first and last line and at least half of the others equal."""
    quoted = _quoted_lines(old)
    if len(quoted) < 3:
        return
    lines = text.split("\n")
    budget = _Budget()
    for start, end in _anchored(lines, quoted[0].strip(), quoted[-1].strip()):
        if end - start + 1 != len(quoted):
            continue
        budget.spend(len(quoted))
        between = zip(lines[start + 1 : end], quoted[1:-1], strict=True)
        pairs = [(one.strip(), other.strip()) for one, other in between if one.strip() or other.strip()]
        same = sum(one == other for one, other in pairs)
        if not pairs or same >= len(pairs) / 2:
            yield "\n".join(lines[start : end + 1])


STRATEGIES: tuple[Strategy, ...] = (
    exact,
    line_trimmed,
    block_anchor,
    whitespace_normalized,
    indentation_flexible,
    escape_normalized,
    trimmed_boundary,
    context_aware,
)


def _anchored(lines: Sequence[str], first: str, last: str) -> Iterator[tuple[int, int]]:
    """Yield where a block may begin, and the nearest line behind it where it may end."""
    trimmed = [line.strip() for line in lines]
    ends = [index for index, line in enumerate(trimmed) if line == last]
    for start, line in enumerate(trimmed):
        nearest = bisect_left(ends, start + 2)
        if line == first and nearest < len(ends):
            yield start, ends[nearest]


def _windows(text: str, quoted: str, count: int, form: Callable[[str], str]) -> Iterator[str]:
    """Yield every run of ``count`` lines that is ``quoted`` in a form."""
    lines = text.split("\n")
    # A backslash at the end of a line may belong to what follows.
    formed = [form(line) for line in lines]
    budget = _Budget()
    for start in range(len(lines) - count + 1):
        end = start + count
        if quoted.startswith(formed[start].rstrip("\\")) and quoted.endswith(formed[end - 1]):
            budget.spend(count)
            piece = "\n".join(lines[start:end])
            if form(piece) == quoted:
                yield piece


def _quoted_lines(old: str) -> list[str]:
    lines = old.split("\n")
    return lines[:-1] if len(lines) > 1 and not lines[-1].strip() else lines


def _outdented(lines: Sequence[str]) -> list[str]:
    filled = [line for line in lines if line.strip()]
    depth = min((len(line) - len(line.lstrip()) for line in filled), default=0)
    return [line[depth:].rstrip("\r") if line.strip() else "" for line in lines]


def _unescaped(text: str) -> str:
    return _ESCAPED.sub(lambda match: _ESCAPES.get(match[1], match[1]), text)
