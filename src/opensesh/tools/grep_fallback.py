"""Replacement for ripgrep, run as a separate program: ``python -I grep_fallback.py PATTERN < FILES``.

Paths come on standard input, separated by NUL; matches go to standard output as ripgrep writes them with ``--null``:
path, NUL, line number, colon, line. With ``--spans`` lines come on standard input, separated by NUL, and for each a
line goes to standard output with where the pattern matches: ``START:END START:END``, in bytes.

It is a process, not a thread, because some patterns keep Python's regular expressions busy forever, and only a process
can be stopped then. It needs only the standard library.
"""

from __future__ import annotations

import re
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

_CHUNK_BYTES = 1 << 20
_MAX_LINE_BYTES = 32 << 20
_CLASSES = {
    "alpha": "a-zA-Z",
    "digit": "0-9",
    "alnum": "a-zA-Z0-9",
    "upper": "A-Z",
    "lower": "a-z",
    "space": r"\s",
    "word": r"\w",
    "punct": r"!-/:-@\[-`{-~",
    "xdigit": "0-9A-Fa-f",
}


def python_pattern(pattern: str) -> str:
    """Translate a pattern of ripgrep to Python's syntax."""
    pattern = re.sub(r"\[:(\w+):\]", lambda match: _CLASSES.get(match[1], match[0]), pattern)
    pattern = re.sub(r"\(\?<(?=[A-Za-z_])", "(?P<", pattern)
    return re.sub(r"\\z", r"\\Z", pattern)


def main() -> int:
    """Return 0 for matches, 1 for none, 2 for an invalid pattern, as ripgrep does."""
    try:
        expression = re.compile(python_pattern(sys.argv[1]))
    except re.error as error:
        sys.stderr.write(f"regex parse error: {error}\n")
        return 2
    return _write_spans(expression) if sys.argv[2:] == ["--spans"] else _write_matches(expression.search)


def _write_spans(expression: re.Pattern[str]) -> int:
    for raw in sys.stdin.buffer.read().split(b"\0"):
        line = raw.decode("utf-8", "replace")
        ends = ([len(line[:end].encode()) for end in match.span()] for match in expression.finditer(line))
        sys.stdout.write(" ".join(f"{start}:{end}" for start, end in ends) + "\n")
    return 0


def _write_matches(find: Callable[[str], object]) -> int:
    out = sys.stdout.buffer
    has_match = False
    for name in filter(None, sys.stdin.buffer.read().split(b"\0")):
        try:
            with open(name, "rb") as file:
                if any(b"\0" in chunk for chunk in iter(lambda: file.read(_CHUNK_BYTES), b"")):
                    continue  # binary
                file.seek(0)
                # Line by line: the file may be larger than the memory.
                for number, raw in enumerate(iter(lambda: file.readline(_MAX_LINE_BYTES), b""), 1):
                    line = raw.removesuffix(b"\n")
                    if find(line.decode("utf-8", "replace").rstrip("\r")):
                        has_match = True
                        out.write(b"%s\0%d:%s\n" % (name, number, line))
        except OSError:
            continue
        out.flush()
    return 0 if has_match else 1


if __name__ == "__main__":
    sys.exit(main())
