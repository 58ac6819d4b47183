"""Simple commands: a program's words, its assignments and redirections, and the heredocs that follow.

What joins them (lists, subshells, loops, functions) is :mod:`.syntax`.
"""

from __future__ import annotations

import re
from abc import abstractmethod

from msgspec import Struct

from .command import Redirection, ShellCommand
from .words import BLANK, META, Unparsable, Word, WordReader

_BODIES = ("{", "(", "if", "while", "until", "for", "case", "select", "[[")
_REDIRECT = re.compile(r"&>>|&>|\d*(?:<<<|<<-|<<|<>|<&|<|>>|>&|>\||>)")
_ASSIGNMENT = re.compile(r"[A-Za-z_]\w*(?:\[.*?\])?\+?=", re.DOTALL)
_DESCRIPTOR = re.compile(r"\{\w+\}")
_EVALUATING = frozenset("[ declare integer let local mapfile read readonly test typeset unset wait".split())
"""Commands that take a name for an expression: ``test -v 'x[$(rm y)]'`` runs what stands in it. ``printf -v`` is one
more."""
_COUNTS = re.compile(r"\(\(|\[\[|\$\[|\$\{[^}]*[\[:]|\b(?:let|declare|typeset|local|integer)\b")
"""Where a variable may be taken for an expression, and what stands in it be run."""
_QUOTED_COMMAND = re.compile(r"\$[({]|`")


class _Heredoc(Struct, frozen=True):
    delimiter: str
    quoted: bool
    strip_tabs: bool


