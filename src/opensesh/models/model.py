"""A model: what it can do, how much it holds, and what it costs."""

from __future__ import annotations

from typing import Any, Literal

from msgspec import Struct

Modality = Literal["text", "audio", "image", "video", "pdf"]


class Rates(Struct, frozen=True, kw_only=True):
    """US dollars per million tokens. ``None`` is unknown, which is not the same as free."""

    input: float | None = None
    output: float | None = None
    cache_read: float | None = None
    cache_write: float | None = None
    reasoning: float | None = None
    """Only where it differs from ``output``."""


class Tier(Struct, frozen=True, kw_only=True):
    """Rates that hold once the context (input and cache reads) is larger than ``above`` tokens."""

    above: int
    rates: Rates


class Price(Struct, frozen=True, kw_only=True):
    """Base rates and those for long contexts, shortest first."""

    rates: Rates = Rates()
    tiers: tuple[Tier, ...] = ()


class Limit(Struct, frozen=True, kw_only=True):
    """Tokens; 0 is unknown."""

    context: int = 0
    input: int = 0
    output: int = 0


class Capabilities(Struct, frozen=True, kw_only=True):
    """What may be asked of it."""

    temperature: bool = False
    reasoning: bool = False
    attachment: bool = False
    tools: bool = True
    input: frozenset[Modality] = frozenset({"text"})
    output: frozenset[Modality] = frozenset({"text"})
    interleaved: str | None = None
    """The field in which this server wants earlier reasoning back (``reasoning_content``), if it does."""


class Model(Struct, frozen=True, kw_only=True):
    """One model of one provider, as the catalogue and the configuration describe it together."""

    id: str
    provider_id: str
    name: str = ""
    api_id: str = ""
    """What the provider calls it, where that differs from ``id``."""
    api_url: str = ""
    npm: str = "@ai-sdk/openai-compatible"
    """The name of the wire, as models.dev and OpenCode's config spell it: ``@ai-sdk/anthropic`` and so on."""
    family: str = ""
    release_date: str = ""
    status: Literal["active", "alpha", "beta", "deprecated"] = "active"
    capabilities: Capabilities = Capabilities()
    price: Price | None = None
    """``None``: nobody said. Then costs are unknown, never 0."""
    limit: Limit = Limit()
    options: dict[str, Any] = {}
    headers: dict[str, str] = {}
    variants: dict[str, dict[str, Any]] = {}

    @property
    def wire_id(self) -> str:
        """The name to put on the wire."""
        return self.api_id or self.id

    @property
    def ref(self) -> str:
        """``provider/model``."""
        return f"{self.provider_id}/{self.id}"


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
