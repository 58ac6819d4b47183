"""Words of a shell command line: quotes, escapes and expansions, and the records that the parser makes of them.

The lower half of the parser (:mod:`.parser` is the upper). Its one requirement is to miss no command that a shell would
run. Where shells differ, or a construct is too rare to be worth its rules, it raises :class:`Unparsable` instead of
guessing. A construct that can be parsed, but is not on the short list of those that only produce text, is recorded as a
doubt: the commands are known then, but not that they are all.
"""

from __future__ import annotations

import re
import sys
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Literal

from msgspec import Struct

if TYPE_CHECKING:
    from collections.abc import Callable

ShellLanguage = Literal["bash", "zsh", "ksh", "posix", "other"]
"""What a shell understands. ``posix`` is a plain ``sh``, which may be dash as well as bash; ``other`` is unknown."""

BLANK = " \t"
META = " \t\n;&|<>()"
"""Characters that end an unquoted word."""

_ARITHMETIC = re.compile(r"[\w\s+\-*/%<>=!&|^~?:,.\[\]#@]")
# Without a name in it: the value of a variable is evaluated, and an index in it may run a command.
_NUMBERS_ONLY = re.compile(r"[0-9\s+\-*/%<>=!&|()?:]*")
# Expansions that only produce text: a variable, its length, without a prefix or suffix, or a literal in its place.
_TEXT_EXPANSION = re.compile(
    r"\$\{(?:#?[A-Za-z_][A-Za-z0-9_]*|[A-Za-z_][A-Za-z0-9_]*(?:##?|%%?|:?[-+])[A-Za-z0-9_./*-]*)\}"
)
_LONE_DOLLAR = re.compile(r"\$(?=[\s\"'|)/]|$)")
_ODD_CHARACTER = re.compile(r"[^\S \t\n]|[\x00-\x08\x0e-\x1f\x7f]")
_PLAIN = re.compile(r"""[^\s;&|<>()'"`$\\]+""")
_EXPANSION = re.compile("\0[^\0]*\0")
_ALTERNATIVES = re.compile(r"\{([^{}]*,[^{}]*)\}")
_ANSI = re.compile(r"\\(?:([0-7]{1,3})|x([0-9A-Fa-f]{1,2})|u([0-9A-Fa-f]{1,4})|U([0-9A-Fa-f]{1,8})|(.))", re.DOTALL)
_ANSI_LETTERS = dict(zip('abeEfnrtv\\"?', '\a\b\x1b\x1b\f\n\r\t\v\\"?', strict=True))
_PATTERN = re.compile(r"[*?\[{~]|^=")
_QUOTED = re.compile(r"""'[^']*'|"[^"\\$`]*\"""")
_PARAMETER = re.compile(r"[A-Za-z_][A-Za-z0-9_]*|[0-9?!#@*$-]")


class Unparsable(Exception):
    """A command line that cannot be parsed with certainty."""


class Word(Struct, frozen=True):
    """One word of a command."""

    text: str
    """As written."""
    value: str
    """Without quotes and escapes. Expansions stay as written."""
    bare: str
    """The value with every expansion replaced by nothing."""

    @property
    def static(self) -> bool:
        """Whether the command receives ``value``, except for ``*``, ``?``, ``[``, ``{`` and ``~``."""
        return self.value == self.bare

    @property
    def literal(self) -> bool:
        """Whether the command receives ``value``: there is neither an expansion nor a pattern for file names in it."""
        return self.static and (not _PATTERN.search(self.value) or _QUOTED.fullmatch(self.text) is not None)


class Redirection(Struct, frozen=True):
    """A redirection of a command's input or output."""

    operator: str
    """Without the number of the file descriptor."""
    target: Word
    bodies: list[str] = []
    """The text of a heredoc or here-string, once it has been read."""

    @property
    def writes(self) -> bool:
        """Whether it may change a file."""
        if self.operator == ">&":  # duplicates or closes a descriptor unless the target is a name
            return not self.target.value.rstrip("-").isdigit() and self.target.value != "-"
        return self.operator in (">", ">>", ">|", "<>", "&>", "&>>")


class ShellCommand(Struct, frozen=True, kw_only=True):
    """A simple command: a program and its arguments. Without words, only assignments or redirections."""

    text: str
    """As written, with redirections, without the bodies of heredocs."""
    words: tuple[Word, ...] = ()
    assignments: tuple[Word, ...] = ()
    redirects: tuple[Redirection, ...] = ()
    loops: tuple[Word, ...] = ()
    """Variables set by the loops so far, as ``variable=value``."""
    loop_variables: tuple[str, ...] = ()
    """Variables of the loops that it is in."""
    unconditional: bool = False
    """Whether the shell, or the subshell that it is in, certainly runs it, unless it exits before."""
    scope: tuple[int, ...] = ()
    """The subshells it runs in, outermost first. A ``cd`` in a subshell has no effect outside."""


