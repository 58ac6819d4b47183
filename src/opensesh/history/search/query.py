"""What the user typed, as something the index can be asked.

``parse config``      both words, in any order
``"parse config"``    one after the other; so does ``parse_config`` or ``parse.config``
``pars*``             words that begin so
``*arse*``            words that hold it, also at the beginning or the end
``-config``           not this one; ``--config`` is a word like others, such as a program's option

Nothing that is typed is an error: what has no letters or digits is looked for as it stands.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

from ...errors import UsageError
from . import tokenizer as words
from .literals import Need, need_of, needs_of_regex

if TYPE_CHECKING:
    from collections.abc import Callable

    Check = Callable[[str], bool]

_ATOM = re.compile(r'(-(?!-))?(?:"([^"]*)(?:"(\*?)|$)|(\S+))')
_MOST_WORDS = 200
_GAP = r"[\W_]*"
_BEGIN = r"(?<![^\W_])"
_END = r"(?![^\W_])"


class Atom(NamedTuple):
    """One thing to look for."""

    text: str
    negated: bool = False
    starts: bool = False
    """Whether a word may begin before it: ``*arse``."""
    goes_on: bool = False
    """Whether a word may go on after it: ``pars*``."""


class Question(NamedTuple):
    """What to ask."""

    match: str = ""
    """For FTS5; empty if nothing can be asked that way."""
    unwanted: tuple[str, ...] = ()
    """For FTS5: what must not be there."""
    inside: tuple[str, ...] = ()
    """Each stands inside some word."""
    either: tuple[Need, ...] = ()
    """At least one of these is needed; empty if nothing is known."""
    checks: tuple[Check, ...] = ()
    """To be asked of each text, because the index cannot tell."""
    patterns: tuple[re.Pattern[str], ...] = ()
    """Where in a text to look for what was found, to show it."""
    loosely: tuple[re.Pattern[str], ...] = ()
    """The same, where the others see nothing."""


def words_question(text: str) -> Question:
    """For words, phrases, beginnings and parts of words; for the text as it stands where it holds none."""
    found = Question()
    for atom in parse(text):
        found = _add(found, atom)
    return found if found != Question() else text_question(text.strip())


def text_question(text: str) -> Question:
    """For a text as it stands, upper and lower case alike."""
    return _exact(Question(), text) if text.strip() else Question()


def regex_question(pattern: str) -> Question:
    """For a regular expression, upper and lower case alike unless it says ``(?-i:...)``."""
    try:
        compiled = re.compile(pattern, re.IGNORECASE | re.MULTILINE)
    except (re.error, OverflowError, RecursionError) as error:
        raise UsageError(f"{pattern!r} is not a regular expression: {error}") from None
    return Question(either=tuple(needs_of_regex(pattern) or ()), checks=(_holds(compiled),), patterns=(compiled,))


def parse(text: str) -> list[Atom]:
    """The words and phrases in what was typed. Loose dots and dashes between words mean nothing."""
    found: list[Atom] = []
    for minus, phrase, star, word in _ATOM.findall(words.clean(text).replace("\0", " ")):
        if phrase:
            found.append(Atom(phrase, bool(minus), goes_on=bool(star)))
        elif word and word != "AND":
            found.append(_atom(word, word.strip("*") or word, bool(minus)))
    lettered = [atom for atom in found if _is_word(atom.text) or " " in atom.text]
    return (lettered or found)[:_MOST_WORDS]


def _atom(word: str, plain: str, negated: bool) -> Atom:
    stars = plain != word
    return Atom(plain, negated, starts=stars and word.startswith("*"), goes_on=stars and word.endswith("*"))


def _add(found: Question, atom: Atom) -> Question:
    if not _is_word(atom.text):
        return _exact(found, atom.text, negated=atom.negated)
    if atom.starts:
        return _inside(found, atom)
    phrase = _phrase(atom)
    if atom.negated:
        return found._replace(unwanted=(*found.unwanted, phrase))
    match = f"{found.match} AND {phrase}" if found.match else phrase
    strict, loose = _patterns(atom)
    return found._replace(match=match, patterns=(*found.patterns, strict), loosely=(*found.loosely, loose))


def _inside(found: Question, atom: Atom) -> Question:
    plain = atom.text.isascii() and atom.text.isalnum()
    if not plain or atom.negated or not atom.goes_on:
        return _exact(found, atom.text, negated=atom.negated, ends=not atom.goes_on)
    pattern = re.compile(re.escape(atom.text), re.IGNORECASE)
    return found._replace(inside=(*found.inside, atom.text.lower()), patterns=(*found.patterns, pattern))


def _exact(found: Question, text: str, *, negated: bool = False, ends: bool = False) -> Question:
    """Look for a text as it stands; the index narrows down where it can be."""
    pattern = re.compile(re.escape(text) + (_END if ends else ""), re.IGNORECASE)
    if negated:
        return found._replace(checks=(*found.checks, _lacks(pattern)))
    need = need_of(text)
    match = " AND ".join(filter(None, (found.match, match_of(need))))
    inside = (*found.inside, need.inside) if len(need.inside) > 1 else found.inside
    checks = (*found.checks, _holds(pattern))
    return found._replace(match=match, inside=inside, checks=checks, patterns=(*found.patterns, pattern))


def match_of(need: Need) -> str:
    """What to ask FTS5 for the words of a need."""
    return " AND ".join(_quote(word) + (" *" if goes_on else "") for word, goes_on in need.words)


def _holds(pattern: re.Pattern[str]) -> Check:
    return lambda text: pattern.search(text) is not None


def _lacks(pattern: re.Pattern[str]) -> Check:
    return lambda text: pattern.search(text) is None


def _phrase(atom: Atom) -> str:
    folded = words.fold_query(atom.text)
    goes_on = atom.goes_on or words.is_unspaced(folded.strip())
    quoted = _quote(folded) + (" *" if goes_on else "")
    humps = words.split(atom.text) if words.identifiers(atom.text) == [atom.text] else []
    return f"({quoted} OR {_quote(' '.join(humps))}{' *' if goes_on else ''})" if humps else quoted


def _quote(text: str) -> str:
    return '"' + text.replace('"', '""') + '"'


def _patterns(atom: Atom) -> tuple[re.Pattern[str], re.Pattern[str]]:
    """Where the words of an atom stand in a text: as whole words, and wherever they are seen."""
    pieces = [piece for piece in re.split(r"[\W_]+", atom.text) if piece]
    humps = [hump for piece in pieces for hump in (words.split(piece) if words.identifiers(piece) else [piece])]
    loose = _GAP.join(map(re.escape, humps))
    strict = f"{_BEGIN}{loose}" + ("" if atom.goes_on else _END) if atom.text.isascii() else loose
    return re.compile(strict, re.IGNORECASE), re.compile(loose, re.IGNORECASE)


def _is_word(text: str) -> bool:
    return any(character.isalnum() for character in text)
