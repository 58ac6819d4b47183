"""The steps of a script. :mod:`opensesh.testing.scripted.language` describes their text form."""

from __future__ import annotations

import json
import re
from textwrap import dedent
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self, TypeAlias, cast, get_args

from msgspec import Struct

from ...models.stream_events import FinishReason, Usage

if TYPE_CHECKING:
    from collections.abc import Iterable

FailureKind = Literal[
    "auth", "overflow", "rate-limit", "overloaded", "content-filter", "reset", "malformed", "torn", "status"
]
FAILURE_KINDS: tuple[FailureKind, ...] = get_args(FailureKind)
"""``reset`` breaks the connection, ``malformed`` sends broken JSON, ``torn`` ends within a character."""

FINISH_REASONS: tuple[FinishReason, ...] = get_args(FinishReason)

_CALL = re.compile(r"(?P<name>[^\s{]+)(?:\s+id=(?P<id>\S+))?(?:\s+(?P<json>\{.*))?", re.DOTALL)
_OPTION = re.compile(r'\s*(\w+)=("(?:[^"\\]|\\.)*"|\S+)')


class _StepBase(Struct, frozen=True):
    """One action of a model. ``str(step)`` is its text form."""

    keyword: ClassVar[str] = ""

    @classmethod
    def parse(cls, rest: str, block: str | None) -> Self:
        """Parse the ``rest`` of a line and the ``block`` below it; raises ``ValueError``."""
        if rest or block is not None:
            raise ValueError(f"{cls.keyword} takes no arguments")
        return cls()

    def problem(self) -> str:
        """Return what is wrong with it, or an empty string."""
        return ""

    def __str__(self) -> str:
        return self.keyword


class _TextStep(_StepBase, frozen=True):
    text: str

    @classmethod
    def parse(cls, rest: str, block: str | None) -> Self:
        return cls(_unquote(rest) if block is None else block)

    def problem(self) -> str:
        return "" if self.text else "the text is missing"

    def __str__(self) -> str:
        block = [f"  {line}" if line else "" for line in self.text.split("\n")]
        if len(block) > 1 and "\r" not in self.text and unindent(block) == self.text:
            return "\n".join((self.keyword, *block))
        return f"{self.keyword} {_quote(self.text)}"


class Say(_TextStep, frozen=True):
    """Text."""

    keyword = "SAY"


class Think(_TextStep, frozen=True):
    """Reasoning."""

    keyword = "THINK"


class Title(_TextStep, frozen=True):
    """Text of the answer to a title request."""

    keyword = "TITLE"


class CallTool(_StepBase, frozen=True):
    """A tool call, with its ``input``, or with the ``fragments`` of its arguments, which may be invalid JSON."""

    keyword = "CALL"

    name: str
    input: dict[str, Any] | None = None
    fragments: tuple[str, ...] = ()
    id: str = ""

    @classmethod
    def parse(cls, rest: str, block: str | None) -> Self:
        match = _CALL.fullmatch(rest)
        if not match:
            raise ValueError("the form is CALL tool {json}")
        call_id = match["id"] or ""
        if block is None:
            return cls(match["name"], _object(match["json"] or "{}"), id=call_id)
        return cls(match["name"], fragments=tuple(map(_unquote, block.split("\n"))), id=call_id)

    @property
    def arguments(self) -> str:
        """The arguments as JSON text, valid or not."""
        return "".join(self.fragments) or json.dumps(self.input or {}, ensure_ascii=False, separators=(",", ":"))

    def problem(self) -> str:
        if not re.fullmatch(r"[^\s{]+", self.name):
            return f"{self.name!r} is not a tool name"
        if self.input is not None and self.fragments:
            return "a call has either an input or fragments"
        if re.search(r"\s", self.id):
            return f"the id {self.id!r} contains a space"
        return _json_problem(self.input)

    def __str__(self) -> str:
        head = f"CALL {self.name} id={self.id}" if self.id else f"CALL {self.name}"
        if self.fragments:
            return "\n".join((head, *(f"  {_quote(fragment)}" for fragment in self.fragments)))
        return f"{head} {json.dumps(self.input or {}, ensure_ascii=False)}"