class SimpleCommandReader(WordReader):
    """Reads simple commands from :attr:`source`, and adds them to :attr:`commands`."""

    def __init__(self, source: str, *, posix: bool, commands: list[ShellCommand], scope: tuple[int, ...]) -> None:
        super().__init__(source, posix=posix)
        self.commands = commands
        self.scope = scope
        """The subshell that is being read."""
        self.heredocs: list[_Heredoc] = []
        """Those that were announced, and whose bodies begin on the next line."""
        self.counts = _COUNTS.search(source) is not None
        """Whether there is arithmetic in it."""
        self.loops: list[Word] = []
        """What loops set, as ``variable=value``."""

    @abstractmethod
    def expansions_in(self, source: str) -> None:
        """Parse the body of a heredoc for the commands it holds."""

    def simple(self, start: int, word: Word | None) -> None:
        """Read the command that began at ``start``, of which ``word``, if any, has been read."""
        words: list[Word] = []
        assignments: list[Word] = []
        redirects: list[Redirection] = []
        while True:
            if word is not None:
                front = not words and _ASSIGNMENT.match(word.text)
                (assignments if front else words).append(self._array(word))
                if self.counts if front else _are_evaluated(words):
                    self.evaluated(word)
            end = self.at
            self._blanks()
            if self._is_redirect():
                redirects.append(self._redirect(words, end))
                word = None
                continue
            if self.peek() == "(":
                self._definition(words, assignments, redirects)
                return
            word = None if self.peek() == "#" else self._checked_word()
            if word is None:
                break
        command = ShellCommand(
            text=self.source[start:end],
            words=tuple(words),
            assignments=tuple(assignments),
            redirects=tuple(redirects),
            loops=tuple(self.loops),
            scope=self.scope,
        )
        self.commands.append(command)

    def _checked_word(self) -> Word | None:
        word = self.word()
        if word is not None and self.heredocs and "\n" in word.text:
            raise Unparsable("a heredoc in the middle of a word of several lines")
        return word

    def evaluated(self, word: Word) -> None:
        """Take up the commands in text that is quoted here, and may be expanded all the same: as a number, an index."""
        if _QUOTED_COMMAND.search(word.bare):
            self.expansions_in(word.bare)

    def _array(self, word: Word) -> Word:
        """``word``, with the list in parentheses passed if it is the beginning of an array."""
        if self.peek() != "(" or not _ASSIGNMENT.fullmatch(word.text):
            return word
        self.at += 1
        while True:
            self._blanks(newlines=True)
            if self.peek() == ")":
                self.at += 1
                if self.peek() and self.peek() not in META:
                    raise Unparsable("a word goes on after an array")
                return word
            item = self._checked_word()
            if item is None:
                raise Unparsable("no end to an array")
            if self.counts:
                self.evaluated(item)

    def _definition(self, words: list[Word], assignments: list[Word], redirects: list[Redirection]) -> None:
        """``name ()``: what follows is a compound command like any other."""
        if len(words) != 1 or assignments or redirects:
            raise Unparsable("a parenthesis in the middle of a command")
        self._empty_parentheses()
        self._body()

    def _empty_parentheses(self) -> None:
        self.at += 1
        self._blanks()
        if self.peek() != ")":
            raise Unparsable("a parenthesis in the middle of a command")
        self.at += 1

    # Redirections.

    def _is_redirect(self) -> bool:
        two = self.peek(2)
        if two in ("<(", ">(") or (two == "&>" and self.posix):
            return False
        return _REDIRECT.match(self.source, self.at) is not None

    def _redirect(self, words: list[Word], end_of_word: int) -> Redirection:
        found = _REDIRECT.match(self.source, self.at)
        if found is None:
            raise Unparsable("a redirection")
        if words and self.at == end_of_word and _DESCRIPTOR.fullmatch(words[-1].text):
            words.pop()  # {fd}> file
        operator = found[0].lstrip("0123456789")
        self.at = found.end()
        if ">" in operator and self.peek() == "!":
            raise Unparsable(">!, which is a file to some shells, and an operator to others")
        self._blanks()
        target = self._checked_word()
        if target is None:
            raise Unparsable("a redirection to nowhere")
        if operator in ("<<", "<<-"):
            self._expect_heredoc(target, operator)
        return Redirection(operator, target)

    def _expect_heredoc(self, target: Word, operator: str) -> None:
        if not target.static and ("(" in target.text or "`" in target.text):
            raise Unparsable("a substitution for the end of a heredoc")
        quoted = any(char in target.text for char in "'\"\\")
        self.heredocs.append(_Heredoc(target.value, quoted, operator == "<<-"))

    def _newline(self) -> None:
        self.at += 1
        heredocs, self.heredocs = self.heredocs, []
        for heredoc in heredocs:
            self._heredoc(heredoc)

    def _heredoc(self, heredoc: _Heredoc) -> None:
        body: list[str] = []
        joined = ""
        while self.at < len(self.source):
            line = self._line()
            line = line.lstrip("\t") if heredoc.strip_tabs else line
            if not heredoc.quoted and _continues(joined):
                joined = joined[:-1] + line
                if heredoc.delimiter in (line, joined):
                    raise Unparsable("a continued line at the end of a heredoc, which shells read differently")
            elif line == heredoc.delimiter:
                break
            else:
                joined = line
            body.append(line)
        else:
            raise Unparsable(f"no {heredoc.delimiter} to end a heredoc")
        if not heredoc.quoted:
            self.expansions_in("\n".join(body))

    def _line(self) -> str:
        end = self.source.find("\n", self.at)
        end = len(self.source) if end < 0 else end
        line = self.source[self.at : end]
        self.at = min(end + 1, len(self.source))
        return line

    # Between commands.

    def _comment(self) -> None:
        end = self.source.find("\n", self.at)
        self.at = len(self.source) if end < 0 else end

    def _blanks(self, *, newlines: bool = False) -> None:
        while char := self.peek():
            if char in BLANK:
                self.at += 1
            elif self.peek(2) == "\\\n":
                self.at += 2
            elif newlines and char == "\n":
                self._newline()
            elif newlines and char == "#":
                self._comment()
            else:
                return

    def _is_word(self, text: str) -> bool:
        after = self.source[self.at + len(text) : self.at + len(text) + 1]
        return self.source.startswith(text, self.at) and (not after or after in META)

    def _body(self) -> None:
        self._blanks(newlines=True)
        if self.peek() != "(" and not any(self._is_word(word) for word in _BODIES):
            raise Unparsable("a function without a body")


def _are_evaluated(words: list[Word]) -> bool:
    """Whether the last of these words of a command may be taken for an expression. A command's own name in quotes is
    one within ``((...))``, and nothing anyone would write elsewhere."""
    name = words[0].value
    return len(words) == 1 or name in _EVALUATING or (name == "printf" and words[1].value == "-v")


def _continues(line: str) -> bool:
    return (len(line) - len(line.rstrip("\\"))) % 2 == 1
