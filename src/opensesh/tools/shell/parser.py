"""Parser for shell command lines: the simple commands in them, at any depth.

Pipelines, lists, subshells, groups, loops, conditions, functions, substitutions and heredocs are resolved; the result
is the flat list of simple commands, in the order in which they are written. Words that only give structure (``if``,
``do``, ``{``) are skipped without checking that they match: a line that no shell accepts may be parsed, but a line that
a shell would run is never parsed with a command missing, unless there are doubts about it.
"""

from __future__ import annotations

import re
from itertools import count
from typing import TYPE_CHECKING, NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from .heredocs import Heredoc
from .lexer import BLANK, META, Redirection, ShellCommand, ShellLanguage, Unparsable, Word, WordReader

if TYPE_CHECKING:
    from collections.abc import Iterator

_BLOCKS = frozenset(("{", "if", "while", "until"))
_BLOCK_ENDS = frozenset(("}", "fi", "done"))
_SEPARATING_WORDS = frozenset(("then", "elif", "else", "do", "!"))
_FUNCTION_BODIES = ("{", "(", "if", "while", "until", "for", "case", "select", "[[")
_CASE_ENDS = (";;", ";&", ";|")
_MAX_DEPTH = 50
_MAX_COMMANDS = 1_000
_MAX_LOOP_WORDS = 1_000

_REDIRECTION = re.compile(r"&>>|&>|\d*(?:<<<|<<-|<<|<>|<&|<|>>|>&|>\||>)")
_ASSIGNMENT = re.compile(r"[A-Za-z_][A-Za-z0-9_]*(?:\[.*?\])?\+?=", re.DOTALL)
_DUPLICATED = re.compile(r"[0-9]-?|-")
# Operators of [[ that compare text and look at files. All others may evaluate an operand as an expression.
_TEST_OPERATORS = frozenset("! && || ( ) = == != =~ -z -n -f -d -e -r -w -x -s -L -h".split())


class ParsedLine(NamedTuple):
    """A command line that was parsed."""

    commands: list[ShellCommand]
    """The commands that a shell would or might run."""
    doubts: list[str]
    """Reasons why the shell may do something else, too. Without any, the commands are all that it runs."""


def parse(source: str, shell: ShellLanguage = "bash") -> ParsedLine:
    """Parse a line for a shell. Raises :class:`Unparsable`."""
    parser = _CommandParser(source, shell)
    parser.program()
    return ParsedLine(parser.commands, parser.doubts)


class _ListState(Struct):
    """The parser's position in a list, saved while it parses something nested."""

    list_start: int
    """Index of the first command that an ``&`` would send to the background."""
    element_start: int
    """Index of the first command that a ``|`` would put in a pipe."""
    in_pipe: bool = False
    closed: bool = False
    """A compound command has just ended; another needs a separator first."""
    conditional: bool = False
    """Whether the next command depends on the exit code of one before it."""
    loop_variable: str = ""