class Meta(_StepBase, frozen=True):
    """Provider metadata, under the provider's name: ``{"anthropic": {"signature": "..."}}``."""

    keyword = "META"

    data: dict[str, Any]

    @classmethod
    def parse(cls, rest: str, block: str | None) -> Self:
        return cls(_object(rest))

    def problem(self) -> str:
        if not all(isinstance(value, dict) for value in self.data.values()):
            return 'metadata has the form {"anthropic": {...}}'
        return _json_problem(self.data)

    def __str__(self) -> str:
        return f"META {json.dumps(self.data, ensure_ascii=False)}"


class ReportUsage(_StepBase, frozen=True, kw_only=True):
    """The usage of the call, in buckets that do not overlap."""

    keyword = "USAGE"

    input: int = 0
    output: int = 0
    reasoning: int = 0
    cache_read: int = 0
    cache_write: int = 0
    total: int | None = None

    @classmethod
    def parse(cls, rest: str, block: str | None) -> Self:
        if rest.isdecimal():
            return cls.of(prompt_usage(int(rest)))
        counts = {name: int(value) for name, value in _options(rest, cls.__struct_fields__).items()}
        if not counts:
            raise ValueError("the form is USAGE input=900 output=40")
        return cls(**counts)

    @classmethod
    def of(cls, usage: Usage) -> Self:
        """The step that reports ``usage``."""
        return cls(**{name: getattr(usage, name) for name in cls.__struct_fields__})

    @property
    def usage(self) -> Usage:
        """The usage as a stream event has it."""
        return Usage(**{name: getattr(self, name) for name in self.__struct_fields__})

    def problem(self) -> str:
        counts = (getattr(self, name) for name in self.__struct_fields__)
        return "" if all(count is None or count >= 0 for count in counts) else "tokens cannot be negative"

    def __str__(self) -> str:
        counts = [(name, getattr(self, name)) for name in ("output", "reasoning", "cache_read", "cache_write")]
        shown = [("input", self.input), *((name, count) for name, count in counts if count)]
        if self.total is not None:
            shown.append(("total", self.total))
        return " ".join(("USAGE", *(f"{name}={count}" for name, count in shown)))


class FinishWith(_StepBase, frozen=True):
    """Why the answer ended."""

    keyword = "FINISH"

    reason: FinishReason

    @classmethod
    def parse(cls, rest: str, block: str | None) -> Self:
        return cls(cast("FinishReason", rest))

    def problem(self) -> str:
        return "" if self.reason in FINISH_REASONS else f"{self.reason!r} is not one of {', '.join(FINISH_REASONS)}"

    def __str__(self) -> str:
        return f"FINISH {self.reason}"


class Fail(_StepBase, frozen=True):
    """The call fails here. ``after`` is the wait that the provider asks for, in seconds; ``form`` is its header."""

    keyword = "ERROR"

    kind: FailureKind
    after: float | None = None
    form: Literal["seconds", "date", "ms"] = "seconds"
    status: int | None = None
    message: str = ""

    @classmethod
    def parse(cls, rest: str, block: str | None) -> Self:
        kind, _, more = rest.partition(" ")
        options: dict[str, Any] = {**_options(more, ("after", "form", "status", "message"))}
        if kind.isdecimal():
            kind, options["status"] = "status", kind
        if "after" in options:
            options["after"] = float(options["after"])
        if "status" in options:
            options["status"] = int(options["status"])
        return cls(cast("FailureKind", kind), **options)

    @classmethod
    def recorded(cls, rest: str, block: str | None) -> Self:
        """Parse ``FAIL 429``, the form in the prompts of recorded sessions."""
        if not rest.isdecimal():
            raise ValueError("the form is FAIL 429")
        return cls("status", 0.5, "ms", int(rest), "scripted failure")

    def problem(self) -> str:
        if self.kind not in FAILURE_KINDS:
            return f"{self.kind!r} is neither an HTTP status nor one of {', '.join(FAILURE_KINDS)}"
        if self.form not in ("seconds", "date", "ms"):
            return f"form={self.form} is not one of seconds, date, ms"
        if self.after is not None and self.after < 0:
            return "the wait must not be negative"
        if self.kind in ("reset", "malformed", "torn") and (self.after is not None or self.status is not None):
            return f"a connection failure ({self.kind}) has neither a status nor a wait"
        if self.status is None:
            return "a status is missing" if self.kind == "status" else ""
        return "" if 400 <= self.status <= 599 else f"{self.status} is not an error status (400 to 599)"

    def __str__(self) -> str:
        words = [f"ERROR {self.status}" if self.kind == "status" else f"ERROR {self.kind}"]
        if self.after is not None:
            words.append(f"after={_number(self.after)}")
        if self.form != "seconds":
            words.append(f"form={self.form}")
        if self.status is not None and self.kind != "status":
            words.append(f"status={self.status}")
        if self.message:
            words.append(f"message={json.dumps(self.message, ensure_ascii=False)}")
        return " ".join(words)


