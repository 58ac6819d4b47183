"""Reading the usage of a message: only the fields that say who, when and how much."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, cast

import msgspec

from ...errors import RecordError
from ...records import Document, as_object
from ...records.view import View
from .money import units
from .session_usage import UsageEntry

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from ...storage.protocol import RawRecord
    from .repricing import Repricer

    Steps = Callable[[str], Iterable[Any]]

Number = int | float


class _Cache(View, frozen=True, kw_only=True, gc=False):
    read: Number | None = 0
    write: Number | None = 0


class _Tokens(View, frozen=True, kw_only=True, gc=False):
    """A count that was not a number is stored as null."""

    total: Number | None = None
    input: Number | None = 0
    output: Number | None = 0
    reasoning: Number | None = 0
    cache: _Cache | None = None


class _Time(View, frozen=True, kw_only=True, gc=False):
    created: Number
    completed: Number | None = None


class _Model(View, frozen=True, kw_only=True, gc=False):
    provider_id: str = ""
    model_id: str = ""


class _Call(View, frozen=True, kw_only=True, gc=False):
    time: _Time
    agent: str = ""
    provider_id: str = ""
    model_id: str = ""
    cost: Number | None = None
    tokens: _Tokens = _Tokens()


class _Extension(View, frozen=True, kw_only=True, gc=False):
    calls: list[_Call] = []


class _Info(View, frozen=True, kw_only=True, gc=False):
    role: Literal["user", "assistant"]
    time: _Time
    agent: str | None = None
    mode: str | None = None
    model: _Model | None = None
    provider_id: str | None = None
    model_id: str | None = None
    cost: Number | None = None
    tokens: _Tokens | None = None
    finish: str | None = None
    opensesh: _Extension | None = None


class _Step(View, frozen=True, kw_only=True, gc=False):
    type: str = ""
    cost: Number | None = None
    tokens: _Tokens | None = None


Used = tuple[int, int, int, int, int]
"""Tokens of one model call: input, output, reasoning, read from and written to the cache."""
_NOTHING: Used = (0, 0, 0, 0, 0)

_NO_MODEL = _Model()
_NO_CACHE = _Cache()

_decode = msgspec.json.Decoder(_Info).decode
_make = UsageEntry._make


class UsageReader:
    """Reads the usage of messages."""

    def __init__(self, repricer: Repricer, steps: Steps) -> None:
        """Use ``steps`` to read the parts of the few messages whose own tokens are incomplete."""
        self._repricer = repricer
        self._steps = steps

    def read(self, record: RawRecord) -> list[UsageEntry]:
        """Return the usage of a message, and of the side calls stored with it, such as one for a title.

        A field of the wrong type is ignored. Raises :class:`RecordError` if the record is not a message.
        """
        name, content = record.id, record.content
        try:
            info = _decode(content) if isinstance(content, bytes) else msgspec.convert(content, _Info)
        except (msgspec.MsgspecError, UnicodeError, RecursionError):
            info = _salvaged(record.document(), record.path)
        if info.opensesh is None:
            return [self._entry(name, info)]
        calls = enumerate(info.opensesh.calls)
        return [self._entry(name, info), *(self._call(f"{name}#{at}", call) for at, call in calls)]

    def _call(self, name: str, call: _Call) -> UsageEntry:
        used = _used(call.tokens)
        repriced = self._repricer.cost(call.provider_id, call.model_id, used, call.tokens.total)
        created, completed = int(call.time.created), int(call.time.completed or 0)
        who = (call.provider_id, call.model_id, call.agent)
        return UsageEntry(name, "call", created, completed, *who, *used, units(call.cost) if call.cost else 0, repriced)

    def _entry(self, name: str, info: _Info) -> UsageEntry:
        agent, created = info.agent or info.mode or "", int(info.time.created)
        if info.role == "user":
            chosen = info.model or _NO_MODEL
            return _make((name, "user", created, 0, chosen.provider_id, chosen.model_id, agent, *_NOTHING, 0, 0))
        model = (info.provider_id or "", info.model_id or "")
        used, repriced = _NOTHING, 0
        if info.tokens is not None:
            used = _used(info.tokens)
            if used != _NOTHING or info.cost:
                used, repriced = self._spent(name, info, used, model)
        cost = units(info.cost) if info.cost else 0
        return _make((name, "assistant", created, int(info.time.completed or 0), *model, agent, *used, cost, repriced))

    def _spent(self, name: str, info: _Info, used: Used, model: tuple[str, str]) -> tuple[Used, int | None]:
        """Return the tokens of an answer and their price.

        Before OpenCode 1.0.69 an answer had several model calls and kept only the tokens of the last one. Such answers
        have no finish reason.
        """
        tokens = cast("_Tokens", info.tokens)
        if info.finish is None:
            parts = (_convert(part, _Step) for part in self._steps(name))
            steps = [step.tokens for step in parts if step and step.type == "step-finish" and step.tokens]
            if len(steps) > 1:
                calls = [(_used(step), step.total) for step in steps]
                prices = [self._repricer.cost(*model, call, total) for call, total in calls]
                sums = cast("Used", tuple(map(sum, zip(*(call for call, _ in calls), strict=True))))
                known = [price for price in prices if price is not None]
                return sums, sum(known) if len(known) == len(prices) else None
        return used, self._repricer.cost(*model, used, tokens.total)


def _used(tokens: _Tokens) -> Used:
    cache = tokens.cache or _NO_CACHE
    fresh, output, reasoning = int(tokens.input or 0), int(tokens.output or 0), int(tokens.reasoning or 0)
    return fresh, output, reasoning, int(cache.read or 0), int(cache.write or 0)


def _convert(document: Any, kind: Any) -> Any:
    try:
        return msgspec.convert(document, kind)
    except (msgspec.ValidationError, UnicodeError):
        return None


def _salvaged(document: Document, path: str) -> _Info:
    time = _convert(document.get("time"), _Time)
    role = document.get("role")
    if role not in ("user", "assistant"):
        raise RecordError(f"a message's role is user or assistant, not {role!r}", path=path, place="$.role")
    if time is None:
        raise RecordError("expected milliseconds, found nothing", path=path, place="$.time.created")
    fields = {name: document.get(name) for name in ("agent", "mode", "providerID", "modelID", "finish")}
    texts = {name: value for name, value in fields.items() if isinstance(value, str)}
    cost = document.get("cost")
    return _Info(
        role=role,
        time=cast("_Time", time),
        agent=texts.get("agent"),
        mode=texts.get("mode"),
        provider_id=texts.get("providerID"),
        model_id=texts.get("modelID"),
        finish=texts.get("finish"),
        model=_convert(document.get("model"), _Model),
        cost=cost if isinstance(cost, (int, float)) else None,
        tokens=_convert(as_object(document.get("tokens")), _Tokens),
        opensesh=_convert(document.get("opensesh"), _Extension),
    )
