"""The commands of a shell command line, however deep they are hidden.

Pipelines, lists, subshells, groups, loops, conditions, functions, substitutions and heredocs are taken apart; what
comes out is the flat list of the simple commands in them, in the order in which they are written. Words that only
give structure (``if``, ``do``, ``{``) are passed over without checking that they fit together: a line that no shell
would accept may be read, but none that a shell would run is read with a command missing.
"""

from __future__ import annotations

import re

from msgspec import Struct
from msgspec.structs import replace

from .command import Command, Redirect
from .words import BLANK, META, Unparsable, Word, WordReader

_BLOCKS = frozenset(("{", "if", "while", "until"))
_ENDS = frozenset(("}", "fi", "done"))
_BETWEEN = frozenset(("then", "elif", "else", "do", "!"))
_BODIES = ("{", "(", "if", "while", "until", "for", "case", "select", "[[")
_REDIRECT = re.compile(r"&>>|&>|\d*(?:<<<|<<-|<<|<>|<&|<|>>|>&|>\||>)")
_ASSIGNMENT = re.compile(r"[A-Za-z_]\w*(?:\[.*?\])?\+?=", re.DOTALL)
_DESCRIPTOR = re.compile(r"\{\w+\}")
_DEEPEST = 50


class _Heredoc(Struct, frozen=True):
    delimiter: str
    quoted: bool
    strip_tabs: bool


class _Place(Struct):
    """Where the parser is, as far as it must be taken up again after something nested."""

    list_start: int
    """The first command of the list that an ``&`` would send to the background."""
    element_start: int
    """The first command of the element that a ``|`` would put in a pipe."""
    in_pipe: bool = False
    closed: bool = False
    """A compound command has just ended; no other can begin without a separator."""


def parse(source: str, *, posix: bool = False) -> list[Command]:
    """The commands that a shell would run, or might; or :class:`Unparsable`.

    ``posix``: for a shell that knows neither ``[[`` nor ``&>``, such as dash.
    """
    parser = _Parser(source, posix=posix)
    parser.program()
    return parser.commands


class _Parser(WordReader):
    def __init__(self, source: str, *, posix: bool, parent: _Parser | None = None) -> None:
        super().__init__(source, posix=posix)
        self.commands: list[Command] = parent.commands if parent else []
        self.scopes: list[int] = parent.scopes if parent else [0]
        self.scope: tuple[int, ...] = parent.new_scope() if parent else ()
        self.depth: int = parent.depth if parent else 0
        self.heredocs: list[_Heredoc] = []
        self.place = self._here()
        self.opened: list[_Place] = []
        """Where the blocks began that are still open."""

    def program(self) -> None:
        """Parse the whole source."""
        self._deeper()
        self._list("")
        if self.heredocs:
            raise Unparsable("a heredoc without a body")

    # What the reader of words needs.

    def commands_until(self, closer: str) -> None:
        heredocs, self.heredocs = self.heredocs, []
        self._subshell(closer)
        if self.heredocs:
            raise Unparsable("a heredoc without a body")
        self.heredocs = heredocs

    def nested(self, source: str, method: str) -> None:
        inner = _Parser(source, posix=self.posix, parent=self)
        if method == "program":
            inner.program()
        else:
            inner.expansions()

    # Subshells, and what runs in them.

    def _here(self) -> _Place:
        return _Place(len(self.commands), len(self.commands))

    def _deeper(self) -> None:
        self.depth += 1
        if self.depth > _DEEPEST:
            raise Unparsable("nested too deeply")

    def new_scope(self) -> tuple[int, ...]:
        """A scope within this one, unlike any other."""
        self.scopes[0] += 1
        return (*self.scope, self.scopes[0])

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
            self._simple(start, None)
            return
        word = self._checked_word()
        if word is None:
            raise Unparsable(f"{char!r} where a command should begin")
        if not self._structure(word):
            self._must_not_follow()
            self._simple(start, word)

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

    def _function(self) -> None:
        self._blanks()
        if self._checked_word() is None:
            raise Unparsable("a function without a name")
        self._blanks()
        if self.peek() == "(":
            self._empty_parentheses()
        self._body()

    def _body(self) -> None:
        self._blanks(newlines=True)
        if self.peek() != "(" and not any(self._is_word(word) for word in _BODIES):
            raise Unparsable("a function without a body")

    def _for(self) -> None:
        self._blanks()
        if self.peek(2) == "((":
            self.pass_arithmetic()
            return
        if self._checked_word() is None:
            raise Unparsable("a loop without a variable")
        self._blanks(newlines=True)
        if not self._is_word("in"):
            return
        self.at += 2
        self._blanks()
        while self.peek() != "#" and self._checked_word() is not None:
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
            elif self._checked_word() is None:
                self.at += 2 if two == "&&" else 1
            self._blanks()
        self.at += 2
        self.place.closed = True

    # Simple commands.

    def _simple(self, start: int, word: Word | None) -> None:
        words: list[Word] = []
        assignments: list[Word] = []
        redirects: list[Redirect] = []
        while True:
            if word is not None:
                front = not words and _ASSIGNMENT.match(word.text)
                (assignments if front else words).append(self._array(word))
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
        command = Command(
            text=self.source[start:end],
            words=tuple(words),
            assignments=tuple(assignments),
            redirects=tuple(redirects),
            scope=self.scope,
        )
        self.commands.append(command)

    def _checked_word(self) -> Word | None:
        word = self.word()
        if word is not None and self.heredocs and "\n" in word.text:
            raise Unparsable("a heredoc in the middle of a word of several lines")
        return word

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
            if self._checked_word() is None:
                raise Unparsable("no end to an array")

    def _definition(self, words: list[Word], assignments: list[Word], redirects: list[Redirect]) -> None:
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

    def _redirect(self, words: list[Word], end_of_word: int) -> Redirect:
        found = _REDIRECT.match(self.source, self.at)
        if found is None:
            raise Unparsable("a redirection")
        if words and self.at == end_of_word and _DESCRIPTOR.fullmatch(words[-1].text):
            words.pop()  # {fd}> file
        operator = found[0].lstrip("0123456789")
        self.at = found.end()
        self._blanks()
        target = self._checked_word()
        if target is None:
            raise Unparsable("a redirection to nowhere")
        if operator in ("<<", "<<-"):
            self._expect_heredoc(target, operator)
        return Redirect(operator, target)

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
            self.nested("\n".join(body), "expansions")

    def _line(self) -> str:
        end = self.source.find("\n", self.at)
        end = len(self.source) if end < 0 else end
        line = self.source[self.at : end]
        self.at = min(end + 1, len(self.source))
        return line


def _continues(line: str) -> bool:
    return (len(line) - len(line.rstrip("\\"))) % 2 == 1