class WordReader(ABC):
    """Reads words from :attr:`source` at :attr:`at`. Subclasses parse the commands inside words."""

    def __init__(self, source: str, shell: ShellLanguage) -> None:
        if "\0" in source:
            raise Unparsable("a NUL character")
        self.source = source
        self.shell: ShellLanguage = shell
        self.posix = shell == "posix"
        self.at = 0
        self.doubts: list[str] = []
        """Constructs that may do more than produce the words and run the commands that were read."""

    @abstractmethod
    def commands_until(self, closer: str) -> None:
        """Parse the commands up to ``closer`` and skip it."""

    @abstractmethod
    def commands_in(self, source: str) -> None:
        """Parse another text as a command line."""

    def peek(self, size: int = 1) -> str:
        """Return the next characters; fewer at the end."""
        return self.source[self.at : self.at + size]

    def continue_line(self) -> None:
        """Skip a backslash at the end of a line. What it joins may be an operator or a reserved word."""
        before, after = self.source[max(0, self.at - 1) : self.at], self.source[self.at + 2 : self.at + 3]
        if before.strip() and after.strip():
            self.doubts.append("a line that is continued within a word or an operator")
        self.at += 2

    def word(self) -> Word | None:
        """Read the word that starts here; ``None`` if there is none."""
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
        self._doubt_spelling(text)
        marked = "".join(value)
        return Word(text, marked.replace("\0", ""), _EXPANSION.sub("", marked))

    def _doubt_spelling(self, text: str) -> None:
        if text.startswith("~") and text[1:2] not in ("", "/"):
            self.doubts.append("a directory of another user or of the shell")
        if text.startswith("=") and self.shell == "zsh":
            self.doubts.append("the path of a command")

    def _piece(self, char: str) -> str:
        match char:
            case "\\":
                return self._escaped()
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
                text = plain[0] if plain else char
                if _ODD_CHARACTER.search(text):
                    self.doubts.append("a character that some locales take for a blank")
                self.at += len(text)
                return text

    def _escaped(self) -> str:
        pair = self.peek(2)
        if len(pair) < 2:
            raise Unparsable("a backslash at the end")
        if pair == "\\\n":
            self.continue_line()
            return ""
        self.at += 2
        return pair[1]

    def _single_quotes(self) -> str:
        end = self.source.find("'", self.at + 1)
        if end < 0:
            raise Unparsable("an unclosed single quote")
        text = self.source[self.at + 1 : end]
        self.at = end + 1
        return text

    def _double_quotes(self) -> str:
        value: list[str] = []
        while (char := self.peek()) != '"':
            if not char:
                raise Unparsable("an unclosed double quote")
            if char == "\\":
                pair = self.peek(2)
                if pair == "\\\n":
                    self.continue_line()
                    continue
                self.at += 2
                value.append(pair[1:] if pair[1:] in ("$", "`", '"', "\\") else pair)
            else:
                value.append(self._inside_quotes(char))
        self.at += 1
        return "".join(value)

    def _inside_quotes(self, char: str) -> str:
        if char == "`":
            return self._expansion(lambda: self._backticks(quoted=True))
        if char == "$":
            return self._dollar(quoted=True)
        self.at += 1
        return char

    def expansions(self) -> None:
        """Read the whole source as the body of a heredoc, where only ``$``, backticks and backslashes are special."""
        while char := self.peek():
            if self.peek(2) == "\\\n":
                self.continue_line()
            elif char == "\\":
                self.at += 2
            else:
                self._inside_quotes(char)

    def _expansion(self, read: Callable[[], None]) -> str:
        start = self.at
        read()
        return _marked(self.source[start : self.at])

    def _dollar(self, *, quoted: bool = False) -> str:
        next_char = self.source[self.at + 1 : self.at + 2]
        match next_char:
            case "(":
                return self._expansion(self._parenthesis)
            case "{":
                return self._expansion(lambda: self._braces(quoted=quoted))
            case "'" if not quoted:
                return self._ansi_quotes()
            case '"' if not quoted:
                self.doubts.append("a translated string")
                self.at += 2
                return self._double_quotes()
            case "[" | "\\":
                raise Unparsable(f"${next_char}")
            case _:
                return self._parameter()

    def _parameter(self) -> str:
        name = _PARAMETER.match(self.source, self.at + 1)
        if not name:
            if not _LONE_DOLLAR.match(self.source, self.at):
                self.doubts.append("an expansion that some shells know")
            self.at += 1
            return "$"
        self.at = name.end()
        if self.shell == "zsh" and (self.peek() in ("[", ":") or (name[0] == "#" and self.peek().isalnum())):
            self.doubts.append("an index or a modifier")
        return _marked(f"${name[0]}")

    def _ansi_quotes(self) -> str:
        self.at += 1
        text = self._single_quotes()
        if text.endswith("\\"):
            raise Unparsable("an escaped quote in $'...', which not every shell supports")
        if self.shell != "bash":
            self.doubts.append("$'...', which shells read differently")
        if "\\" not in text:
            return text
        decoded = _ANSI.sub(_ansi_character, text)
        # A POSIX shell may not know $'...' and take it literally.
        return _marked(decoded) if self.posix else decoded

    def _braces(self, *, quoted: bool) -> None:
        if text := _TEXT_EXPANSION.match(self.source, self.at):
            self.at = text.end()
            return
        self.doubts.append("an expansion that may evaluate or assign")
        self.at += 2
        if self.peek() in " \t\n|":
            raise Unparsable("commands in ${ }")
        while (char := self.peek()) != "}":
            if not char or (quoted and char in "'\""):
                raise Unparsable("quotes in a quoted ${...}, which shells read differently, or an unclosed ${")
            if quoted and char in "$`":
                self._inside_quotes(char)
            elif not quoted and self.peek(2) in ("<(", ">("):
                self._process_substitution()
            elif char in "\\'\"`$":
                self._piece(char)
            else:
                self.at += 1
        self.at += 1

    def _parenthesis(self) -> None:
        if not self.source.startswith("$((", self.at):
            self.at += 2
            self.commands_until(")")
        elif not self._arithmetic(self.at + 3):
            raise Unparsable("$(( that is not certainly arithmetic, which shells read differently")

    def _arithmetic(self, start: int, also: str = "") -> bool:
        """Skip an arithmetic expression and its ``))``; return false if it may be something else."""
        self.at = start
        depth = 0
        while char := self.peek():
            if char == "(":
                depth += 1
                self.at += 1
            elif char != ")":
                if char in "$`":
                    self._inside_quotes(char)
                    continue
                self.at += 1
                if char not in also and not _ARITHMETIC.match(char):
                    return False
            elif depth:
                depth -= 1
                self.at += 1
            else:
                self.at += 2
                if not _NUMBERS_ONLY.fullmatch(self.source, start, self.at):
                    self.doubts.append("arithmetic with variables")
                return self.source[self.at - 1 : self.at] == ")"
        return False

    def skip_loop_arithmetic(self) -> None:
        """Skip the ``((...; ...; ...))`` of a loop that starts here."""
        if not self._arithmetic(self.at + 2, also=";"):
            raise Unparsable("an arithmetic expression")

    def _backticks(self, *, quoted: bool = False) -> None:
        special = '`\\$"' if quoted else "`\\$"
        inner: list[str] = []
        self.at += 1
        while (char := self.peek()) != "`":
            if not char:
                raise Unparsable("an unclosed backtick")
            pair = self.peek(2)
            escaped = char == "\\" and len(pair) == 2 and pair[1] in special
            if escaped:
                self.doubts.append("an escape in backticks")
            inner.append(pair[1] if escaped else char)
            self.at += 2 if escaped else 1
        self.at += 1
        self.commands_in("".join(inner))

    def _process_substitution(self) -> str:
        if self.posix:
            raise Unparsable("<(...), which not every POSIX shell supports")
        start = self.at
        self.at += 2
        self.commands_until(")")
        return _marked(self.source[start : self.at])


def _marked(expansion: str) -> str:
    """Mark an expansion within a value until the word is complete. No source contains a NUL."""
    return f"\0{expansion}\0"


def _ansi_character(match: re.Match[str]) -> str:
    octal, *hexadecimal, letter = match.groups()
    digits = next(filter(None, hexadecimal), None)
    if letter is not None:
        if letter in "cxuU":
            raise Unparsable(f"\\{letter} in $'...', which shells read differently")
        return _ANSI_LETTERS.get(letter, match[0])
    number = int(digits, 16) if digits else int(octal, 8) & 0xFF
    if not 0 < number <= sys.maxunicode:
        raise Unparsable("a NUL or an invalid character in $'...'")
    return chr(number)


def brace_alternatives(word: str, limit: int = 64) -> list[str]:
    """Return the words that ``{a,b}`` in ``word`` expands to; at least one."""
    braces = _ALTERNATIVES.search(word)
    if not braces:
        return [word]
    expanded: list[str] = []
    for choice in braces[1].split(","):
        expanded += brace_alternatives(word[: braces.start()] + choice + word[braces.end() :], limit)
        if len(expanded) >= limit:
            break
    return expanded
