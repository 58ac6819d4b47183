"""The commands of a shell command line, however deep they are hidden.

Pipelines, lists, subshells, groups, loops, conditions, functions, substitutions and heredocs are taken apart; what
comes out is the flat list of the simple commands in them, in the order in which they are written. Words that only
give structure (``if``, ``do``, ``{``) are passed over without checking that they fit together: a line that no shell
would accept may be read, but none that a shell would run is read with a command missing.
"""

from __future__ import annotations

from itertools import count
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from .simple import SimpleCommandReader
from .words import BLANK, Unparsable, Word

if TYPE_CHECKING:
    from collections.abc import Iterator

    from .command import ShellCommand

_BLOCKS = frozenset(("{", "if", "while", "until"))
_ENDS = frozenset(("}", "fi", "done"))
_BETWEEN = frozenset(("then", "elif", "else", "do", "!"))
_DEEPEST = 50


class _Place(Struct):
    """Where the parser is, as far as it must be taken up again after something nested."""

    list_start: int
    """The first command of the list that an ``&`` would send to the background."""
    element_start: int
    """The first command of the element that a ``|`` would put in a pipe."""
    in_pipe: bool = False
    closed: bool = False
    """A compound command has just ended; no other can begin without a separator."""


def parse(source: str, *, posix: bool = False) -> list[ShellCommand]:
    """The commands that a shell would run, or might; or :class:`Unparsable`.

    ``posix``: for a shell that knows neither ``[[`` nor ``&>``, such as dash.
    """
    parser = _Parser(source, posix=posix)
    parser.program()
    return parser.commands


