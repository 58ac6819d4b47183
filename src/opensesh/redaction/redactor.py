"""The redactor: removes secrets from texts and JSON values, and counts what was removed.

Only texts change, including the names of fields, so the JSON stays valid and complete. A secret is replaced by the name
of its rule: ``[redacted:github-token]``. It is also recognised if it contains invisible characters, terminal codes or
escaped characters, or if a line break splits a token. The time for a text is proportional to its length.
"""

from __future__ import annotations

import binascii
import re
from base64 import b64decode, b64encode
from bisect import bisect_right
from codecs import BOM_UTF16_BE, BOM_UTF16_LE
from collections import Counter
from contextlib import suppress
from functools import lru_cache, reduce
from typing import TYPE_CHECKING, Any, NamedTuple
from unicodedata import normalize
from urllib.parse import unquote

from ..records import Document, as_list, as_object
from .known_secrets import encoded_forms, escaped_forms
from .secret_patterns import (
    BY_NAME,
    HOME_FOLDERS,
    LONG_WORDS,
    NAME_HINTS,
    NAMES,
    RULES,
    SECRET_FIELDS,
    WORD_CHARACTERS,
    RedactionRule,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator


_MIN_SECRET_LENGTH = 8
_DATA_URL = re.compile(
    r"data:(?P<kind>[\w.+-]*+(?:/[\w.+-]*+)?)(?:;[\w.+-]+(?:=[^;,\s]*)?)*;base64,(?P<content>[\w+/=%\s-]*)",
    re.ASCII | re.IGNORECASE,
)
_MAX_KEY_BYTES = 300
_URL_BASE64 = str.maketrans("-_", "+/")
_TEXT_TYPES = re.compile(r"text/|application/(?:json|xml|x-|javascript|toml|yaml)|\Z", re.IGNORECASE)

_WITHOUT_WIDTH = (
    "[\u00ad\u0300-\u036f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180e\u200b-\u200f\u202a-\u202e\u2060-\u206f\u3164"
    "\ufe00-\ufe0f\ufeff\uffa0\U000e0000-\U000e0fff\x00-\x08\x0e-\x1a\x1c-\x1f\x7f]+"
    # and as they are written in JSON, HTML and URLs
    r"|\\u(?:00[aA][dD]|200[b-fB-F]|202[a-eA-E]|206[0-9a-fA-F]|[fF][eE][fF][fF])"
    r"|&(?:#(?:173|820[3-7]|8288|65279|[xX](?:[aA][dD]|200[b-fB-F]|2060|[fF][eE][fF][fF]))|shy|zwn?j|ZeroWidthSpace);"
    r"|%[eE]2%80%8[b-fB-F]"
)
_TERMINAL_CODES = (
    r"(?:[\x1b]|\\(?:u001[bB]|x1[bB]|033|e))\[[0-?]*+[ -/]*+[@-~]"
    r"|\x9b[0-?]*+[ -/]*+[@-~]"
    r"|\x1b[]PX^_][^\x07\x1b]*+(?:\x07|\x1b\\)?|\x1b[ -/]*+[0-~]"
)
_INVISIBLE = re.compile(f"{_WITHOUT_WIDTH}|{_TERMINAL_CODES}")
_NOT_CODES = re.compile(_WITHOUT_WIDTH)
_ESCAPE_CHARACTERS = str.maketrans("\x1b\x9b", "  ")
_INVISIBLE_ASCII = re.compile(r"[\x00-\x08\x0e-\x1f\x7f]|\\(?:u|x1|033|e\[)|&(?:#|shy|zw|Zero)|%[eE]2%80")

# Single characters as they are written in URLs, JSON, source code and HTML.
_ESCAPE = re.compile(
    r"%(?:u00)?(?P<percent>[0-7][0-9a-fA-F])"
    r"|(?<!\\)\\{1,8}+(?:(?:u00|x|u\{0{0,4}|U000000)(?P<code>[0-7][0-9a-fA-F])\}?|0?(?P<octal>[01][0-7]{2})|(?P<line>[nr]))"
    r"|&#(?:[xX]0{0,4}(?P<hex>[0-7][0-9a-fA-F])|0{0,4}(?P<number>\d{2,3}));|&(?P<ampersand>amp);"
)
_ESCAPE_LEVELS = 2
"""How many times escapes are replaced: text that was escaped twice is recognised, such as ``%2573``."""
_STYLED = re.compile(
    "[\u00b2\u00b3\u00b9\u017f\u2010-\u2015\u2070-\u209c\u2100-\u2138\u2212\u2460-\u24ff\ufe58\ufe63\uff01-\uff5e"
    "\U0001d400-\U0001d7ff\U0001f130-\U0001f149]"
)
"""Letters, digits and hyphens in another width or style."""
_HYPHENS = frozenset("\u2010\u2011\u2012\u2013\u2014\u2015\u2212\ufe58")

_SPACE = re.compile(r"\s")

# A line break within a word, with indentation, or between two strings that the source code joins.
_LINE_BREAK = r"(?:[\"'][ \t]*+[+\\]?|\\)?[ \t]*+\r?\n[ \t]*+(?:\+[ \t]*+)?[\"']?"
_SPLIT_WORDS = re.compile(rf"(?<![{WORD_CHARACTERS}])[{WORD_CHARACTERS}]++(?:{_LINE_BREAK}[{WORD_CHARACTERS}]++)++")
_BREAKS = re.compile(_LINE_BREAK)
_LIKE_A_KEY = re.compile(r"\d|[a-z][A-Z]")
"""Found in the rest of a key that continues on the next line, but not in an ordinary word that follows a key."""

_KEPT_IN_KNOWN = re.compile(r"[^\s\"'`\\+]+")
"""What is compared with known secrets. The rest, such as line breaks and what joins strings in source code, may stand
between two characters of a secret."""

_match_secret_field = lru_cache(maxsize=10_000)(SECRET_FIELDS.fullmatch)
_WORD_HINTS = [(hint, rule) for rule in RULES if rule.word for hint in rule.hint.split("|")]
_DISTINCT_HINTS = [(hint, rule) for hint, rule in _WORD_HINTS if rule.distinct]
_TEXT_RULES = [rule for rule in RULES if not rule.word]


class _Span(NamedTuple):
    """A secret in a text."""

    start: int
    end: int
    name: str


class _Excerpt:
    """A text with some of its characters left out, and where the others are in the original."""

    def __init__(self, runs: Iterable[tuple[int, str] | tuple[int, str, int]]) -> None:
        """``runs`` are what is kept, each with its position in the original, and its length there if that differs."""
        self._origins: list[int] = []
        self._starts: list[int] = []
        self._added: list[int] = []
        kept: list[str] = []
        length = 0
        for origin, run, *lengths in runs:
            self._origins.append(origin)
            self._starts.append(length)
            self._added.append(lengths[0] - len(run) if lengths else 0)
            kept.append(run)
            length += len(run)
        self.text = "".join(kept)
        self.breaks = self._starts[1:]
        """The positions in this text where something was left out of the original."""

    def original(self, span: _Span) -> _Span:
        """Return where a part of this text is in the original."""
        first, last = (bisect_right(self._starts, position) - 1 for position in (span.start, span.end - 1))
        start = self._origins[first] + span.start - self._starts[first]
        # A run of another length is one character, so that what ends in it ends with it.
        return _Span(start, self._origins[last] + span.end - self._starts[last] + self._added[last], span.name)


class Redactor:
    """Replaces secrets, and counts the replacements by rule."""

    def __init__(self, known: Iterable[str] = (), *, paths: bool = False) -> None:
        """``known`` are secrets that are removed in any form, see
        :func:`~opensesh.redaction.known_secrets`. With ``paths``, home folders are replaced by ``~`` as well."""
        self.known = tuple(sorted(known))
        self.paths = paths
        self.counts: Counter[str] = Counter()
        # The longest first: one secret may be the beginning of another.
        escaped = {_without_ignored(form) for secret in self.known for form in escaped_forms(secret)}
        encoded = {_without_ignored(form) for secret in self.known for form in encoded_forms(secret)}
        self._escaped = sorted((form for form in escaped if len(form) >= _MIN_SECRET_LENGTH), key=len, reverse=True)
        self._encoded = sorted(encoded, key=len, reverse=True)

    def value(self, value: Any) -> Any:
        """Return a JSON value of the same shape without secrets; the same object if there was nothing to replace."""
        if isinstance(value, str):
            return self.text(value)
        if (document := as_object(value)) is not None:
            return self.document(document)
        items = as_list(value)
        if items is None:
            return value
        redacted = [self.value(item) for item in items]
        return redacted if any(new is not old for new, old in zip(redacted, items, strict=True)) else items

    def document(self, document: Document) -> Document:
        """Return an object without secrets. The text of a field named like a secret is replaced as a whole."""
        changed: Document = {}
        renamed: dict[str, str] = {}
        for name, value in document.items():
            if len(name) >= _MIN_SECRET_LENGTH and (new_name := self.text(name)) != name:
                renamed[name] = new_name
            if not isinstance(value, str):
                redacted = self.value(value)
            elif not value:
                continue
            elif _match_secret_field(name):
                redacted = value if value.startswith("[redacted:") else self._placeholder("secret-field")
            else:
                redacted = self.text(value)
            if redacted is not value:
                changed[name] = redacted
        result = {**document, **changed} if changed else document
        return _rename_fields(result, renamed) if renamed else result

    def text(self, text: str) -> str:
        """Return a text without secrets. An attachment (a ``data:`` URL) is decoded if it contains text."""
        if len(text) < _MIN_SECRET_LENGTH:
            return text
        if text[:5].lower() == "data:" and (url := _DATA_URL.fullmatch(text)):
            return self._attachment(url)
        return self._plain_text(text)

    def _plain_text(self, text: str) -> str:
        if text.isascii() and not _INVISIBLE_ASCII.search(text):
            spans = self._find_in_visible(text)
        else:
            visible = _Excerpt(_runs_between(_INVISIBLE, text))
            spans = self._find_in(visible, visible.text)
            # A title of a window or the address of a link is a part of a code; and what looks like one may be a secret.
            codes = _Excerpt(_runs_between(_NOT_CODES, text))
            if codes.text != visible.text:
                spans += self._find_in(codes, codes.text.translate(_ESCAPE_CHARACTERS))
        plain, levels = text, list[_Excerpt]()
        while len(levels) < _ESCAPE_LEVELS and _ESCAPE.search(plain):
            levels.insert(0, _Excerpt(_unescaped_words(plain)))
            plain = levels[0].text
            spans += [
                reduce(lambda at, level: level.original(at), levels, span) for span in self._find_in_visible(plain)
            ]
        if spans:
            text = self._replace(text, spans)
        if self.paths and ("/" in text or "\\" in text):
            text, count = HOME_FOLDERS.subn("~", text)
            if count:
                self.counts["home-folder"] += count
        return text

    def _find_in(self, excerpt: _Excerpt, text: str) -> list[_Span]:
        return [excerpt.original(span) for span in self._find_in_visible(_STYLED.sub(_plain, text))]

    def _find_in_visible(self, text: str) -> list[_Span]:
        # Most texts contain no secret; the hints tell that without trying every pattern.
        words = LONG_WORDS.findall(text)
        spans: list[_Span] = []
        if words:
            lowered_words = " ".join(words).lower()
            if likely := _likely_rules(_WORD_HINTS, lowered_words):
                spans += [
                    _Span(word.start() + span.start, word.start() + span.end, span.name)
                    for word in LONG_WORDS.finditer(text)
                    for span in _matches(likely, word[0])
                ]
        if "\n" in text:
            spans += _find_split_tokens(text)
        lowered = text.lower()
        spans += _matches([rule for rule in _TEXT_RULES if _is_likely(rule, lowered)], text)
        return spans + self._find_known(text, words) if self.known else spans

    def _find_known(self, text: str, words: list[str]) -> list[_Span]:
        solid = _without_ignored(text)
        # Encoded text may be wrapped: it continues with the first word of the next line, even a short one.
        encoded = _without_ignored("".join(words)) + "\0" + _without_ignored("".join(_words_at_line_breaks(text)))
        forms = [form for form in self._escaped if form in solid] + [form for form in self._encoded if form in encoded]
        if not forms:
            return []
        excerpt = _Excerpt((run.start(), run[0]) for run in _KEPT_IN_KNOWN.finditer(text))
        spans: list[_Span] = []
        for form in forms:
            start = excerpt.text.find(form)
            while start >= 0:
                spans.append(excerpt.original(_Span(start, start + len(form), "known-secret")))
                start = excerpt.text.find(form, start + len(form))
        return spans

    def _replace(self, text: str, spans: list[_Span]) -> str:
        """Replace secrets. Where several overlap, the first that was found gives its name to all of them."""
        pieces: list[str] = []
        position = 0
        for start, end, name in _merge_overlapping(spans):
            pieces += [text[position:start], self._placeholder(name)]
            position = end
        return "".join([*pieces, text[position:]])

    def _attachment(self, url: re.Match[str]) -> str:
        """Return an attachment without the secrets in its text; the type that it names is ignored. Pictures and
        archives contain no text: what looks like a key in their Base64 is chance."""
        start, content = url[0][: url.start("content")], url["content"]
        digits = "".join(unquote(content).split()).translate(_URL_BASE64).rstrip("=")
        try:
            data = b64decode(digits + "=" * (-len(digits) % 4), validate=True)
        except binascii.Error:
            return self._plain_text(url[0])
        encoding = _text_encoding(data, is_text=_TEXT_TYPES.match(url["kind"]) is not None)
        if encoding is None and len(data) > _MAX_KEY_BYTES:
            return self._plain_text(start) + content
        if encoding is not None:
            plain = data.decode(encoding)
            redacted = self._plain_text(plain)
            if redacted != plain:
                content = b64encode(redacted.encode(encoding)).decode()
        return self._plain_text(start + content)

    def _placeholder(self, name: str) -> str:
        self.counts[name] += 1
        return f"[redacted:{name}]"


def _text_encoding(data: bytes, *, is_text: bool) -> str | None:
    """Return how the text in an attachment is encoded; ``None`` if there is none."""
    for encoding in ("utf-16", "utf-8") if data.startswith((BOM_UTF16_LE, BOM_UTF16_BE)) else ("utf-8",):
        with suppress(UnicodeDecodeError):
            data.decode(encoding)
            return encoding
    return "latin-1" if is_text else None


def _rename_fields(document: Document, renamed: dict[str, str]) -> Document:
    """Rename fields in place; a name that exists already gets a number, so that no field is lost."""
    result: Document = {}
    names = set(document) - set(renamed)
    for name, value in document.items():
        new_name = first_choice = renamed.get(name, name)
        number = 1
        while name in renamed and new_name in names:
            number += 1
            new_name = f"{first_choice} {number}"
        names.add(new_name)
        result[new_name] = value
    return result


def _likely_rules(hints: list[tuple[str, RedactionRule]], lowered: str) -> list[RedactionRule]:
    return [rule for hint, rule in hints if hint in lowered]


def _is_likely(rule: RedactionRule, lowered: str) -> bool:
    if rule.hint is not BY_NAME:
        return rule.hint in lowered
    has_name = (":" in lowered or "=" in lowered) and any(name in lowered for name in NAME_HINTS)
    return has_name and NAMES.search(lowered) is not None


def _matches(rules: Iterable[RedactionRule], text: str) -> Iterator[_Span]:
    for rule in rules:
        group = "secret" if "secret" in rule.pattern.groupindex else 0
        for match in rule.pattern.finditer(text):
            if not match[group].startswith("[redacted:"):
                yield _Span(*match.span(group), rule.name)


def _words_at_line_breaks(text: str) -> Iterator[str]:
    """Yield the first and the last word of every line, without the brackets around them."""
    for line in text.split("\n") if "\n" in text else ():
        words = line.split(None, 1)
        if words:
            yield words[0].strip("()[],;")
        if len(words) > 1:
            yield words[1].rsplit(None, 1)[-1].strip("()[],;")


def _find_split_tokens(text: str) -> Iterator[_Span]:
    """Yield the tokens that continue on the next line."""
    likely = _likely_rules(_DISTINCT_HINTS, _without_ignored("".join(_SPLIT_WORDS.findall(text))).lower())
    for chunk in _SPLIT_WORDS.finditer(text) if likely else ():
        joined = _Excerpt(_runs_between(_BREAKS, chunk[0]))
        for span in _matches(likely, joined.text):
            if end := _end_of_split_token(joined, span):
                start, end, _ = joined.original(span._replace(end=end))
                yield _Span(chunk.start() + start, chunk.start() + end, span.name)


def _end_of_split_token(joined: _Excerpt, span: _Span) -> int:
    """Return where a token ends that continues on the next line; 0 if what is there is not a part of it."""
    token_end = 0
    inner = joined.breaks[bisect_right(joined.breaks, span.start) : bisect_right(joined.breaks, span.end - 1)]
    for start, end in zip(inner, [*inner[1:], span.end], strict=False):
        is_cut_off = joined.text[end : end + 1] in tuple("=:/.") if end == span.end else False
        if is_cut_off or not _LIKE_A_KEY.search(joined.text, start, end):
            break
        token_end = end
    return token_end


def _unescaped_words(text: str) -> Iterator[tuple[int, str, int]]:
    """Yield the words that contain escapes, with the characters in their places that the escapes stand for."""
    position = word_end = 0
    for match in _ESCAPE.finditer(text):
        start, end = match.span()
        if start >= word_end:
            if word_end:
                yield position, f"{text[position:word_end]} ", word_end - position + 1
            position = 1 + max(text.rfind(" ", word_end, start), text.rfind("\n", word_end, start), word_end - 1)
            space = _SPACE.search(text, end)
            word_end = space.start() if space else len(text)
        if start > position:
            yield position, text[position:start], start - position
        yield start, _character(match), end - start
        position = end
    yield position, text[position:word_end], word_end - position


def _character(escape: re.Match[str]) -> str:
    if digits := escape["percent"] or escape["code"] or escape["hex"]:
        return chr(int(digits, 16))
    if escape["octal"]:
        return chr(int(escape["octal"], 8))
    return chr(int(escape["number"])) if escape["number"] else "\n" if escape["line"] else "&"


def _plain(match: re.Match[str]) -> str:
    """Return a character of another style as the plain one, if that is a single one: positions stay what they are."""
    character = "-" if match[0] in _HYPHENS else normalize("NFKC", match[0])
    return character if len(character) == 1 else match[0]


def _runs_between(pattern: re.Pattern[str], text: str) -> Iterator[tuple[int, str]]:
    """Yield what is between the matches of a pattern, with its position."""
    position = 0
    for match in pattern.finditer(text):
        if match.start() > position:
            yield position, text[position : match.start()]
        position = match.end()
    if position < len(text):
        yield position, text[position:]


def _merge_overlapping(spans: list[_Span]) -> Iterator[_Span]:
    ranked = sorted(enumerate(spans), key=lambda entry: entry[1].start)
    if not ranked:
        return
    rank, merged = ranked[0]
    for other_rank, span in ranked[1:]:
        if span.start >= merged.end:
            yield merged
            rank, merged = other_rank, span
            continue
        name = merged.name if rank < other_rank else span.name
        merged = _Span(merged.start, max(merged.end, span.end), name)
        rank = min(rank, other_rank)
    yield merged


def _without_ignored(text: str) -> str:
    solid = "".join(text.split())
    for character in "\"'`\\+":
        solid = solid.replace(character, "")
    return solid
