"""From a stored message to an entry of the ledger: only the fields that say who, when and how much."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, cast

import msgspec

from ..errors import RecordError
from ..records import Document, as_object, loads_object
from ..records.view import View
from .figures import Entry
from .money import units

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from .repricing import Repricer

    Steps = Callable[[str], Iterable[Any]]

Number = int | float


class _Cache(View, frozen=True, kw_only=True):
    read: Number = 0
    write: Number = 0


class _Tokens(View, frozen=True, kw_only=True):
    total: Number | None = None
    input: Number = 0
    output: Number = 0
    reasoning: Number = 0
    cache: _Cache = _Cache()


class _Time(View, frozen=True, kw_only=True):
    created: Number
    completed: Number | None = None


class _Model(View, frozen=True, kw_only=True):
    provider_id: str = ""
    model_id: str = ""


class _Info(View, frozen=True, kw_only=True):
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


class _Step(View, frozen=True, kw_only=True):
    type: str = ""
    cost: Number | None = None
    tokens: _Tokens | None = None


class Used:
    """The tokens of one model call."""

    def __init__(self, tokens: _Tokens) -> None:
        self.input = int(tokens.input)
        self.output = int(tokens.output)
        self.reasoning = int(tokens.reasoning)
        self.cache_read = int(tokens.cache.read)
        self.cache_write = int(tokens.cache.write)
        self.total = None if tokens.total is None else int(tokens.total)


_decode = msgspec.json.Decoder(_Info).decode


class Reader:
    """Reads messages as entries."""

    def __init__(self, repricer: Repricer, steps: Steps) -> None:
        """``steps`` gives the parts of a message, for the few whose own tokens do not say everything."""
        self._repricer = repricer
        self._steps = steps

    def parse(self, name: str, data: bytes, path: str) -> Entry:
        """The entry of a message as stored; :class:`RecordError` if it is no message."""
        try:
            return self._entry(name, _decode(data))
        except (msgspec.MsgspecError, UnicodeError):
            return self.read(name, loads_object(data, path), path)

    def read(self, name: str, document: Document, path: str) -> Entry:
        """The same for one that is already decoded. A field of the wrong kind costs that field alone."""
        info = _convert(document, _Info)
        return self._entry(name, info if info is not None else _salvaged(document, path))

    def _entry(self, name: str, info: _Info) -> Entry:
        agent, created = info.agent or info.mode or "", int(info.time.created)
        if info.role != "assistant":
            chosen = info.model or _Model()
            return Entry(name, info.role, created, 0, chosen.provider_id, chosen.model_id, agent)
        provider, model = info.provider_id or "", info.model_id or ""
        calls = self._calls(name, info)
        return Entry(
            name,
            info.role,
            created,
            int(info.time.completed or 0),
            provider,
            model,
            agent,
            input=sum(call.input for call in calls),
            output=sum(call.output for call in calls),
            reasoning=sum(call.reasoning for call in calls),
            cache_read=sum(call.cache_read for call in calls),
            cache_write=sum(call.cache_write for call in calls),
            cost=units(info.cost or 0),
            repriced=self._repricer.cost(provider, model, [call for call in calls if _any(call)]),
        )

    def _calls(self, name: str, info: _Info) -> Sequence[Used]:
        """The model calls of an answer. Before 1.0.69 one answer held several, and kept the tokens of the last alone;
        such answers do not say why they finished."""
        if info.tokens is None:
            return ()
        if info.finish is None and (info.cost or _any(Used(info.tokens))):
            found = (_convert(part, _Step) for part in self._steps(name))
            steps = [step.tokens for step in found if step and step.type == "step-finish" and step.tokens]
            if len(steps) > 1:
                return [Used(tokens) for tokens in steps]
        return [Used(info.tokens)]


def _any(call: Used) -> bool:
    return bool(call.input or call.output or call.reasoning or call.cache_read or call.cache_write)


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
    )
