"""A model as models.dev and OpenCode's configuration write it down, and how it becomes a :class:`Model`."""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING, Any, Literal, cast, get_args

import msgspec
from msgspec import Struct

from .model import Capabilities, Limit, Modality, Model, Price, Rates, Tier
from .options import variants, with_configured

if TYPE_CHECKING:
    from collections.abc import Mapping

Status = Literal["active", "alpha", "beta", "deprecated"]

_COMPATIBLE = "@ai-sdk/openai-compatible"
_MODALITIES = frozenset(get_args(Modality))
_TEXT: frozenset[Modality] = frozenset({"text"})
_STATUSES = frozenset(get_args(Status))
_LOCAL = re.compile(r"(?i)https?://(?:localhost|127(?:\.\d{1,3}){3}|\[::1\]|0\.0\.0\.0)(?::\d+)?(?:[/?#]|$)")
_VARIABLE = re.compile(r"\$\{(\w+)\}")


class ProviderInfo(Struct, frozen=True, kw_only=True):
    """Who sells models: the catalogue's words and the configuration's together. Holds no key."""

    id: str
    name: str = ""
    env: tuple[str, ...] = ()
    """Environment variables that hold the key, or what else it takes to reach this provider."""
    npm: str = _COMPATIBLE
    api_url: str = ""
    options: dict[str, Any] = {}
    """The configuration's ``provider.<id>.options`` without ``apiKey``."""
    configured: bool = False
    """Whether the configuration mentions it."""

    @property
    def base_url(self) -> str:
        """The configuration's ``baseURL``, which holds whatever the catalogue says of single models."""
        return self.text("baseURL")

    def text(self, option: str) -> str:
        """One of the ``options`` that is text; empty if it is not there, or is none."""
        value = self.options.get(option)
        return value if isinstance(value, str) else ""

    @property
    def headers(self) -> dict[str, str]:
        """What the configuration wants sent along with every request."""
        headers = self.options.get("headers")
        members = cast("dict[str, Any]", headers) if isinstance(headers, dict) else {}
        return {name: value for name, value in members.items() if isinstance(value, str)}

    def __repr__(self) -> str:
        # Options and headers may hold secrets; a repr ends up in logs.
        return f"ProviderInfo(id={self.id!r}, name={self.name!r})"


class _Costs(Struct, kw_only=True):
    input: float | None = None
    output: float | None = None
    cache_read: float | None = None
    cache_write: float | None = None
    reasoning: float | None = None


class _Size(Struct):
    size: float = 0


class _TierCosts(_Costs, kw_only=True):
    tier: _Size = msgspec.field(default_factory=_Size)


class _AllCosts(_Costs, kw_only=True):
    tiers: list[_TierCosts] = []
    context_over_200k: _Costs | None = None


class _Limits(Struct, kw_only=True):
    context: float | None = None
    input: float | None = None
    output: float | None = None


class _Modalities(Struct, kw_only=True):
    input: list[str] | None = None
    output: list[str] | None = None


class _Server(Struct, kw_only=True):
    npm: str | None = None
    api: str | None = None


class Entry(Struct, kw_only=True):
    """One model of models.dev's ``api.json``, or of a configuration's ``provider.<id>.models``."""

    id: str | None = None
    name: str | None = None
    family: str | None = None
    release_date: str | None = None
    status: str | None = None
    attachment: bool | None = None
    reasoning: bool | None = None
    reasoning_options: list[dict[str, Any]] | None = None
    temperature: bool | None = None
    tool_call: bool | dict[str, Any] | None = None
    interleaved: bool | dict[str, Any] | None = None
    modalities: _Modalities | None = None
    limit: _Limits | None = None
    cost: _AllCosts | None = None
    provider: _Server | None = None
    options: dict[str, Any] = {}
    headers: dict[str, str] = {}
    variants: dict[str, dict[str, Any]] = {}


def is_local(url: str) -> bool:
    """Whether it is the address of a server on this machine."""
    return _LOCAL.match(url) is not None


_decoder = msgspec.json.Decoder(Entry)


