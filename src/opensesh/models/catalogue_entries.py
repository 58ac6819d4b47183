"""Models and providers as models.dev's catalogue and OpenCode's configuration describe them."""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING, Any, cast, get_args

import msgspec
from msgspec import Struct

from ..records import merged
from ..storage.protocol import Damage
from .model import Capabilities, Limit, Modality, Model, ModelStatus, Price, Rates, Tier
from .options import variants, with_configured

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from .model import ProviderInfo

_MODALITIES = frozenset(get_args(Modality))
_TEXT: frozenset[Modality] = frozenset({"text"})
_STATUSES = frozenset(get_args(ModelStatus))
_VARIABLE = re.compile(r"\$\{(\w+)\}")


class _TierSize(Struct):
    size: float = 0


class _TierCosts(Rates, kw_only=True, frozen=True):
    tier: _TierSize = msgspec.field(default_factory=_TierSize)


class _AllCosts(Rates, kw_only=True, frozen=True):
    tiers: list[_TierCosts] = []
    context_over_200k: Rates | None = None


class _Limits(Struct, kw_only=True):
    context: float | None = None
    input: float | None = None
    output: float | None = None


class _Modalities(Struct, kw_only=True):
    input: list[str] | None = None
    output: list[str] | None = None


class _ModelServer(Struct, kw_only=True):
    npm: str | None = None
    api: str | None = None


class ModelEntry(Struct, kw_only=True):
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
    provider: _ModelServer | None = None
    options: dict[str, Any] = {}
    headers: dict[str, str] = {}
    variants: dict[str, dict[str, Any]] = {}


ENTRY_DECODER = msgspec.json.Decoder(ModelEntry)


def build_model(model_id: str, entry: ModelEntry, provider: ProviderInfo, environ: Mapping[str, str]) -> Model:
    """Return the model. What the entry omits is unknown: prices ``None``, limits 0, no capabilities but tools."""
    server = entry.provider or _ModelServer()
    limits, modalities, tools = entry.limit or _Limits(), entry.modalities or _Modalities(), entry.tool_call
    # interleaved: true means that reasoning may come between calls, but is not sent back in a field of its own.
    field = entry.interleaved.get("field") if isinstance(entry.interleaved, dict) else None
    model = Model(
        id=model_id,
        provider_id=provider.id,
        name=entry.name or model_id,
        api_id=entry.id if entry.id and entry.id != model_id else "",
        api_url=expand_variables(provider.base_url or server.api or provider.api_url, environ),
        npm=server.npm or provider.npm,
        family=entry.family or "",
        release_date=entry.release_date or "",
        status=cast("ModelStatus", entry.status) if entry.status in _STATUSES else "active",
        capabilities=Capabilities(
            temperature=bool(entry.temperature),
            reasoning=bool(entry.reasoning),
            attachment=bool(entry.attachment),
            tools=tools.get("supported") is not False if isinstance(tools, dict) else tools is not False,
            input=_known_modalities(modalities.input),
            output=_known_modalities(modalities.output),
            interleaved=field if isinstance(field, str) else None,
        ),
        price=_price(entry.cost),
        limit=Limit(context=_tokens(limits.context), input=_tokens(limits.input), output=_tokens(limits.output)),
        options=entry.options,
        headers={**provider.headers, **entry.headers},
    )
    offered = with_configured(variants(model, entry.reasoning_options), entry.variants)
    return msgspec.structs.replace(model, variants=offered) if offered else model


def expand_variables(url: str, environ: Mapping[str, str]) -> str:
    """Replace each ``${NAME}`` that the environment defines; others stay, and show what is missing."""
    return _VARIABLE.sub(lambda match: environ.get(match[1]) or match[0], url)


def _known_modalities(names: list[str] | None) -> frozenset[Modality]:
    return _TEXT if names is None else cast("frozenset[Modality]", _MODALITIES.intersection(names))


def _tokens(value: float | None) -> int:
    # Limits may be written as 2e5; values that cannot be a limit are unknown.
    return int(value) if value is not None and 0 < value < math.inf else 0