class _SecondsStep(_StepBase, frozen=True):
    seconds: float

    @classmethod
    def parse(cls, rest: str, block: str | None) -> Self:
        return cls(float(rest))

    def problem(self) -> str:
        return "" if 0 <= self.seconds < float("inf") else f"{self.seconds} is not a number of seconds"

    def __str__(self) -> str:
        return f"{self.keyword} {_number(self.seconds)}"


class Wait(_SecondsStep, frozen=True):
    """Silence for a time."""

    keyword = "WAIT"


class Drip(_SecondsStep, frozen=True):
    """Silence before each delta from here on."""

    keyword = "DRIP"


class Hang(_StepBase, frozen=True):
    """Silence until the caller cancels."""

    keyword = "HANG"


class Split(_StepBase, frozen=True):
    """The size of the deltas from here on: characters of text, reasoning or arguments, or one word."""

    keyword = "SPLIT"

    size: int | Literal["word"]

    @classmethod
    def parse(cls, rest: str, block: str | None) -> Self:
        return cls("word" if rest == "word" else int(rest))

    def problem(self) -> str:
        return "" if self.size == "word" or self.size >= 1 else "a delta has at least one character"

    def __str__(self) -> str:
        return f"SPLIT {self.size}"


class Expect(_StepBase, frozen=True):
    """An expectation of the request: text in ``last`` or ``system``, names in ``tools``."""

    keyword = "EXPECT"

    where: Literal["last", "system", "tools"]
    text: str

    @classmethod
    def parse(cls, rest: str, block: str | None) -> Self:
        where, _, text = rest.partition(" ")
        return cls(cast("Any", where), _unquote(text.strip()))

    @property
    def names(self) -> tuple[str, ...]:
        """``text`` as names of tools."""
        return tuple(self.text.replace(",", " ").split())

    def problem(self) -> str:
        if self.where not in ("last", "system", "tools"):
            return f"{self.where!r} is not one of last, system, tools"
        return "" if self.text else "the text is missing"

    def __str__(self) -> str:
        return f"EXPECT {self.where} {_quote(self.text)}"


ScriptStep: TypeAlias = (
    Say | Think | CallTool | Meta | ReportUsage | FinishWith | Fail | Wait | Hang | Split | Drip | Expect | Title
)


def prompt_usage(tokens: int) -> Usage:
    """Return the default usage for a prompt of ``tokens``: 300 of them cached, and 50 for the answer."""
    cached = min(300, tokens)
    return Usage(input=tokens - cached, output=50, cache_read=cached, total=tokens + 50)


def unindent(lines: list[str]) -> str:
    """Return the text of an indented block."""
    return dedent("\n".join(lines)).strip("\n")


def _quote(text: str) -> str:
    plain = text and text == text.strip() and text[0] != '"' and "\n" not in text and "\r" not in text
    return text if plain else json.dumps(text, ensure_ascii=False)


def _unquote(text: str) -> str:
    if text[:1] != '"':
        return text
    try:
        value: object = json.loads(text)
    except ValueError:
        return text
    return value if isinstance(value, str) else text


def _object(text: str) -> dict[str, Any]:
    try:
        value: object = json.loads(text)
    except ValueError as error:
        raise ValueError(f"not JSON: {error}") from None
    match value:
        case dict():
            return cast("dict[str, Any]", value)
        case _:
            raise ValueError("not a JSON object")


def _json_problem(value: object) -> str:
    try:
        json.dumps(value)
    except (TypeError, ValueError) as error:
        return f"not JSON: {error}"
    return ""


def _options(text: str, known: Iterable[str]) -> dict[str, str]:
    options: dict[str, str] = {}
    position = 0
    for match in _OPTION.finditer(text):
        if match.start() != position:
            break
        if match[1] not in known:
            raise ValueError(f"{match[1]} is not one of {', '.join(known)}")
        options[match[1]] = _unquote(match[2])
        position = match.end()
    if text[position:].strip():
        raise ValueError(f"{text[position:].strip()!r} is not of the form name=value")
    return options


def _number(value: float) -> str:
    return str(int(value)) if float(value).is_integer() else repr(float(value))
