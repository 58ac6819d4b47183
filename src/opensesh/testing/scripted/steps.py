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
"""``reset`` breaks the connection, ``malformed`` sends what is no JSON, ``torn`` ends within a character."""

FINISH_REASONS: tuple[FinishReason, ...] = get_args(FinishReason)

_CALL = re.compile(r"(?P<name>[^\s{]+)(?:\s+id=(?P<id>\S+))?(?:\s+(?P<json>\{.*))?", re.DOTALL)
_OPTION = re.compile(r'\s*(\w+)=("(?:[^"\\]|\\.)*"|\S+)')


class _Step(Struct, frozen=True):
    """One thing a model does. ``str(step)`` is its text form."""

    keyword: ClassVar[str] = ""

    @classmethod
    def parse(cls, rest: str, block: str | None) -> Self:
        """The step written as the ``rest`` of its line and a ``block`` below it. Raises ``ValueError``."""
        if rest or block is not None:
            raise ValueError(f"{cls.keyword} stands alone on its line")
        return cls()

    def problem(self) -> str:
        """What is wrong with it, or nothing."""
        return ""

    def __str__(self) -> str:
        return self.keyword


class _Words(_Step, frozen=True):
    text: str

    @classmethod
    def parse(cls, rest: str, block: str | None) -> Self:
        return cls(_unquote(rest) if block is None else block)

    def problem(self) -> str:
        return "" if self.text else "there are no words in it"

    def __str__(self) -> str:
        block = [f"  {line}" if line else "" for line in self.text.split("\n")]
        if len(block) > 1 and "\r" not in self.text and unindent(block) == self.text:
            return "\n".join((self.keyword, *block))
        return f"{self.keyword} {_quote(self.text)}"


class Say(_Words, frozen=True):
    """Text."""

    keyword = "SAY"


class Think(_Words, frozen=True):
    """Reasoning."""

    keyword = "THINK"


class Title(_Words, frozen=True):
    """Text, in answer to a request for a title."""

    keyword = "TITLE"


class CallTool(_Step, frozen=True):
    """A tool call: its ``input`` whole, or the ``fragments`` its arguments come in, which may be broken."""

    keyword = "CALL"

    name: str
    input: dict[str, Any] | None = None
    fragments: tuple[str, ...] = ()
    id: str = ""

    @classmethod
    def parse(cls, rest: str, block: str | None) -> Self:
        found = _CALL.fullmatch(rest)
        if not found:
            raise ValueError("a call is written as CALL tool {json}")
        call_id = found["id"] or ""
        if block is None:
            return cls(found["name"], _object(found["json"] or "{}"), id=call_id)
        return cls(found["name"], fragments=tuple(map(_unquote, block.split("\n"))), id=call_id)

    @property
    def arguments(self) -> str:
        """The arguments as JSON text, or as what was meant to be it."""
        return "".join(self.fragments) or json.dumps(self.input or {}, ensure_ascii=False, separators=(",", ":"))

    def problem(self) -> str:
        if not re.fullmatch(r"[^\s{]+", self.name):
            return f"{self.name!r} is no name of a tool"
        if self.input is not None and self.fragments:
            return "a call has its input whole or in fragments, not both"
        if re.search(r"\s", self.id):
            return f"{self.id!r} is no id: it holds a space"
        return _not_json(self.input)

    def __str__(self) -> str:
        head = f"CALL {self.name} id={self.id}" if self.id else f"CALL {self.name}"
        if self.fragments:
            return "\n".join((head, *(f"  {_quote(fragment)}" for fragment in self.fragments)))
        return f"{head} {json.dumps(self.input or {}, ensure_ascii=False)}"


class Meta(_Step, frozen=True):
    """What the provider wants back later, under the provider's name: ``{"anthropic": {"signature": "..."}}``."""

    keyword = "META"

    data: dict[str, Any]

    @classmethod
    def parse(cls, rest: str, block: str | None) -> Self:
        return cls(_object(rest))

    def problem(self) -> str:
        if not all(isinstance(value, dict) for value in self.data.values()):
            return 'metadata stands under the provider\'s name: {"anthropic": {...}}'
        return _not_json(self.data)

    def __str__(self) -> str:
        return f"META {json.dumps(self.data, ensure_ascii=False)}"


class ReportUsage(_Step, frozen=True, kw_only=True):
    """What the call is said to have used, in buckets that do not overlap."""

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
            raise ValueError("usage is written as USAGE input=900 output=40")
        return cls(**counts)

    @classmethod
    def of(cls, usage: Usage) -> Self:
        """The step that reports ``usage``."""
        return cls(**{name: getattr(usage, name) for name in cls.__struct_fields__})

    @property
    def usage(self) -> Usage:
        """The same, as the vocabulary of events has it."""
        return Usage(**{name: getattr(self, name) for name in self.__struct_fields__})

    def problem(self) -> str:
        counts = (getattr(self, name) for name in self.__struct_fields__)
        return "" if all(count is None or count >= 0 for count in counts) else "tokens cannot be negative"

    def __str__(self) -> str:
        counts = [(name, getattr(self, name)) for name in ("output", "reasoning", "cache_read", "cache_write")]
        said = [("input", self.input), *((name, count) for name, count in counts if count)]
        if self.total is not None:
            said.append(("total", self.total))
        return " ".join(("USAGE", *(f"{name}={count}" for name, count in said)))


class FinishWith(_Step, frozen=True):
    """Why the answer ended."""

    keyword = "FINISH"

    reason: FinishReason

    @classmethod
    def parse(cls, rest: str, block: str | None) -> Self:
        return cls(cast("FinishReason", rest))

    def problem(self) -> str:
        return "" if self.reason in FINISH_REASONS else f"{self.reason!r} is none of {', '.join(FINISH_REASONS)}"

    def __str__(self) -> str:
        return f"FINISH {self.reason}"