def decode(data: bytes | msgspec.Raw) -> Entry:
    """An entry from JSON; :class:`msgspec.MsgspecError` says what is wrong with it."""
    return _decoder.decode(data)


def convert(document: Mapping[str, Any]) -> Entry:
    """An entry from a decoded document; :class:`msgspec.ValidationError` says what is wrong with it."""
    return msgspec.convert(document, Entry)


def build(model_id: str, entry: Entry, provider: ProviderInfo, environ: Mapping[str, str]) -> Model:
    """The model. What the entry does not say is unknown: prices ``None``, limits 0, abilities absent but for tools."""
    server = entry.provider or _Server()
    model = Model(
        id=model_id,
        provider_id=provider.id,
        name=entry.name or model_id,
        api_id=entry.id if entry.id and entry.id != model_id else "",
        api_url=expand(provider.base_url or server.api or provider.api_url, environ),
        npm=server.npm or provider.npm,
        family=entry.family or "",
        release_date=entry.release_date or "",
        status=cast("Status", entry.status) if entry.status in _STATUSES else "active",
        capabilities=_capabilities(entry),
        price=_price(entry.cost),
        limit=_limit(entry.limit),
        options=entry.options,
        headers={**provider.headers, **entry.headers},
    )
    offered = with_configured(variants(model, entry.reasoning_options), entry.variants)
    return msgspec.structs.replace(model, variants=offered) if offered else model


def expand(url: str, environ: Mapping[str, str]) -> str:
    """``url`` with each ``${NAME}`` that the environment knows put in; others stay, and show what is missing."""
    return _VARIABLE.sub(lambda found: environ.get(found[1]) or found[0], url)


def _capabilities(entry: Entry) -> Capabilities:
    modalities = entry.modalities or _Modalities()
    return Capabilities(
        temperature=bool(entry.temperature),
        reasoning=bool(entry.reasoning),
        attachment=bool(entry.attachment),
        tools=_takes_tools(entry.tool_call),
        input=_known_modalities(modalities.input),
        output=_known_modalities(modalities.output),
        interleaved=_interleaved_field(entry.interleaved),
    )


def _takes_tools(value: bool | dict[str, Any] | None) -> bool:
    return value.get("supported") is not False if isinstance(value, dict) else value is not False


def _interleaved_field(value: bool | dict[str, Any] | None) -> str | None:
    """``true`` says that reasoning may come between calls, but asks for it back in no field of its own."""
    field = value.get("field") if isinstance(value, dict) else None
    return field if isinstance(field, str) else None


def _known_modalities(names: list[str] | None) -> frozenset[Modality]:
    return _TEXT if names is None else cast("frozenset[Modality]", _MODALITIES.intersection(names))


def _limit(limits: _Limits | None) -> Limit:
    if limits is None:
        return Limit()
    return Limit(context=_count(limits.context), input=_count(limits.input), output=_count(limits.output))


def _count(value: float | None) -> int:
    """Tokens may be written as 2e5; what cannot be a limit is none."""
    return int(value) if value is not None and 0 < value < math.inf else 0


def _price(costs: _AllCosts | None) -> Price | None:
    if costs is None:
        return None
    tiers = [Tier(above=_count(tier.tier.size), rates=_rates(tier)) for tier in costs.tiers if tier.tier.size > 0]
    if not tiers and costs.context_over_200k is not None:
        tiers = [Tier(above=200_000, rates=_rates(costs.context_over_200k))]
    price = Price(rates=_rates(costs), tiers=tuple(sorted(tiers, key=_above)))
    return price if price != Price() else None


def _above(tier: Tier) -> int:
    return tier.above


def _rates(costs: _Costs) -> Rates:
    return Rates(
        input=_rate(costs.input),
        output=_rate(costs.output),
        cache_read=_rate(costs.cache_read),
        cache_write=_rate(costs.cache_write),
        reasoning=_rate(costs.reasoning),
    )


def _rate(value: float | None) -> float | None:
    """Routers that pass a price on say -1; that is no price."""
    return value if value is not None and value >= 0 and math.isfinite(value) else None
