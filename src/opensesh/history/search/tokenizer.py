"""Text as the index knows it.

SQLite's ``unicode61`` makes words of letters and digits; everything else, the underscore too, stands between words, so
``parse_config`` is found as a whole and by its parts. Two things it cannot do are done here before it sees a text:

* the parts of ``parseConfigFile`` are added behind the text, so that ``config`` finds it;
* scripts written without spaces (Chinese, Japanese, Korean, Thai, ...) become overlapping pairs of characters. Pairs
  find a word of two characters, which trigrams cannot, and took 40 % less room and 20 % less time.

Also the vocabulary: every word there is, by which words that *contain* something are found. It is made from the index
when it is first needed, and kept up to date from then on.
"""

from __future__ import annotations

import re

LONGEST = 128
"""Longer runs of letters and digits are data, not words."""

BARRIER = "ǁ"
"""Stands between identifiers' parts, so that no phrase is found across two of them. A letter, and a very rare one."""

_MOST_TEXT = 1_000_000
"""Of a text longer than this, only so many characters are searched."""

_MOST_SEEN = 200_000
_UNSPACED = re.compile(
    "["
    "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff"  # Thai, Lao, Burmese, Khmer
    "\u2e80-\u2fdf\u3005-\u3007\u3021-\u3029\u3031-\u3035\u3041-\u312f\u3131-\u318e\u31a0-\u31ff"  # kana, radicals
    "\u3400-\u4dbf\u4e00-\u9fff\ua960-\ua97f\uac00-\ud7ff\uf900-\ufaff\uff66-\uff9f"  # ideographs, Hangul
    "\U00020000-\U0003ffff"
    "]+"
)
_SHAPE = bytes(85 if 65 <= c <= 90 else 108 if 97 <= c <= 122 or 48 <= c <= 57 else 32 for c in range(256))
_LOWER = bytes(c + 32 if 65 <= c <= 90 else c if 97 <= c <= 122 or 48 <= c <= 57 or c > 127 else 32 for c in range(256))
_RUNS = bytes(c > 127 or chr(c).isalnum() for c in range(256))
_LONG_RUN = b"\1" * (LONGEST + 1)
_PARTS = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z0-9]+")
_DATA = re.compile(rf"[^\W_]{{{LONGEST + 1},}}")


class Words:
    """Prepares texts for the index; ``gathering``, it also gathers the words that are new in them."""

    def __init__(self, *, gathering: bool) -> None:
        self._gathering = gathering
        self._seen: set[bytes] = set()
        self._fresh: set[bytes] = set()

    def take(self, text: str) -> str:
        """``text`` as it goes into the index."""
        if not text:
            return ""
        text = clean(text[:_MOST_TEXT])
        data = text.encode()
        parts = [BARRIER + " " + " ".join(split(name)) for name in _identifiers(data)]
        if not text.isascii():
            text = fold(text)
            data = text.encode()
        if _LONG_RUN in data.translate(_RUNS):
            text = _DATA.sub(" ", text)
            data = text.encode()
        if self._gathering:
            words = set(data.translate(_LOWER).split()) - self._seen
            self._seen |= words
            self._fresh |= words
        return f"{text} {' '.join(parts)}" if parts else text

    def fresh(self) -> list[str]:
        """The words not seen before, since this was last asked; call it now and then, to keep memory flat."""
        found = [word.decode() for word in self._fresh]
        self._fresh.clear()
        if len(self._seen) > _MOST_SEEN:
            self._seen.clear()
        return found


def clean(text: str) -> str:
    """``text`` as SQLite takes it: half characters become question marks."""
    return text if text.isascii() else text.encode(errors="replace").decode()


def fold(text: str) -> str:
    """``text`` with what looks alike made the same, and pairs made of scripts without spaces."""
    if text.isascii():
        return text
    from unicodedata import normalize

    return _UNSPACED.sub(_pairs, normalize("NFKC", text).lower())


def fold_query(text: str) -> str:
    """The same for what is looked for, whose end may be in the middle of a run of such a script."""
    folded = fold(text).rstrip()
    before, _, last = folded.rpartition(" ")
    return before if is_unspaced(last) and before[-1:] == last else folded


def is_unspaced(text: str) -> bool:
    """Whether ``text`` is all of a script without spaces."""
    return bool(_UNSPACED.fullmatch(text))


def identifiers(text: str) -> list[str]:
    """The names with humps in ``text``, each once: ``parseConfigFile``, ``HTTPServer``."""
    return _identifiers(clean(text).encode())


def _identifiers(data: bytes) -> list[str]:
    shape = data.translate(_SHAPE)
    found: dict[bytes, None] = {}
    for hump in (b"lU", b"UUl"):
        at = shape.find(hump)
        while at >= 0:
            start = shape.rfind(b" ", 0, at) + 1
            end = shape.find(b" ", at)
            if end < 0:
                end = len(shape)
            if end - start <= LONGEST:
                found[data[start:end]] = None
            at = shape.find(hump, end)
    return [name.decode() for name in found]


def split(name: str) -> list[str]:
    """The parts of a name with humps."""
    return _PARTS.findall(name)


def _pairs(run: re.Match[str]) -> str:
    text = run[0]
    # The last character on its own is what a search for one character at the end of a run finds.
    return " " + " ".join([text[at : at + 2] for at in range(len(text))]) + " "