class _CommandParser(WordReader):
    def __init__(self, source: str, shell: ShellLanguage, parent: _CommandParser | None = None) -> None:
        super().__init__(source, shell)
        if parent:
            self.doubts = parent.doubts
        self.commands: list[ShellCommand] = parent.commands if parent else []
        self.scopes: Iterator[int] = parent.scopes if parent else count(1)
        self.scope: tuple[int, ...] = parent.new_scope() if parent else ()
        self.depth: int = parent.depth if parent else 0
        self.loops: list[Word] = parent.loops if parent else []
        self.heredocs: list[Heredoc] = []
        """Announced heredocs whose bodies begin on the next line."""
        self.state = self._new_state()
        self.open_blocks: list[_ListState] = []

    def program(self) -> None:
        """Parse the whole source."""
        self._enter()
        self._list("")
        if self.heredocs:
            raise Unparsable("a heredoc without a body")

    # WordReader: commands inside words.

    def commands_until(self, closer: str) -> None:
        heredocs, self.heredocs = self.heredocs, []
        self._subshell(closer)
        if self.heredocs:
            raise Unparsable("a heredoc without a body")
        self.heredocs = heredocs

    def commands_in(self, source: str) -> None:
        _CommandParser(source, self.shell, parent=self).program()

    def expansions_in(self, source: str) -> None:
        _CommandParser(source, self.shell, parent=self).expansions()

    # Subshells and lists.

    def _new_state(self) -> _ListState:
        return _ListState(len(self.commands), len(self.commands))

    def _enter(self) -> None:
        self.depth += 1
        if self.depth > _MAX_DEPTH:
            raise Unparsable("nested too deeply")

    def new_scope(self) -> tuple[int, ...]:
        """Return a new subshell scope inside this one."""
        return (*self.scope, next(self.scopes))

    def _subshell(self, closer: str) -> None:
        self._enter()
        scope, state, open_blocks = self.scope, self.state, self.open_blocks
        self.scope, self.state, self.open_blocks = self.new_scope(), self._new_state(), []
        self._list(closer)
        self.scope, self.state, self.open_blocks = scope, state, open_blocks
        self.depth -= 1

    def _move_to_subshell(self, start: int) -> None:
        """Move the commands since ``start`` to a subshell: an operator behind them shows that they run in one."""
        outer = len(self.scope)
        inner = self.new_scope()
        for index in range(start, len(self.commands)):
            command = self.commands[index]
            self.commands[index] = replace(command, scope=inner + command.scope[outer:])

    def _list(self, closer: str, *, in_case: bool = False) -> None:
        """Parse commands up to ``closer`` (skipped), the end, or, in a case, ``;;`` or ``esac`` (not skipped)."""
        while True:
            self._separators(in_case=in_case)
            char = self.peek()
            if in_case and (self.peek(2) in _CASE_ENDS or self._at_word("esac")):
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
        while True:
            self._blanks()
            char, two = self.peek(), self.peek(2)
            if char == "#":
                self._comment()
            elif char == "\n":
                self._newline()
                self._end_list()
            elif not char or char not in ";&|":
                return
            elif two == ";;" and not in_case:
                raise Unparsable(";; outside of a case")
            elif (two == "&>" and not self.posix) or (in_case and two in _CASE_ENDS):
                return
            else:
                self._operator(two)

    def _operator(self, two: str) -> None:
        if two == "|&" and self.shell in ("ksh", "posix"):
            self.doubts.append("|&, which starts a coprocess or is an error")
        self.at += 2 if two in ("&&", "||", "|&") else 1
        if two in ("&&", "||"):
            self._end_element()
            self.state.conditional = True
        elif two[0] == "|":
            self._move_to_subshell(self.state.element_start)
            self.state.element_start = len(self.commands)
            self.state.in_pipe, self.state.closed = True, False
        else:
            self._end_element()
            if two[0] == "&":
                self._move_to_subshell(self.state.list_start)
            self._end_list()

    def _end_list(self) -> None:
        self._end_element()
        self.state.list_start = len(self.commands)
        self.state.conditional = False

    def _end_element(self) -> None:
        if self.state.in_pipe:
            self._move_to_subshell(self.state.element_start)
        self.state.element_start = len(self.commands)
        self.state.in_pipe = self.state.closed = False

    # Compound commands.

    def _command(self, char: str) -> None:
        if char == ")":
            raise Unparsable("an unmatched closing parenthesis")
        if char == "(":
            self._require_separator()
            if self.peek(2) == "((":
                self.doubts.append("arithmetic, or two subshells")
            self.at += 1
            self._subshell(")")
            self.state.closed = True
            return
        start = self.at
        if self._redirection_operator():
            self._simple_command(start, None)
            return
        word = self._checked_word()
        if word is None:
            raise Unparsable(f"{char!r} where a command should begin")
        if not self._reserved_word(word.text.replace("\\\n", "")):
            self._require_separator()
            self._simple_command(start, word)

    def _require_separator(self) -> None:
        if self.state.closed:
            raise Unparsable("a command right after a compound one")

    def _reserved_word(self, text: str) -> bool:
        """Parse what belongs to a reserved word; return false if ``text`` is none."""
        match text:
            case _ if text in _BLOCKS:
                self._open_block()
            case _ if text in _BLOCK_ENDS:
                self._close_block()
            case _ if text in _SEPARATING_WORDS:
                self.state.closed = False
            case "time":
                self._time()
            case "for" | "select":
                self._open_block()
                self._for(text)
            case "case":
                self._open_block()
                self._case()
                self._close_block()
            case "function":
                self._function()
            case "[[" if not self.posix:
                self._test()
            case "coproc":
                raise Unparsable("coproc")
            case _:
                return False
        return True

    def _open_block(self) -> None:
        self.open_blocks.append(self.state)
        self.state = self._new_state()

    def _close_block(self) -> None:
        if self.open_blocks:
            self._end_element()
            self.state = self.open_blocks.pop()
        self.state.closed = True

    def _time(self) -> None:
        if self.posix:
            self.doubts.append("time, which is a separate program for some POSIX shells")
        self._blanks()
        while self._at_word("-p") or self._at_word("--"):
            self.at += 2
            self._blanks()
        if self.posix and self.peek() == "-":
            raise Unparsable("flags of time, which is a separate program for some POSIX shells")

    def _function(self) -> None:
        self._blanks()
        if self._checked_word() is None:
            raise Unparsable("a function without a name")
        self._blanks()
        self._function_body(parentheses=self.peek() == "(")

    def _function_body(self, *, parentheses: bool) -> None:
        """Skip ``()`` and check that a compound command follows, which is then parsed like any other."""
        self.doubts.append("a function")
        if parentheses:
            self.at += 1
            self._blanks()
            if self.peek() != ")":
                raise Unparsable("a parenthesis in the middle of a command")
            self.at += 1
        self._blanks(newlines=True)
        if self.peek() != "(" and not any(self._at_word(word) for word in _FUNCTION_BODIES):
            raise Unparsable("a function without a body")

    def _for(self, reserved_word: str) -> None:
        if reserved_word == "select":
            self.doubts.append("select, which reads the value of a variable")
        self._blanks()
        if self.peek(2) == "((":
            self.doubts.append("a loop with arithmetic")
            self.skip_loop_arithmetic()
            return
        variable = self._checked_word()
        if variable is None:
            raise Unparsable("a loop without a variable")
        self.state.loop_variable = variable.value
        self._blanks(newlines=True)
        if not self._at_word("in"):
            self.doubts.append("a loop over the arguments")
            return
        self.at += 2
        self._blanks()
        while self.peek() != "#" and (word := self._checked_word()) is not None:
            self.loops.append(Word(*(f"{variable.value}={text}" for text in (word.text, word.value, word.bare))))
            self._blanks()
        if self.peek() not in ("\n", ";", "#"):
            raise Unparsable("a loop over something other than words")

    def _case(self) -> None:
        self._blanks()
        if self._checked_word() is None:
            raise Unparsable("a case without a word")
        self._blanks(newlines=True)
        if not self._at_word("in"):
            raise Unparsable("a case without in")
        self.at += 2
        while True:
            self._blanks(newlines=True)
            if self._at_word("esac"):
                break
            if self.peek() == "(":
                self.at += 1
            self._case_patterns()
            self._list("", in_case=True)
            while self.peek() and self.peek() in ";&|":
                if self.peek() != ";":
                    self.doubts.append("a case that falls through")
                self.at += 1
        self.at += len("esac")

    def _case_patterns(self) -> None:
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
        while not self._at_word("]]"):
            char, two = self.peek(), self.peek(2)
            if char in ("", ";", "#") or (char == "&" and two != "&&"):
                raise Unparsable("no end to [[")
            if char == "\n":
                self._newline()
            elif (word := self._checked_word()) is None:
                if two not in ("&&", "||"):
                    self.doubts.append(f"{char} in [[")
                self.at += 2 if two in ("&&", "||") else 1
            elif word.text.startswith("-") and word.text not in _TEST_OPERATORS:
                self.doubts.append(f"{word.text} in [[, which may evaluate an operand")
            self._blanks()
        self.at += 2
        self.state.closed = True

    # Simple commands.

    def _simple_command(self, start: int, word: Word | None) -> None:
        """Parse the command that began at ``start``; ``word`` is its first word, if that has been read."""
        words: list[Word] = []
        assignments: list[Word] = []
        redirects: list[Redirection] = []
        while True:
            if word is not None:
                is_assignment = not words and _ASSIGNMENT.match(word.text)
                (assignments if is_assignment else words).append(word)
                self._skip_array(word)
                if word.text in ("{", "}") and words:
                    self.doubts.append("a brace that some shells take for the end of a block")
            end = self.at
            self._blanks()
            if operator := self._redirection_operator():
                if words and self.at == end and words[-1].text.endswith("}"):
                    self.doubts.append("a descriptor in a variable")  # {fd}> file
                redirects.append(self._redirection(operator))
                word = None
                continue
            if self.peek() == "(":
                if len(words) != 1 or assignments or redirects:
                    raise Unparsable("a parenthesis in the middle of a command")
                self._function_body(parentheses=True)
                return
            word = None if self.peek() == "#" else self._checked_word()
            if word is None:
                break
        before = self.commands[-1].loops if self.commands else ()
        command = ShellCommand(
            text=self.source[start:end],
            words=tuple(words),
            assignments=tuple(assignments),
            redirects=tuple(redirects),
            loops=before if len(before) == len(self.loops) else tuple(self.loops),
            loop_variables=tuple(state.loop_variable for state in (*self.open_blocks, self.state)),
            unconditional=not self.state.conditional and not self.open_blocks,
            scope=self.scope,
        )
        self.commands.append(command)
        if len(self.commands) > _MAX_COMMANDS or len(self.loops) > _MAX_LOOP_WORDS:
            raise Unparsable("too many commands, or words in loops")

    def _checked_word(self) -> Word | None:
        word = self.word()
        if word is not None and self.heredocs and "\n" in word.text:
            raise Unparsable("a heredoc inside a word of several lines")
        return word

    def _skip_array(self, word: Word) -> None:
        """Skip the list in parentheses if ``word`` is the beginning of an array assignment."""
        if self.peek() != "(" or not _ASSIGNMENT.fullmatch(word.text):
            return
        self.doubts.append("an array")
        self.at += 1
        while True:
            self._blanks(newlines=True)
            if self.peek() == ")":
                self.at += 1
                if self.peek() and self.peek() not in META:
                    raise Unparsable("a word that continues after an array")
                return
            if self._checked_word() is None:
                raise Unparsable("an unclosed array")

    # Redirections and heredocs.

    def _redirection_operator(self) -> re.Match[str] | None:
        two = self.peek(2)
        if two in ("<(", ">(") or (two == "&>" and self.posix):
            return None
        return _REDIRECTION.match(self.source, self.at)

    def _redirection(self, match: re.Match[str]) -> Redirection:
        operator = match[0].lstrip("0123456789")
        if len(match[0]) - len(operator) > 1 or (operator == "<<<" and self.posix):
            self.doubts.append("a redirection that not every shell supports")
        if operator in ("&>", "&>>") and self.shell in ("ksh", "posix"):
            self.doubts.append("&>, which some shells read as two operators")
        self.at = match.end()
        if ">" in operator and self.peek() == "!":
            raise Unparsable(">!, a file for some shells and an operator for others")
        self._blanks()
        target = self._checked_word()
        if target is None:
            raise Unparsable("a redirection without a target")
        if operator in ("<<", "<<-"):
            self.heredocs.append(Heredoc.announced(target, strip_tabs=operator == "<<-"))
            return Redirection(operator, target, self.heredocs[-1].bodies)
        if operator in ("<&", ">&") and not _DUPLICATED.fullmatch(target.text):
            self.doubts.append("a descriptor that is not a number")
        if target.text.startswith("#"):
            self.doubts.append("a redirection to a position")
        return Redirection(operator, target, [target.value] if operator == "<<<" else [])

    def _newline(self) -> None:
        self.at += 1
        heredocs, self.heredocs = self.heredocs, []
        for heredoc in heredocs:
            self.at = heredoc.read(self.source, self.at)
            if not heredoc.quoted:
                self.expansions_in(heredoc.bodies[-1])

    # Between words.

    def _comment(self) -> None:
        end = self.source.find("\n", self.at)
        self.at = len(self.source) if end < 0 else end

    def _blanks(self, *, newlines: bool = False) -> None:
        while char := self.peek():
            if char in BLANK:
                self.at += 1
            elif self.peek(2) == "\\\n":
                self.continue_line()
            elif newlines and char == "\n":
                self._newline()
            elif newlines and char == "#":
                self._comment()
            else:
                return

    def _at_word(self, text: str) -> bool:
        after = self.source[self.at + len(text) : self.at + len(text) + 1]
        return self.source.startswith(text, self.at) and (not after or after in META)
