"""From a stored message to an entry of the ledger: only the fields that say who, when and how much."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, cast

import msgspec

from ...errors import RecordError
from ...records import Document, as_object, loads_object
from ...records.view import View
from .accounts import UsageEntry
from .money import units

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

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


class _Ours(View, frozen=True, kw_only=True, gc=False):
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
    opensesh: _Ours | None = None


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


class EntryReader:
    """Reads messages as entries."""

    def __init__(self, repricer: Repricer, steps: Steps) -> None:
        """``steps`` gives the parts of a message, for the few whose own tokens do not say everything."""
        self._repricer = repricer
        self._steps = steps

    def parse(self, name: str, data: bytes, path: str) -> list[UsageEntry]:
        """The entry of a message as stored, and those of other calls that it notes (for a title, say);
        :class:`RecordError` if it is no message."""
        try:
            info = _decode(data)
        except (msgspec.MsgspecError, UnicodeError, RecursionError):
            return self.read(name, loads_object(data, path), path)
        return [self._entry(name, info)] if info.opensesh is None else self._entries(name, info)

    def read(self, name: str, document: Document, path: str) -> list[UsageEntry]:
        """The same for one that is already decoded. A field of the wrong kind costs that field alone."""
        info = _convert(document, _Info)
        return self._entries(name, info if info is not None else _salvaged(document, path))

    def _entries(self, name: str, info: _Info) -> list[UsageEntry]:
        calls = () if info.opensesh is None else info.opensesh.calls
        return [self._entry(name, info), *(self._call(f"{name}#{at}", call) for at, call in enumerate(calls))]

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
        """The tokens of an answer and their price. Before 1.0.69 one answer held several model calls, and kept the
        tokens of the last alone; such answers do not say why they finished."""
        tokens = cast("_Tokens", info.tokens)
        if info.finish is None:
            found = (_convert(part, _Step) for part in self._steps(name))
            steps = [step.tokens for step in found if step and step.type == "step-finish" and step.tokens]
            if len(steps) > 1:
                each = [(_used(step), step.total) for step in steps]
                prices = [self._repricer.cost(*model, call, total) for call, total in each]
                sums = cast("Used", tuple(map(sum, zip(*(call for call, _ in each), strict=True))))
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
        opensesh=_convert(document.get("opensesh"), _Ours),
    )
