"""What a model is going to say, written down: the vocabulary of the scripted model, and its text form.

A script is a list of turns, each the answer to one model call; a turn is a list of steps::

    # A comment starts a line.
    EXPECT last fix the bug
    THINK I should look first.
    SAY I will read the file.
    CALL read {"filePath": "/srv/a.py"}
    USAGE input=900 output=40
    ---
    SAY
      Done. A text of several lines
      is an indented block.
    ---
    TITLE Fixing the bug

``SAY words``, ``THINK words``
    Text and reasoning. One right after another of its kind goes on where that ended, to the letter.
``CALL tool {json}``
    A tool call. Without the JSON, an indented block holds its arguments in fragments, one a line, which may well
    be broken. ``id=...`` after the tool fixes the call's id.
``META {json}``
    Provider metadata of the text, reasoning or call before it; otherwise of the whole answer.
``USAGE input=9 output=4``
    Tokens; also ``reasoning``, ``cache_read``, ``cache_write`` and ``total``. ``USAGE 9000`` is the usage of a
    prompt of so many tokens by :func:`prompt_usage`.
``FINISH reason``
    Why it ended, where that is not ``tool-calls`` after a call and ``stop`` otherwise.
``ERROR kind``
    The call fails here, and the turn ends: one of :data:`KINDS`, or an HTTP status. ``after=2`` asks to wait
    (``form=date`` and ``form=ms`` are the other ways to say it); also ``status=503`` and ``message="..."``.
``WAIT 0.5``, ``HANG``
    Seconds of silence; silence for ever.
``SPLIT 3``, ``SPLIT word``
    How much of what follows comes in one delta. Without it a step is one delta.
``DRIP 0.01``
    Seconds before each delta that follows; on a wire, every frame then comes in two halves.
``EXPECT last words``
    What the request must hold: in its last message, in its ``system`` prompt, or as ``tools`` on offer.
``TITLE words``
    Opens a turn that answers a request for a title, whenever that comes, and no other.

Words that begin or end with a space, or begin with a quotation mark, are written as a JSON string.
``str(script)`` is the text form and :meth:`Script.parse` reads it; :func:`turn` and :func:`script` build the same
objects in Python.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple, Self, get_args

from msgspec import Struct

from ...errors import OpenseshError
from .steps import (
    CallTool,
    Drip,
    Expect,
    Fail,
    FinishWith,
    Hang,
    ReportUsage,
    Say,
    ScriptStep,
    Split,
    Think,
    Title,
    Wait,
    unindent,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

_LINE = re.compile(r"([A-Z]+)(?:[ \t]+(.*?))?\s*", re.DOTALL)
_SEPARATOR = "---"


class InvalidScriptError(OpenseshError):
    """A script that cannot be played: which line, or which step of which turn, and why. All count from 1."""

    def __init__(self, reason: str, *, line: int = 0, turn: int = 0, step: int = 0) -> None:
        places = (("line", line), ("turn", turn), ("step", step))
        where = ", ".join(f"{name} {number}" for name, number in places if number)
        super().__init__(f"{where}: {reason}" if where else reason, line=line, turn=turn, step=step)
        self.reason = reason
        self.line = line
        self.turn = turn
        self.step = step


class ScriptTurn(Struct, frozen=True):
    """The answer to one model call. Raises :class:`InvalidScript` if it cannot be played."""

    steps: tuple[ScriptStep, ...]

    def __post_init__(self) -> None:
        if not self.steps:
            raise InvalidScriptError("a turn without steps; an empty answer is FINISH stop")
        for number, step in enumerate(self.steps, start=1):
            problem = step.problem() or _misplaced(step, self.steps[: number - 1])
            if problem:
                raise InvalidScriptError(f"{step.keyword}: {problem}", step=number)

    @property
    def is_title(self) -> bool:
        """Whether it answers requests for a title, and only those."""
        return any(isinstance(step, Title) for step in self.steps)

    def __str__(self) -> str:
        return "\n".join(map(str, self.steps))


class Script(Struct, frozen=True):
    """What a model says, call by call. ``str(script)`` can be parsed again, and gives an equal script."""

    turns: tuple[ScriptTurn, ...]

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read the text form. Raises :class:`InvalidScript` with the line."""
        lines = list(_scan(text, strict=True))
        return cls(tuple(_turn(group) for group in _groups(lines)) if lines else ())

    @classmethod
    def read(cls, path: Path) -> Self:
        """Read a file that holds the text form."""
        try:
            return cls.parse(path.read_text("utf-8"))
        except InvalidScriptError as error:
            raise InvalidScriptError(f"{path}: {error.reason}", line=error.line) from None

    def __str__(self) -> str:
        return f"\n{_SEPARATOR}\n".join(map(str, self.turns)) + "\n"


def turn(*steps: ScriptStep | str) -> ScriptTurn:
    """One turn; a string is something to say."""
    return ScriptTurn(tuple(Say(step) if isinstance(step, str) else step for step in steps))


def script(*turns: ScriptTurn | ScriptStep | str | Sequence[ScriptStep | str]) -> Script:
    """A script. Each argument is one turn: made, as a sequence of steps, or as its only step."""
    built: list[ScriptTurn] = []
    for number, given in enumerate(turns, start=1):
        try:
            built.append(_as_turn(given))
        except InvalidScriptError as error:
            raise InvalidScriptError(error.reason, turn=number, step=error.step) from None
    return Script(tuple(built))


