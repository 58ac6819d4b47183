"""The words of a shell command line: quotes, escapes and expansions.

The lowest layer of a parser (:mod:`.simple` is the next, :mod:`.syntax` the whole) with a single duty: to miss no
command that a shell would run. Where shells differ, or a construct is too rare to be worth its rules, it raises
:class:`Unparsable` rather than guess.
"""

from __future__ import annotations

import re
import sys
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

from msgspec import Struct

if TYPE_CHECKING:
    from collections.abc import Callable

BLANK = " \t"
META = " \t\n;&|<>()"
"""What ends a word, unless quoted."""

_ARITHMETIC = re.compile(r"[\w\s+\-*/%<>=!&|^~?:,.\[\]#@]")
_PLAIN = re.compile(r"""[^\s;&|<>()'"`$\\]+""")
_EXPANSION = re.compile("\0[^\0]*\0")
_ALTERNATIVES = re.compile(r"\{([^{}]*,[^{}]*)\}")
_ANSI = re.compile(r"\\(?:([0-7]{1,3})|x([0-9A-Fa-f]{1,2})|u([0-9A-Fa-f]{1,4})|U([0-9A-Fa-f]{1,8})|(.))", re.DOTALL)
_ANSI_LETTERS = dict(zip('abeEfnrtv\\"?', '\a\b\x1b\x1b\f\n\r\t\v\\"?', strict=True))
_PARAMETER = re.compile(r"[A-Za-z_]\w*|[0-9?!#@*$-]")


class Unparsable(Exception):
    """A command line that cannot be taken apart with certainty."""


class Word(Struct, frozen=True):
    """One word of a command."""

    text: str
    """As it is written."""
    value: str
    """Without quotes and escapes. Expansions stand as they are written."""
    bare: str
    """The value if every expansion in it were empty."""

    @property
    def static(self) -> bool:
        """Whether ``value`` is what the command gets, but for ``*``, ``?``, ``[``, ``{`` and ``~``."""
        return self.value == self.bare