def _price(costs: _AllCosts | None) -> Price | None:
    if costs is None:
        return None
    tiers = [Tier(above=_tokens(tier.tier.size), rates=_rates(tier)) for tier in costs.tiers if tier.tier.size > 0]
    if not tiers and costs.context_over_200k is not None:
        tiers = [Tier(above=200_000, rates=_rates(costs.context_over_200k))]
    price = Price(rates=_rates(costs), tiers=tuple(sorted(tiers, key=lambda tier: tier.above)))
    return price if price != Price() else None


def _rates(costs: Rates) -> Rates:
    # Routers that pass on another provider's price say -1, which is not a price.
    rates: dict[str, float | None] = {name: getattr(costs, name) for name in Rates.__struct_fields__}
    return Rates(**{name: rate for name, rate in rates.items() if rate is not None and 0 <= rate < math.inf})


class ProviderSettings(Struct, kw_only=True, frozen=True):
    """``provider.<id>`` of a configuration."""

    name: str | None = None
    env: list[str] | None = None
    api: str | None = None
    npm: str | None = None
    whitelist: list[str] | None = None
    blacklist: list[str] = []
    models: dict[str, dict[str, Any]] = {}
    options: dict[str, Any] = {}

    def __repr__(self) -> str:
        # The options contain the key, and a repr ends up in logs.
        return f"ProviderSettings(name={self.name!r}, models={list(self.models)!r})"


_NO_SETTINGS = ProviderSettings()


class ProviderEntry:
    """The ``provider``, ``enabled_providers`` and ``disabled_providers`` of a configuration."""

    def __init__(self, config: Mapping[str, Any], report: Callable[[Damage], None]) -> None:
        self._providers = cast("Mapping[str, Any]", config.get("provider") or {})
        self._enabled = cast("list[str] | None", config.get("enabled_providers"))
        self._disabled = cast("list[str]", config.get("disabled_providers") or [])
        self._report = report
        self._settings: dict[str, ProviderSettings] = {}
        self.problems: dict[str, str] = {}
        """Errors in the settings of a provider (``acme``) or a model (``acme/large``)."""

    @property
    def names(self) -> tuple[str, ...]:
        """The providers that it mentions."""
        return tuple(self._providers)

    def settings(self, provider_id: str) -> ProviderSettings:
        """Return the settings of one provider. Invalid ones are reported once and treated as empty."""
        if provider_id not in self._providers:
            return _NO_SETTINGS
        if provider_id not in self._settings:
            try:
                settings = msgspec.convert(self._providers[provider_id], ProviderSettings)
            except msgspec.ValidationError as error:
                self.add_problem(provider_id, error)
                settings = _NO_SETTINGS
            self._settings[provider_id] = settings
        return self._settings[provider_id]

    def exclusion(self, provider_id: str) -> str:
        """Return why a provider may not be used; empty if it may."""
        if provider_id in self._disabled:
            return "it is in disabled_providers of the configuration"
        if self._enabled is not None and provider_id not in self._enabled:
            return "it is not in enabled_providers of the configuration"
        return ""

    def model_exclusion(self, provider_id: str, model_id: str) -> str:
        """Return why a model of an allowed provider may not be used; empty if it may."""
        settings = self.settings(provider_id)
        if model_id in settings.blacklist:
            return f"it is in provider.{provider_id}.blacklist of the configuration"
        if settings.whitelist is not None and model_id not in settings.whitelist:
            return f"it is not in provider.{provider_id}.whitelist of the configuration"
        return ""

    def base_model(self, provider_id: str, model_id: str) -> str:
        """Return which model of the catalogue this one is based on: its ``id`` may name another one."""
        base = self.settings(provider_id).models.get(model_id, {}).get("id")
        return base if isinstance(base, str) and base else model_id

    def configured_entry(self, provider_id: str, model_id: str, listed: Mapping[str, Any]) -> ModelEntry:
        """Return the catalogue's entry ``listed``, with the settings of the provider and the model merged in."""
        settings = self.settings(provider_id)
        name = {"name": model_id} if self.base_model(provider_id, model_id) != model_id else {}
        server = {"npm": settings.npm, "api": settings.api}
        server = {"provider": {key: value for key, value in server.items() if value}}
        document = merged(listed, name, server, settings.models.get(model_id, {}))
        return msgspec.convert(document, ModelEntry)

    def add_problem(self, name: str, error: Exception) -> None:
        """Record and report an error in the settings of a provider or model."""
        reason = str(error).replace("`", "")
        self.problems[name] = reason
        self._report(Damage(f"provider {name}", reason))
