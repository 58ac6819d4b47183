"""Models and their providers: capabilities, limits, prices."""

from __future__ import annotations

import re
from typing import Any, Literal, cast, get_args

from msgspec import Struct

Modality = Literal["text", "audio", "image", "video", "pdf"]
ModelStatus = Literal["active", "alpha", "beta", "deprecated"]

OPENAI_COMPATIBLE = "@ai-sdk/openai-compatible"

_LOCAL_URL = re.compile(r"(?i)https?://(?:localhost|127(?:\.\d{1,3}){3}|\[::1\]|0\.0\.0\.0)(?::\d+)?(?:[/?#]|$)")


class Rates(Struct, frozen=True, kw_only=True):
    """Prices in US dollars per million tokens. ``None`` is unknown, which is not the same as free."""

    input: float | None = None
    output: float | None = None
    cache_read: float | None = None
    cache_write: float | None = None
    reasoning: float | None = None
    """Only where it differs from ``output``."""


class Tier(Struct, frozen=True, kw_only=True):
    """Rates for a context (input and cache reads) larger than ``above`` tokens."""

    above: int
    rates: Rates


class Price(Struct, frozen=True, kw_only=True):
    """Base rates, and those for long contexts, shortest first."""

    rates: Rates = Rates()
    tiers: tuple[Tier, ...] = ()


class Limit(Struct, frozen=True, kw_only=True):
    """Limits in tokens; 0 is unknown."""

    context: int = 0
    input: int = 0
    output: int = 0


class Capabilities(Struct, frozen=True, kw_only=True):
    """What a model supports."""

    temperature: bool = False
    reasoning: bool = False
    attachment: bool = False
    tools: bool = True
    input: frozenset[Modality] = frozenset({"text"})
    output: frozenset[Modality] = frozenset({"text"})
    interleaved: str | None = None
    """The field for earlier reasoning (``reasoning_content``), if the server needs it back."""


class Model(Struct, frozen=True, kw_only=True):
    """One model of one provider, from the catalogue and the configuration."""

    id: str
    provider_id: str
    name: str = ""
    api_id: str = ""
    """The provider's name for it, where that differs from ``id``."""
    api_url: str = ""
    npm: str = OPENAI_COMPATIBLE
    """The SDK that OpenCode uses, as models.dev names it (``@ai-sdk/anthropic``); it decides the API."""
    family: str = ""
    release_date: str = ""
    status: ModelStatus = "active"
    capabilities: Capabilities = Capabilities()
    price: Price | None = None
    """``None``: unknown. Then costs are unknown too, never 0."""
    limit: Limit = Limit()
    options: dict[str, Any] = {}
    headers: dict[str, str] = {}
    variants: dict[str, dict[str, Any]] = {}

    @property
    def wire_id(self) -> str:
        """The name to send to the provider."""
        return self.api_id or self.id

    @property
    def ref(self) -> str:
        """``provider/model``."""
        return f"{self.provider_id}/{self.id}"


class ProviderInfo(Struct, frozen=True, kw_only=True):
    """One provider, from the catalogue and the configuration. Contains no key."""

    id: str
    name: str = ""
    env: tuple[str, ...] = ()
    """Environment variables with the key, or with other settings of the provider."""
    npm: str = OPENAI_COMPATIBLE
    api_url: str = ""
    options: dict[str, Any] = {}
    """The configuration's ``provider.<id>.options`` without ``apiKey``."""
    configured: bool = False
    """Whether the configuration mentions it."""

    @property
    def base_url(self) -> str:
        """The configuration's ``baseURL``, which overrides the URLs of single models in the catalogue."""
        return self.text("baseURL")

    def text(self, option: str) -> str:
        """Return the text of one of the ``options``; empty if it is missing or not text."""
        value = self.options.get(option)
        return value if isinstance(value, str) else ""

    @property
    def headers(self) -> dict[str, str]:
        """The headers that the configuration adds to every request."""
        headers = self.options.get("headers")
        members = cast("dict[str, Any]", headers) if isinstance(headers, dict) else {}
        return {name: value for name, value in members.items() if isinstance(value, str)}

    def __repr__(self) -> str:
        # Options and headers may contain secrets; a repr ends up in logs.
        return f"ProviderInfo(id={self.id!r}, name={self.name!r})"


def public_document(model: Model) -> dict[str, Any]:
    """Return what others may know about a model, in OpenCode's shape: without options, headers and URL, which may hold
    keys and host names."""
    capabilities = model.capabilities
    return {
        "id": model.id,
        "providerID": model.provider_id,
        "name": model.name or model.id,
        "status": model.status,
        "cost": cost_document(model.price.rates if model.price else Rates()),
        "limit": {"context": model.limit.context, "output": model.limit.output},
        "capabilities": {
            "temperature": capabilities.temperature,
            "reasoning": capabilities.reasoning,
            "attachment": capabilities.attachment,
            "toolcall": capabilities.tools,
            "input": {kind: kind in capabilities.input for kind in get_args(Modality)},
            "output": {kind: kind in capabilities.output for kind in get_args(Modality)},
        },
        "release_date": model.release_date,
    }


def cost_document(rates: Rates) -> dict[str, Any]:
    """Return prices in OpenCode's shape, in which unknown ones are 0."""
    names = ("input", "output", "cache_read", "cache_write")
    prices: list[float] = [getattr(rates, name) or 0 for name in names]
    # Whole numbers without a fraction, as JavaScript writes them.
    fresh, output, read, write = (int(price) if float(price).is_integer() else price for price in prices)
    return {"input": fresh, "output": output, "cache": {"read": read, "write": write}}


def is_local_url(url: str) -> bool:
    """Return whether ``url`` is that of a server on this machine."""
    return _LOCAL_URL.match(url) is not None


SCRIPTED_PROVIDER = "scripted"
"""The provider id of models that play a script; :mod:`opensesh.testing.scripted` implements it."""
SCRIPTED_PROMPT = "prompt"
"""The scripted model that plays the prompt itself; any other name is the path of a script."""
SCRIPTED_MODELS = {
    f"{SCRIPTED_PROVIDER}/{SCRIPTED_PROMPT}": "plays the prompt if it is a script, and repeats it otherwise",
    f"{SCRIPTED_PROVIDER}/FILE": "plays the script in a file",
}
"""Names of the scripted models, with a description of each."""


def scripted_model(name: str) -> Model:
    """Describe the scripted model ``name``: every capability, and a price so that costs appear."""
    return Model(
        id=name,
        provider_id=SCRIPTED_PROVIDER,
        name="Scripted",
        capabilities=Capabilities(reasoning=True, attachment=True, input=frozenset({"text", "image", "pdf"})),
        price=Price(rates=Rates(input=3, output=15, cache_read=0.3, cache_write=3.75)),
        limit=Limit(context=200_000, output=8_192),
    )
