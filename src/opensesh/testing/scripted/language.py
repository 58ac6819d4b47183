"""The language of scripts for :class:`~opensesh.testing.scripted.ScriptedModel`.

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

``SAY text``, ``THINK text``
    Text and reasoning. Consecutive steps of one kind are joined without a separator.
``CALL tool {json}``
    A tool call. Without the JSON, an indented block contains the arguments in fragments, one a line, which may be
    invalid. ``id=...`` after the tool sets the call's id.
``META {json}``
    Provider metadata of the text, reasoning or call before it.
``USAGE input=9 output=4``
    Tokens; also ``reasoning``, ``cache_read``, ``cache_write`` and ``total``. ``USAGE 9000`` is the default usage of a
    prompt with that many tokens.
``FINISH reason``
    The finish reason; the default is ``tool-calls`` after a call and ``stop`` otherwise.
``ERROR kind``
    The call fails here, and the turn ends: one of :data:`FAILURE_KINDS`, or an HTTP status. ``after=2`` asks to wait
    (in the forms ``form=date`` and ``form=ms`` too); also ``status=503`` and ``message="..."``.
``WAIT 0.5``, ``HANG``
    Seconds of silence; silence until the caller cancels.
``SPLIT 3``, ``SPLIT word``
    The size of the deltas that follow. Without it a step is one delta.
``DRIP 0.01``
    Seconds before each delta that follows; over HTTP, every frame then comes in two halves.
``EXPECT last text``
    What the request must contain: in its last message, in its ``system`` prompt, or as ``tools``.
``TITLE text``
    Begins a turn that answers title requests, whenever they come, and no others.

Text that begins or ends with a space, or begins with a quotation mark, is written as a JSON string.
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
    """The script is invalid: the reason, and the line, or the turn and step, counted from 1."""

    def __init__(self, reason: str, *, line: int = 0, turn: int = 0, step: int = 0) -> None:
        position = (("line", line), ("turn", turn), ("step", step))
        where = ", ".join(f"{name} {number}" for name, number in position if number)
        super().__init__(f"{where}: {reason}" if where else reason, line=line, turn=turn, step=step)
        self.reason = reason
        self.line = line
        self.turn = turn
        self.step = step


class ScriptTurn(Struct, frozen=True):
    """The answer to one model call. Raises :class:`InvalidScriptError` if the steps do not fit together."""

    steps: tuple[ScriptStep, ...]

    def __post_init__(self) -> None:
        if not self.steps:
            raise InvalidScriptError("a turn needs steps; an empty answer is FINISH stop")
        for number, step in enumerate(self.steps, start=1):
            problem = step.problem() or _misplaced(step, self.steps[: number - 1])
            if problem:
                raise InvalidScriptError(f"{step.keyword}: {problem}", step=number)

    @property
    def is_title(self) -> bool:
        """Whether it answers title requests, and only those."""
        return any(isinstance(step, Title) for step in self.steps)

    def __str__(self) -> str:
        return "\n".join(map(str, self.steps))


class Script(Struct, frozen=True):
    """The answers of a model, call by call. Parsing ``str(script)`` gives an equal script."""

    turns: tuple[ScriptTurn, ...]

    @classmethod
    def parse(cls, text: str) -> Self:
        """Parse the text form; raises :class:`InvalidScriptError` with the line."""
        lines = list(_scan(text, strict=True))
        return cls(tuple(_turn(group) for group in _groups(lines)) if lines else ())

    @classmethod
    def read(cls, path: Path) -> Self:
        """Parse a file."""
        try:
            return cls.parse(path.read_text("utf-8"))
        except InvalidScriptError as error:
            raise InvalidScriptError(f"{path}: {error.reason}", line=error.line) from None

    def __str__(self) -> str:
        return f"\n{_SEPARATOR}\n".join(map(str, self.turns)) + "\n"


def turn(*steps: ScriptStep | str) -> ScriptTurn:
    """Build a turn; a string is a :class:`Say` step."""
    return ScriptTurn(tuple(Say(step) if isinstance(step, str) else step for step in steps))


def script(*turns: ScriptTurn | ScriptStep | str | Sequence[ScriptStep | str]) -> Script:
    """Build a script. Each argument is a turn, a sequence of steps, or the only step of a turn."""
    built: list[ScriptTurn] = []
    for number, item in enumerate(turns, start=1):
        try:
            if isinstance(item, ScriptTurn):
                built.append(item)
            elif isinstance(item, str) or not isinstance(item, Sequence):
                built.append(turn(item))
            else:
                built.append(turn(*item))
        except InvalidScriptError as error:
            raise InvalidScriptError(error.reason, turn=number, step=error.step) from None
    return Script(tuple(built))


def parse_prompt(text: str) -> list[list[ScriptTurn]]:
    """Return the script in a prompt: for each model call, one turn for each attempt.

    Other lines are ignored, and there may be no script at all. Words arrive one by one, each with the space after it;
    a failure ends an attempt, and what follows answers the next one. Sessions recorded with OpenCode were made by such
    prompts, which also use ``SLOW 8`` (wait) and ``FAIL 429``.
    """
    groups = _groups(_scan(text, strict=False))
    return [[_turn(attempt) for attempt in _attempts(group)] for group in groups if group[0].step is not None]


class _ScriptLine(NamedTuple):
    number: int
    step: ScriptStep | None
    """``None``: a separator between turns."""


_STEPS: dict[str, type[ScriptStep]] = {kind.keyword: kind for kind in get_args(ScriptStep)}
_PARSERS = {keyword: kind.parse for keyword, kind in _STEPS.items()} | {"FAIL": Fail.recorded, "SLOW": Wait.parse}


def _scan(text: str, *, strict: bool) -> Iterator[_ScriptLine]:
    lines = text.replace("\r\n", "\n").split("\n")
    index = 0
    while index < len(lines):
        line = lines[index]
        index += 1
        number = index
        match = _LINE.fullmatch(line)
        if line.rstrip() == _SEPARATOR:
            yield _ScriptLine(number, None)
        elif match and match[1] in _PARSERS:
            keyword, rest = match[1], match[2] or ""
            block = None
            if "{" not in rest if keyword == "CALL" else not rest and keyword in ("SAY", "THINK", "TITLE"):
                start = index
                while index < len(lines) and (not lines[index].strip() or lines[index][0] in " \t"):
                    index += 1
                while index > start and not lines[index - 1].strip():
                    index -= 1
                block = unindent(lines[start:index]) if index > start else None
            try:
                step = _PARSERS[keyword](rest, block)
            except ValueError as error:
                raise InvalidScriptError(f"{keyword}: {error}", line=number) from None
            yield _ScriptLine(number, step)
        elif strict and line.strip() and not line.startswith("#"):
            # The line is not quoted: a client may name any file as a script, and the error reaches the client.
            raise InvalidScriptError(f"it does not begin with one of {', '.join(_STEPS)}", line=number)


def _groups(lines: Iterable[_ScriptLine]) -> list[list[_ScriptLine]]:
    """Return the lines of each turn; an empty turn keeps the line that ends it."""
    groups: list[list[_ScriptLine]] = [[]]
    last = 0
    for line in lines:
        last = line.number
        if line.step is None:
            groups[-1] = groups[-1] or [line]
            groups.append([])
        else:
            groups[-1].append(line)
    groups[-1] = groups[-1] or [_ScriptLine(last, None)]
    return groups


def _turn(lines: list[_ScriptLine]) -> ScriptTurn:
    try:
        return ScriptTurn(tuple(line.step for line in lines if line.step is not None))
    except InvalidScriptError as error:
        raise InvalidScriptError(error.reason, line=lines[max(0, error.step - 1)].number) from None


def _attempts(lines: list[_ScriptLine]) -> list[list[_ScriptLine]]:
    attempts: list[list[_ScriptLine]] = [[]]
    for number, step in lines:
        if attempts[-1] and isinstance(attempts[-1][-1].step, Fail):
            attempts.append([])
        if not attempts[-1]:
            attempts[-1].append(_ScriptLine(number, Split("word")))
        with_space = type(step)(f"{step.text} ") if isinstance(step, Say | Think) else step
        attempts[-1].append(_ScriptLine(number, with_space))
    return attempts


def _misplaced(step: ScriptStep, before: Sequence[ScriptStep]) -> str:
    """Return why ``step`` cannot follow the steps ``before`` it, or an empty string."""
    seen = {type(other) for other in before}
    match step:
        case _ if before and isinstance(before[-1], Fail | Hang):
            problem = f"{before[-1].keyword} ends the turn, so no step can follow it"
        case ReportUsage() | FinishWith() if type(step) in seen:
            problem = "only one in a turn"
        case Title() if seen - {Expect, Split, Drip}:
            problem = "it has to begin its turn"
        case CallTool() if Title in seen:
            problem = "a title cannot call tools"
        case CallTool() if step.id and any(isinstance(other, CallTool) and other.id == step.id for other in before):
            problem = f"the id {step.id} is used by an earlier call"
        case Say() | Think() | CallTool() if FinishWith in seen:
            problem = "FINISH ended the answer"
        case _:
            problem = ""
    return problem
