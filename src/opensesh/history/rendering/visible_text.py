"""Text that shows every character: control and invisible characters become visible marks instead of acting.

A bidirectional override can make a command look like another one, a zero-width character can hide in a path, and a
terminal sequence can do either.
"""

from __future__ import annotations

import re

from markupsafe import Markup, escape

HIDDEN = (
    r"\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f"  # controls
    "\u202a-\u202e\u2066-\u2069"  # changes of direction
    "\u200b\u2028\u2029\u2060-\u2064\ufeff\U000e0000-\U000e007f"  # without width
    "\ud800-\udfff"  # halves of characters
)
"""Characters that cannot be seen or that change how others are seen, as the content of a regular expression's set."""
_HIDDEN_IN_PROSE = re.compile(rf"([{HIDDEN}])\1*")
# Emoji and several scripts need joiners and direction marks; commands, paths and code do not.
_HIDDEN_IN_CODE = re.compile(rf"([{HIDDEN}\u200c-\u200f\u00ad])\1*")
_LINE_END = re.compile(r"\r\n?")


def prose(text: str) -> Markup:
    """Escape text that people write, with marks for what is invisible or changes the direction of other text."""
    return _visible(text, _HIDDEN_IN_PROSE)


def code(text: str) -> Markup:
    """Escape code, commands, paths and output, with marks for every character that cannot be seen."""
    return _visible(text, _HIDDEN_IN_CODE)


def visible(text: str) -> str:
    """Return a name or a title with the code points of its hidden characters, also for attributes."""
    return _HIDDEN_IN_PROSE.sub(lambda characters: f"[{_code_point(characters)}]", text)


def one_line(text: str, limit: int = 200) -> str:
    """Return the beginning of a text as one line."""
    line = " ".join(text[: 4 * limit].split())
    return line if len(line) <= limit and len(text) <= 4 * limit else f"{line[: limit - 1]}…"


def _visible(text: str, hidden: re.Pattern[str]) -> Markup:
    text = _LINE_END.sub("\n", text) if "\r" in text else text
    if hidden.search(text) is None:
        return escape(text)
    # The marks contain nothing that has to be escaped, and escaping makes no hidden character.
    return Markup(hidden.sub(lambda run: f'<i class="unseen">{_code_point(run)}</i>', str(escape(text))))  # noqa: S704


def _code_point(characters: re.Match[str]) -> str:
    name, count = f"U+{ord(characters[1]):04X}", len(characters[0])
    return f"{name}*{count}" if count > 1 else name
