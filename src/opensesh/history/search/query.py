"""The query language, parsed into conditions for the full-text table and checks for texts.

``parse config``      both words, in any order
``"parse config"``    one after the other; the same as ``parse_config`` or ``parse.config``
``pars*``             words with this prefix
``*arse*``            words that contain this
``-config``           without this word; ``--config`` is a word like any other, such as an option of a program

No query is an error: a text without letters or digits is searched for literally. A literal text or a regular expression
is checked in the texts themselves; the terms that every match contains select the few texts that have to be read.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

from ...errors import UsageError
from . import tokenizer

if TYPE_CHECKING:
    from collections.abc import Callable

    Check = Callable[[str], bool]

_ATOM = re.compile(r'(-(?!-))?(?:"([^"]*)(?:"(\*?)|$)|(\S+))')
_MAX_WORDS = 200
_GAP = r"[\W_]*"
_BEGIN = r"(?<![^\W_])"
_END = r"(?![^\W_])"
_TOKEN = re.compile("[A-Za-z0-9]+")
_OPTIONAL = re.compile(r"[?*]|\{0?,|\{0\}")
_REPEATED = re.compile(r"[+*?]|\{\d*,?\d*\}")
_ESCAPED_CLASS = re.compile(r"\\[AbBdDsSwWZz]")
_OBSCURE = re.compile(r"\(\?[a-zA-Z]*x|\\[xuUN0-9]")
_CONTROL = {"t": "\t", "n": "\n", "r": "\r", "f": "\f", "v": "\v", "a": "\a"}
_MIN_TERM_LENGTH = 2
_CLASS = re.compile(r"\[\^?\]?(?:\\.|[^\]\\])*\]?", re.DOTALL)


class Atom(NamedTuple):
    """A word or a phrase of a query."""

    text: str
    negated: bool = False
    open_start: bool = False
    """Whether it may be the end of a longer word: ``*arse``."""
    open_end: bool = False
    """Whether it may be the beginning of a longer word: ``pars*``."""


class RequiredTerms(NamedTuple):
    """Words that every match contains. One of the two may be empty; both, if nothing is known."""

    words: tuple[tuple[str, bool], ...]
    """Whole words; with ``True``, prefixes of words."""
    inside: str
    """Letters and digits inside some word."""


class ParsedQuery(NamedTuple):
    """A query, ready to be run."""

    match: str = ""
    """An FTS5 expression; empty if there is none."""
    excluded: tuple[str, ...] = ()
    """FTS5 expressions that must not match."""
    inside: tuple[str, ...] = ()
    """Texts of which each must be contained in some word."""
    either: tuple[RequiredTerms, ...] = ()
    """At least one of these is required; empty if nothing is known."""
    checks: tuple[Check, ...] = ()
    """Checks of each text, for what the full-text table cannot decide."""
    patterns: tuple[re.Pattern[str], ...] = ()
    """Patterns of what to highlight in a text."""
    loose_patterns: tuple[re.Pattern[str], ...] = ()
    """Patterns for texts in which the others match nothing."""


def parse_words(text: str) -> ParsedQuery:
    """Parse words, phrases, prefixes and parts of words; a text without any of them is searched for literally."""
    parsed = ParsedQuery()
    for atom in parse(text):
        parsed = _add(parsed, atom)
    return parsed if parsed != ParsedQuery() else parse_text(text.strip())


def parse_text(text: str) -> ParsedQuery:
    """Parse a literal text; upper and lower case are the same."""
    return _exact(ParsedQuery(), text) if text.strip() else ParsedQuery()


def parse_regex(pattern: str) -> ParsedQuery:
    """Parse a regular expression; case is ignored unless it says ``(?-i:...)``."""
    try:
        compiled = re.compile(pattern, re.IGNORECASE | re.MULTILINE)
    except (re.error, OverflowError, RecursionError) as error:
        raise UsageError(f"{pattern!r} is not a regular expression: {error}") from None
    return ParsedQuery(either=tuple(terms_of_regex(pattern) or ()), checks=(_contains(compiled),), patterns=(compiled,))


def parse(text: str) -> list[Atom]:
    """Return the words and phrases of a query. Punctuation between words is ignored."""
    atoms: list[Atom] = []
    for minus, phrase, star, word in _ATOM.findall(tokenizer.clean(text).replace("\0", " ")):
        if phrase:
            atoms.append(Atom(phrase, bool(minus), open_end=bool(star)))
        elif word and word != "AND":
            plain = word.strip("*") or word
            stars = plain != word
            open_start, open_end = stars and word.startswith("*"), stars and word.endswith("*")
            atoms.append(Atom(plain, bool(minus), open_start, open_end))
    lettered = [atom for atom in atoms if _is_word(atom.text) or " " in atom.text]
    return (lettered or atoms)[:_MAX_WORDS]


def _add(parsed: ParsedQuery, atom: Atom) -> ParsedQuery:
    """Add the condition of a word or phrase to a query."""
    if not _is_word(atom.text):
        return _exact(parsed, atom.text, negated=atom.negated)
    if atom.open_start:
        if not (atom.text.isascii() and atom.text.isalnum() and atom.open_end) or atom.negated:
            return _exact(parsed, atom.text, negated=atom.negated, ends=not atom.open_end)
        pattern = re.compile(re.escape(atom.text), re.IGNORECASE)
        return parsed._replace(inside=(*parsed.inside, atom.text.lower()), patterns=(*parsed.patterns, pattern))
    folded = tokenizer.fold_query(atom.text)
    star = " *" if atom.open_end or tokenizer.is_unspaced(folded.strip()) else ""
    phrase = f"{_quote(folded)}{star}"
    if tokenizer.identifiers(atom.text) == [atom.text]:
        phrase = f"({phrase} OR {_quote(' '.join(tokenizer.split(atom.text)))}{star})"
    if atom.negated:
        return parsed._replace(excluded=(*parsed.excluded, phrase))
    pieces = [piece for piece in re.split(r"[\W_]+", atom.text) if piece]
    humps = [hump for piece in pieces for hump in (tokenizer.split(piece) if tokenizer.identifiers(piece) else [piece])]
    loose = _GAP.join(map(re.escape, humps))
    # Between whole words, except in scripts that do not separate them.
    strict = f"{_BEGIN}{loose}" + ("" if atom.open_end else _END) if atom.text.isascii() else loose
    return parsed._replace(
        match=f"{parsed.match} AND {phrase}" if parsed.match else phrase,
        patterns=(*parsed.patterns, re.compile(strict, re.IGNORECASE)),
        loose_patterns=(*parsed.loose_patterns, re.compile(loose, re.IGNORECASE)),
    )


def _exact(parsed: ParsedQuery, text: str, *, negated: bool = False, ends: bool = False) -> ParsedQuery:
    """Add a literal text; the full-text table narrows down where it can be."""
    pattern = re.compile(re.escape(text) + (_END if ends else ""), re.IGNORECASE)
    if negated:
        return parsed._replace(checks=(*parsed.checks, _contains(pattern, negated=True)))
    terms = required_terms(text)
    match = " AND ".join(filter(None, (parsed.match, match_of(terms))))
    inside = (*parsed.inside, terms.inside) if len(terms.inside) > 1 else parsed.inside
    checks = (*parsed.checks, _contains(pattern))
    return parsed._replace(match=match, inside=inside, checks=checks, patterns=(*parsed.patterns, pattern))


def match_of(terms: RequiredTerms) -> str:
    """Return the FTS5 expression for the words of required terms."""
    return " AND ".join(_quote(word) + (" *" if open_end else "") for word, open_end in terms.words)


def _contains(pattern: re.Pattern[str], *, negated: bool = False) -> Check:
    return lambda text: (pattern.search(text) is None) == negated


def _quote(text: str) -> str:
    return '"' + text.replace('"', '""') + '"'


def _is_word(text: str) -> bool:
    return any(character.isalnum() for character in text)


def required_terms(literal: str) -> RequiredTerms:
    """Return the terms that a text with ``literal`` contains."""
    words: list[tuple[str, bool]] = []
    inside = ""
    for token in _TOKEN.finditer(literal):
        begins = _is_edge(literal, token.start() - 1)
        ends = _is_edge(literal, token.end())
        text = token[0].lower()
        if len(text) > tokenizer.MAX_WORD_LENGTH:
            continue
        if begins and (ends or len(text) >= _MIN_TERM_LENGTH):
            words.append((text, not ends))
        elif len(text) > len(inside):
            inside = text
    return RequiredTerms(tuple(dict.fromkeys(words)), "" if words else inside)


def terms_of_regex(pattern: str) -> list[RequiredTerms] | None:
    """Return terms of which a text that a regular expression matches contains at least one; ``None`` if unknown.

    Groups and optional elements are ignored: they do not have to match.
    """
    if _OBSCURE.search(pattern):  # verbose mode, characters given by number
        return None

    def strength(term: RequiredTerms) -> int:
        return 1_000 * len(term.words) + sum(len(word) for word, _ in term.words) + len(term.inside)

    terms = [max(map(required_terms, runs), key=strength) for runs in _plain_runs(pattern)]
    return terms if all(term.words or len(term.inside) >= _MIN_TERM_LENGTH for term in terms) else None


def _is_edge(text: str, at: int) -> bool:
    """Whether a word certainly ends here. At the ends of the text and beside other scripts it may go on."""
    return 0 <= at < len(text) and text[at].isascii() and not text[at].isalnum()


def _plain_runs(pattern: str) -> list[list[str]]:
    """Return the runs of plain characters in each alternative of a regular expression, outside of groups."""
    # Only the top level is read: what is inside of a group may be optional, an alternative or a condition. A run that
    # is missed makes a search slower, but never wrong.
    branches: list[list[str]] = [[""]]
    at = depth = 0
    while at < len(pattern):
        character = pattern[at]
        if characters := _CLASS.match(pattern, at):
            at = characters.end()
            branches[-1].append("")
            continue
        if character == "|" and depth == 0:
            branches.append([""])
        elif character in "()":
            depth += 1 if character == "(" else -1
            branches[-1].append("")
        elif depth == 0:
            at = _take(pattern, at, branches[-1])
            continue
        at += 2 if character == "\\" else 1
    return branches


def _take(pattern: str, at: int, runs: list[str]) -> int:
    """Add one top-level element to the last of ``runs``, and return where the next one begins."""
    if behind := _REPEATED.match(pattern, at):  # repetition of a class, a group or any character
        runs.append("")
        return behind.end()
    character, end = pattern[at], at + 1
    if character == "\\":
        escaped = pattern[at + 1 : at + 2]
        end = at + 2
        plain = "" if _ESCAPED_CLASS.match(pattern, at) else _CONTROL.get(escaped, escaped)
    else:
        plain = "" if character in ".^${" else character
    if not plain:
        runs.append("")
        return end
    if _OPTIONAL.match(pattern, end):
        runs.append("")
    else:
        runs[-1] += plain
    repeated = _REPEATED.match(pattern, end)
    if repeated:
        runs.append("")
        end = repeated.end()
    return end