class Fail(_Step, frozen=True):
    """The call fails, here. ``after`` is how many seconds the provider asks to wait, and ``form`` how it says it."""

    keyword = "ERROR"

    kind: FailureKind
    after: float | None = None
    form: Literal["seconds", "date", "ms"] = "seconds"
    status: int | None = None
    message: str = ""

    @classmethod
    def parse(cls, rest: str, block: str | None) -> Self:
        kind, _, more = rest.partition(" ")
        options = _options(more, ("after", "form", "status", "message"))
        given: dict[str, Any] = dict(options)
        if kind.isdecimal():
            kind, given["status"] = "status", kind
        if "after" in given:
            given["after"] = float(given["after"])
        if "status" in given:
            given["status"] = int(given["status"])
        return cls(cast("FailureKind", kind), **given)

    @classmethod
    def recorded(cls, rest: str, block: str | None) -> Self:
        """``FAIL 429``, the way prompts in recorded sessions ask for a failure."""
        if not rest.isdecimal():
            raise ValueError("FAIL is followed by an HTTP status")
        return cls("status", 0.5, "ms", int(rest), "scripted failure")

    def problem(self) -> str:
        if self.kind not in FAILURE_KINDS:
            return f"{self.kind!r} is no kind of failure; there are {', '.join(FAILURE_KINDS)} and HTTP statuses"
        if self.form not in ("seconds", "date", "ms"):
            return f"form={self.form} is none of seconds, date, ms"
        if self.after is not None and self.after < 0:
            return "nobody can be asked to wait a negative time"
        if self.kind in ("reset", "malformed", "torn") and (self.after is not None or self.status is not None):
            return f"a failure of the wire ({self.kind}) has neither a status nor a time to wait"
        if self.status is None:
            return "a status is missing" if self.kind == "status" else ""
        return "" if 400 <= self.status <= 599 else f"{self.status} is no status of a failure (400 to 599)"

    def __str__(self) -> str:
        said = [f"ERROR {self.status}" if self.kind == "status" else f"ERROR {self.kind}"]
        if self.after is not None:
            said.append(f"after={_number(self.after)}")
        if self.form != "seconds":
            said.append(f"form={self.form}")
        if self.status is not None and self.kind != "status":
            said.append(f"status={self.status}")
        if self.message:
            said.append(f"message={json.dumps(self.message, ensure_ascii=False)}")
        return " ".join(said)


class _Seconds(_Step, frozen=True):
    seconds: float

    @classmethod
    def parse(cls, rest: str, block: str | None) -> Self:
        return cls(float(rest))

    def problem(self) -> str:
        return "" if 0 <= self.seconds < float("inf") else f"{self.seconds} is no number of seconds"

    def __str__(self) -> str:
        return f"{self.keyword} {_number(self.seconds)}"


class Wait(_Seconds, frozen=True):
    """Silence for so long."""

    keyword = "WAIT"


class Drip(_Seconds, frozen=True):
    """Silence for so long before each delta from here on."""

    keyword = "DRIP"


class Hang(_Step, frozen=True):
    """Silence until the caller gives up."""

    keyword = "HANG"


class Split(_Step, frozen=True):
    """How many characters of text, reasoning or arguments one delta holds from here on; or one word."""

    keyword = "SPLIT"

    size: int | Literal["word"]

    @classmethod
    def parse(cls, rest: str, block: str | None) -> Self:
        return cls("word" if rest == "word" else int(rest))

    def problem(self) -> str:
        return "" if self.size == "word" or self.size >= 1 else "a delta holds at least one character"

    def __str__(self) -> str:
        return f"SPLIT {self.size}"


class Expect(_Step, frozen=True):
    """What the request must hold, or the call fails: words in ``last`` or ``system``, names in ``tools``."""

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
            return f"{self.where!r} is none of last, system, tools"
        return "" if self.text else "there is nothing to expect"

    def __str__(self) -> str:
        return f"EXPECT {self.where} {_quote(self.text)}"


ScriptStep: TypeAlias = (
    Say | Think | CallTool | Meta | ReportUsage | FinishWith | Fail | Wait | Hang | Split | Drip | Expect | Title
)


def prompt_usage(tokens: int) -> Usage:
    """The usage of a call whose prompt has so many ``tokens``, where a script does not say: 300 of them cached,
    and 50 for the answer.
    """
    cached = min(300, tokens)
    return Usage(input=tokens - cached, output=50, cache_read=cached, total=tokens + 50)


def unindent(lines: list[str]) -> str:
    """The words in an indented block."""
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
        raise ValueError(f"no JSON: {error}") from None
    match value:
        case dict():
            return cast("dict[str, Any]", value)
        case _:
            raise ValueError("not a JSON object")


def _not_json(value: object) -> str:
    try:
        json.dumps(value)
    except (TypeError, ValueError) as error:
        return f"not JSON: {error}"
    return ""


def _options(text: str, known: Iterable[str]) -> dict[str, str]:
    options: dict[str, str] = {}
    position = 0
    for found in _OPTION.finditer(text):
        if found.start() != position:
            break
        if found[1] not in known:
            raise ValueError(f"{found[1]} is none of {', '.join(known)}")
        options[found[1]] = _unquote(found[2])
        position = found.end()
    if text[position:].strip():
        raise ValueError(f"{text[position:].strip()!r} is not of the form name=value")
    return options


def _number(value: float) -> str:
    return str(int(value)) if float(value).is_integer() else repr(float(value))
