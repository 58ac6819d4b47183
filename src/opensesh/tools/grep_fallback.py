"""A stand-in for ripgrep where there is none, run as a program of its own: ``python -I scan.py PATTERN < FILES``.

Files come on standard input, ended by NUL; matches go to standard output as ripgrep writes them with ``--null``:
path, NUL, line number, colon, line. It is a process, and not a thread, because a bad pattern can keep Python's regular
expressions busy for ever, and only a process can be stopped then. It needs the standard library alone.
"""

from __future__ import annotations

import re
import sys

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
    """``pattern`` in Python's spelling, where ripgrep's differs."""
    pattern = re.sub(r"\[:(\w+):\]", lambda found: _CLASSES.get(found[1], found[0]), pattern)
    pattern = re.sub(r"\(\?<(?=[A-Za-z_])", "(?P<", pattern)
    return re.sub(r"\\z", r"\\Z", pattern)


def main() -> int:
    """0 if anything matched, 1 if nothing did, 2 if the pattern is none: as ripgrep."""
    try:
        find = re.compile(python_pattern(sys.argv[1])).search
    except re.error as error:
        sys.stderr.write(f"regex parse error: {error}\n")
        return 2
    out = sys.stdout.buffer
    found = False
    for name in filter(None, sys.stdin.buffer.read().split(b"\0")):
        try:
            with open(name, "rb") as file:
                data = file.read()
        except OSError:
            continue
        if b"\0" in data:
            continue  # no text
        # What follows the last line end is no line, unless there is something.
        for number, line in enumerate(data.removesuffix(b"\n").split(b"\n") if data else (), 1):
            if find(line.decode("utf-8", "replace").rstrip("\r")):
                found = True
                out.write(b"%s\0%d:%s\n" % (name, number, line))
        out.flush()
    return 0 if found else 1


if __name__ == "__main__":
    sys.exit(main())