class WordReader(ABC):
    """Reads words from :attr:`source` at :attr:`at`; the commands that stand within a word are for others to read."""

    def __init__(self, source: str, *, posix: bool = False) -> None:
        if "\0" in source:
            raise Unparsable("a NUL character")
        self.source = source
        self.posix = posix
        self.at = 0

    @abstractmethod
    def commands_until(self, closer: str) -> None:
        """Parse the commands from here to ``closer``, and pass it."""

    @abstractmethod
    def commands_in(self, source: str) -> None:
        """Parse another text, which is a command line of its own."""

    def peek(self, size: int = 1) -> str:
        """The next characters; fewer at the end."""
        return self.source[self.at : self.at + size]

    def word(self) -> Word | None:
        """The word that starts here, or ``None`` where there is none."""
        start = self.at
        value: list[str] = []
        while char := self.peek():
            if self.peek(2) in ("<(", ">("):
                value.append(self._process_substitution())
            elif char in META:
                break
            else:
                value.append(self._piece(char))
        text = self.source[start : self.at]
        if not text.replace("\\\n", ""):
            return None
        marked = "".join(value)
        return Word(text, marked.replace("\0", ""), _EXPANSION.sub("", marked))

    def _piece(self, char: str) -> str:
        match char:
            case "\\":
                return self._escape()
            case "'":
                return self._single_quotes()
            case '"':
                self.at += 1
                return self._double_quotes()
            case "`":
                return self._expansion(self._backticks)
            case "$":
                return self._dollar()
            case _:
                plain = _PLAIN.match(self.source, self.at)
                taken = plain[0] if plain else char
                self.at += len(taken)
                return taken

    def _escape(self) -> str:
        pair = self.peek(2)
        if len(pair) < 2:
            raise Unparsable("a backslash at the end")
        self.at += 2
        return "" if pair == "\\\n" else pair[1]

    def _single_quotes(self) -> str:
        end = self.source.find("'", self.at + 1)
        if end < 0:
            raise Unparsable("a single quote is not closed")
        text = self.source[self.at + 1 : end]
        self.at = end + 1
        return text

    def _double_quotes(self) -> str:
        value: list[str] = []
        while (char := self.peek()) != '"':
            if not char:
                raise Unparsable("a double quote is not closed")
            if char == "\\":
                value.append(self._quoted_escape())
            else:
                value.append(self._inside_quotes(char))
        self.at += 1
        return "".join(value)

    def _quoted_escape(self) -> str:
        pair = self.peek(2)
        self.at += 2
        if pair == "\\\n":
            return ""
        return pair[1:] if pair[1:] in ("$", "`", '"', "\\") else pair

    def _inside_quotes(self, char: str) -> str:
        if char == "`":
            return self._expansion(lambda: self._backticks(quoted=True))
        if char == "$":
            return self._dollar(quoted=True)
        self.at += 1
        return char

    def expansions(self) -> None:
        """The whole source as the body of a heredoc, in which only ``$``, backticks and backslashes are special."""
        while char := self.peek():
            if char == "\\":
                self.at += 2
            else:
                self._inside_quotes(char)

    def _expansion(self, read: Callable[[], None]) -> str:
        start = self.at
        read()
        return _marked(self.source[start : self.at])

    def _dollar(self, *, quoted: bool = False) -> str:
        follows = self.source[self.at + 1 : self.at + 2]
        match follows:
            case "(":
                return self._expansion(self._parenthesis)
            case "{":
                return self._expansion(lambda: self._braces(quoted=quoted))
            case "'" if not quoted:
                self.at += 1
                return self._ansi_quotes()
            case '"' if not quoted:
                self.at += 2
                return self._double_quotes()
            case "[" | "\\":
                raise Unparsable(f"${follows}")
            case _:
                return self._parameter()

    def _parameter(self) -> str:
        name = _PARAMETER.match(self.source, self.at + 1)
        if not name:
            self.at += 1
            return "$"
        self.at = name.end()
        return _marked(f"${name[0]}")

    def _ansi_quotes(self) -> str:
        text = self._single_quotes()
        if text.endswith("\\"):
            raise Unparsable("an escaped quote in $'...', which not every shell knows")
        if "\\" not in text:
            return text
        meant = _ANSI.sub(_ansi_character, text)
        # The plainer shells do not know it, and take it as it stands.
        return _marked(meant) if self.posix else meant

    def _braces(self, *, quoted: bool) -> None:
        self.at += 2
        if self.peek() in " \t\n|":
            raise Unparsable("commands in ${ }")
        while (char := self.peek()) != "}":
            if not char or (quoted and char in "'\""):
                raise Unparsable("quotes in a quoted ${...}, which shells read differently, or no end to it")
            if quoted and char in "$`":
                self._inside_quotes(char)
            elif not quoted and self.peek(2) in ("<(", ">("):
                self._process_substitution()
            elif char in "\\'\"`$":
                if "$(" in _EXPANSION.sub("", self._piece(char)):
                    raise Unparsable("a quoted command in ${...}, which may be an index, and run")
            else:
                self.at += 1
        self.at += 1

    def _parenthesis(self) -> None:
        if not self.source.startswith("$((", self.at):
            self.at += 2
            self.commands_until(")")
        elif not self._arithmetic(self.at + 3):
            raise Unparsable("$(( that is not plainly arithmetic, which shells read differently")

    def _arithmetic(self, start: int, also: str = "") -> bool:
        """Pass an arithmetic expression and its ``))``; false if it may be something else."""
        self.at = start
        depth = 0
        while char := self.peek():
            if char == "(":
                depth += 1
                self.at += 1
            elif char != ")":
                if not self._arithmetic_piece(char, also):
                    return False
            elif depth:
                depth -= 1
                self.at += 1
            else:
                self.at += 2
                return self.source[self.at - 1 : self.at] == ")"
        return False

    def _arithmetic_piece(self, char: str, also: str) -> bool:
        if char in "$`":
            self._inside_quotes(char)
            return True
        self.at += 1
        return char in also or _ARITHMETIC.match(char) is not None

    def pass_arithmetic(self) -> None:
        """Pass the ``((...; ...; ...))`` of a loop that starts here."""
        if not self._arithmetic(self.at + 2, also=";"):
            raise Unparsable("an arithmetic expression")

    def _backticks(self, *, quoted: bool = False) -> None:
        special = '`\\$"' if quoted else "`\\$"
        inner: list[str] = []
        self.at += 1
        while (char := self.peek()) != "`":
            if not char:
                raise Unparsable("a backtick is not closed")
            pair = self.peek(2)
            if char == "\\" and pair[1:] in special and len(pair) == 2:
                inner.append(pair[1])
                self.at += 2
            else:
                inner.append(char)
                self.at += 1
        self.at += 1
        self.commands_in("".join(inner))

    def _process_substitution(self) -> str:
        if self.posix:
            raise Unparsable("<(...), which only some of the plainer shells know")

        def read() -> None:
            self.at += 2
            self.commands_until(")")

        return self._expansion(read)


def _marked(expansion: str) -> str:
    """An expansion within a value, until the word is complete. No source holds a NUL."""
    return f"\0{expansion}\0"


def _ansi_character(found: re.Match[str]) -> str:
    octal, *hexadecimal, letter = found.groups()
    digits = next(filter(None, hexadecimal), None)
    if letter is not None:
        if letter in "cxuU":
            raise Unparsable(f"\\{letter} in $'...', which shells read differently")
        return _ANSI_LETTERS.get(letter, found[0])
    number = int(digits, 16) if digits else int(octal, 8) & 0xFF
    if not 0 < number <= sys.maxunicode:
        raise Unparsable("a NUL, or no character, in $'...'")
    return chr(number)


def alternatives(word: str, most: int = 64) -> list[str]:
    """The words that ``{a,b}`` in a word stands for; at least one."""
    found = _ALTERNATIVES.search(word)
    if not found:
        return [word]
    expanded: list[str] = []
    for choice in found[1].split(","):
        expanded += alternatives(word[: found.start()] + choice + word[found.end() :], most)
        if len(expanded) >= most:
            break
    return expanded