class _Parser(SimpleCommandReader):
    def __init__(self, source: str, *, posix: bool, parent: _Parser | None = None) -> None:
        commands = parent.commands if parent else []
        super().__init__(source, posix=posix, commands=commands, scope=parent.new_scope() if parent else ())
        self.scopes: Iterator[int] = parent.scopes if parent else count(1)
        self.depth: int = parent.depth if parent else 0
        self.loops = parent.loops if parent else []
        self.place = self._here()
        self.opened: list[_Place] = []
        """Where the blocks began that are still open."""

    def program(self) -> None:
        """Parse the whole source."""
        self._deeper()
        self._list("")
        if self.heredocs:
            raise Unparsable("a heredoc without a body")

    # What the readers of words and of simple commands need.

    def commands_until(self, closer: str) -> None:
        heredocs, self.heredocs = self.heredocs, []
        self._subshell(closer)
        if self.heredocs:
            raise Unparsable("a heredoc without a body")
        self.heredocs = heredocs

    def commands_in(self, source: str) -> None:
        _Parser(source, posix=self.posix, parent=self).program()

    def expansions_in(self, source: str) -> None:
        _Parser(source, posix=self.posix, parent=self).expansions()

    # Subshells, and what runs in them.

    def _here(self) -> _Place:
        return _Place(len(self.commands), len(self.commands))

    def _deeper(self) -> None:
        self.depth += 1
        if self.depth > _DEEPEST:
            raise Unparsable("nested too deeply")

    def new_scope(self) -> tuple[int, ...]:
        """A scope within this one, unlike any other."""
        return (*self.scope, next(self.scopes))

    def _subshell(self, closer: str) -> None:
        self._deeper()
        scope, place, opened = self.scope, self.place, self.opened
        self.scope, self.place, self.opened = self.new_scope(), self._here(), []
        self._list(closer)
        self.scope, self.place, self.opened = scope, place, opened
        self.depth -= 1

    def _rescope(self, start: int) -> None:
        """What was read since ``start`` turns out to run in a subshell."""
        outer = len(self.scope)
        inner = self.new_scope()
        for index in range(start, len(self.commands)):
            command = self.commands[index]
            self.commands[index] = replace(command, scope=inner + command.scope[outer:])

    # Lists.

    def _list(self, closer: str, *, in_case: bool = False) -> None:
        """Commands up to ``closer`` (passed), the end, or, in a case, ``;;`` or ``esac`` (not passed)."""
        while True:
            self._separators(in_case=in_case)
            char = self.peek()
            if in_case and (self.peek(2) in (";;", ";&", ";|") or self._is_word("esac")):
                break
            if not char and (closer or in_case):
                raise Unparsable(f"no closing {closer or 'esac'}")
            if not char:
                break
            if char == closer:
                self.at += 1
                break
            self._command(char)
        self._end_element()

    def _separators(self, *, in_case: bool) -> None:
        while char := self.peek():
            if char in BLANK:
                self.at += 1
            elif self.peek(2) == "\\\n":
                self.at += 2
            elif char == "#":
                self._comment()
            elif char == "\n":
                self._newline()
                self._end_list()
            elif char in ";&|" and not self._is_other(in_case=in_case):
                self._operator()
            else:
                return

    def _is_other(self, *, in_case: bool) -> bool:
        """Whether what looks like a separator is a redirection, or the end of a clause in a case."""
        two = self.peek(2)
        if two == ";;" and not in_case:
            raise Unparsable(";; outside of a case")
        return (two == "&>" and not self.posix) or (in_case and two in (";;", ";&", ";|"))

    def _operator(self) -> None:
        two = self.peek(2)
        self.at += 2 if two in ("&&", "||", "|&") else 1
        if two in ("&&", "||"):
            self._end_element()
        elif two[0] == "|":
            self._rescope(self.place.element_start)
            self.place.element_start = len(self.commands)
            self.place.in_pipe, self.place.closed = True, False
        else:
            self._end_element()
            if two[0] == "&":
                self._rescope(self.place.list_start)
            self._end_list()

    def _end_list(self) -> None:
        self._end_element()
        self.place.list_start = len(self.commands)

    def _end_element(self) -> None:
        if self.place.in_pipe:
            self._rescope(self.place.element_start)
        self.place.element_start = len(self.commands)
        self.place.in_pipe = self.place.closed = False

    # Commands.

    def _command(self, char: str) -> None:
        if char == ")":
            raise Unparsable("a closing parenthesis too many")
        if char == "(":
            self._must_not_follow()
            self.at += 1
            self._subshell(")")
            self.place.closed = True
            return
        start = self.at
        if self._is_redirect():
            self.simple(start, None)
            return
        word = self._checked_word()
        if word is None:
            raise Unparsable(f"{char!r} where a command should begin")
        if not self._structure(word):
            self._must_not_follow()
            self.simple(start, word)

    def _must_not_follow(self) -> None:
        if self.place.closed:
            raise Unparsable("a command right after a compound one")

    def _structure(self, word: Word) -> bool:
        """Whether ``word`` is one that gives structure; what belongs to it is passed."""
        text = word.text.replace("\\\n", "")
        if text in _BLOCKS:
            self._open()
        elif text in _ENDS:
            self._close()
        elif text in _BETWEEN:
            self.place.closed = False
        else:
            return self._compound(text)
        return True

    def _compound(self, text: str) -> bool:
        match text:
            case "time":
                self._time()
            case "for" | "select":
                self._open()
                self._for()
            case "case":
                self._open()
                self._case()
                self._close()
            case "function":
                self._function()
            case "[[" if not self.posix:
                self._test()
            case "coproc":
                raise Unparsable("coproc")
            case _:
                return False
        return True

    def _open(self) -> None:
        self.opened.append(self.place)
        self.place = self._here()

    def _close(self) -> None:
        if self.opened:
            self._end_element()
            self.place = self.opened.pop()
        self.place.closed = True

    def _time(self) -> None:
        self._blanks()
        while self._is_word("-p") or self._is_word("--"):
            self.at += 2
            self._blanks()
        if self.posix and self.peek() == "-":
            raise Unparsable("flags of time, which is a program of its own to some of the plainer shells")

    def _function(self) -> None:
        self._blanks()
        if self._checked_word() is None:
            raise Unparsable("a function without a name")
        self._blanks()
        if self.peek() == "(":
            self._empty_parentheses()
        self._body()

    def _for(self) -> None:
        self._blanks()
        if self.peek(2) == "((":
            self.pass_arithmetic()
            return
        variable = self._checked_word()
        if variable is None:
            raise Unparsable("a loop without a variable")
        self._blanks(newlines=True)
        if not self._is_word("in"):
            return
        self.at += 2
        self._blanks()
        while self.peek() != "#" and (word := self._checked_word()) is not None:
            if self.counts:
                self.evaluated(word)
            self.loops.append(Word(*(f"{variable.value}={each}" for each in (word.text, word.value, word.bare))))
            self._blanks()
        if self.peek() not in ("\n", ";", "#"):
            raise Unparsable("a loop over something else than words")

    def _case(self) -> None:
        self._blanks()
        if self._checked_word() is None:
            raise Unparsable("a case of nothing")
        self._blanks(newlines=True)
        if not self._is_word("in"):
            raise Unparsable("a case without in")
        self.at += 2
        while True:
            self._blanks(newlines=True)
            if self._is_word("esac"):
                break
            self._patterns()
            self._list("", in_case=True)
            while self.peek() and self.peek() in ";&|":
                self.at += 1
        self.at += len("esac")

    def _patterns(self) -> None:
        if self.peek() == "(":
            self.at += 1
        while True:
            self._blanks()
            if self._checked_word() is None:
                raise Unparsable("a case without a pattern")
            self._blanks()
            char = self.peek()
            self.at += 1
            if char == ")":
                return
            if char != "|":
                raise Unparsable("a pattern without a parenthesis")

    def _test(self) -> None:
        self._blanks()
        while not self._is_word("]]"):
            char, two = self.peek(), self.peek(2)
            if char in ("", ";", "#") or (char == "&" and two != "&&"):
                raise Unparsable("no end to [[")
            if char == "\n":
                self._newline()
            elif (word := self._checked_word()) is None:
                self.at += 2 if two == "&&" else 1
            else:
                self.evaluated(word)
            self._blanks()
        self.at += 2
        self.place.closed = True