def parse_prompt(text: str) -> list[list[ScriptTurn]]:
    """The script inside a prompt: for each model call, the turns its attempts are answered with.

    Lines that are not of a script are passed over, and there may be none. Words arrive one by one, each with the
    space after it; a failure ends an attempt, and what follows answers the next one. Sessions recorded with
    OpenCode were made by prompts of this kind, which also know ``SLOW 8`` (wait) and ``FAIL 429``.
    """
    groups = _groups(_scan(text, strict=False))
    spoken = [group for group in groups if group[0].step is not None]
    return [[_turn(attempt) for attempt in _attempts(group)] for group in spoken]


class _Line(NamedTuple):
    number: int
    step: ScriptStep | None
    """``None`` is the line between two turns."""


_STEPS: dict[str, type[ScriptStep]] = {kind.keyword: kind for kind in get_args(ScriptStep)}
_PARSERS = {keyword: kind.parse for keyword, kind in _STEPS.items()} | {"FAIL": Fail.recorded, "SLOW": Wait.parse}


def _scan(text: str, *, strict: bool) -> Iterator[_Line]:
    lines = text.replace("\r\n", "\n").split("\n")
    index = 0
    while index < len(lines):
        line = lines[index]
        index += 1
        number = index
        found = _LINE.fullmatch(line)
        if line.rstrip() == _SEPARATOR:
            yield _Line(number, None)
        elif found and found[1] in _PARSERS:
            keyword, rest = found[1], found[2] or ""
            block, index = _block(lines, index) if _takes_block(keyword, rest) else (None, index)
            yield _Line(number, _parse(keyword, rest, block, number))
        elif strict and line.strip() and not line.startswith("#"):
            raise InvalidScriptError(f"{line.strip()[:60]!r} begins with none of {', '.join(_STEPS)}", line=number)


def _takes_block(keyword: str, rest: str) -> bool:
    return "{" not in rest if keyword == "CALL" else not rest and keyword in ("SAY", "THINK", "TITLE")


def _block(lines: list[str], start: int) -> tuple[str | None, int]:
    """The indented lines from ``start`` on, and where they end."""
    end = start
    while end < len(lines) and (not lines[end].strip() or lines[end][0] in " \t"):
        end += 1
    while end > start and not lines[end - 1].strip():
        end -= 1
    return (unindent(lines[start:end]) if end > start else None), end


def _parse(keyword: str, rest: str, block: str | None, number: int) -> ScriptStep:
    try:
        return _PARSERS[keyword](rest, block)
    except ValueError as error:
        raise InvalidScriptError(f"{keyword}: {error}", line=number) from None


def _groups(lines: Iterable[_Line]) -> list[list[_Line]]:
    """The lines of each turn; an empty turn is left as the line that ends it."""
    groups: list[list[_Line]] = [[]]
    last = 0
    for line in lines:
        last = line.number
        if line.step is None:
            groups[-1] = groups[-1] or [line]
            groups.append([])
        else:
            groups[-1].append(line)
    groups[-1] = groups[-1] or [_Line(last, None)]
    return groups


def _turn(lines: list[_Line]) -> ScriptTurn:
    try:
        return ScriptTurn(tuple(line.step for line in lines if line.step is not None))
    except InvalidScriptError as error:
        raise InvalidScriptError(error.reason, line=lines[max(0, error.step - 1)].number) from None


def _attempts(lines: list[_Line]) -> list[list[_Line]]:
    attempts: list[list[_Line]] = [[]]
    for number, step in lines:
        if attempts[-1] and isinstance(attempts[-1][-1].step, Fail):
            attempts.append([])
        if not attempts[-1]:
            attempts[-1].append(_Line(number, Split("word")))
        spoken = type(step)(f"{step.text} ") if isinstance(step, Say | Think) else step
        attempts[-1].append(_Line(number, spoken))
    return attempts


def _as_turn(given: ScriptTurn | ScriptStep | str | Sequence[ScriptStep | str]) -> ScriptTurn:
    if isinstance(given, ScriptTurn):
        return given
    return turn(given) if isinstance(given, str) or not isinstance(given, Sequence) else turn(*given)


def _misplaced(step: ScriptStep, before: Sequence[ScriptStep]) -> str:
    """What is wrong with ``step`` coming after the steps ``before`` it, or nothing."""
    seen = {type(other) for other in before}
    match step:
        case _ if before and isinstance(before[-1], Fail | Hang):
            problem = f"nothing can follow {before[-1].keyword}, which ends the turn"
        case ReportUsage() | FinishWith() if type(step) in seen:
            problem = "once a turn is enough"
        case Title() if seen - {Expect, Split, Drip}:
            problem = "it opens its turn"
        case CallTool() if Title in seen:
            problem = "a title calls no tools"
        case CallTool() if step.id and any(isinstance(other, CallTool) and other.id == step.id for other in before):
            problem = f"the id {step.id} is taken by an earlier call"
        case Say() | Think() | CallTool() if FinishWith in seen:
            problem = "the answer ended with FINISH"
        case _:
            problem = ""
    return problem
