"""Models that play a script: what they are called, and what they are like. No provider offers them."""

from __future__ import annotations

from .model import Capabilities, Limit, Model, Price, Rates

SCRIPTED = "scripted"
PROMPT = "prompt"
NAMES = {
    f"{SCRIPTED}/{PROMPT}": "plays the prompt, if that is a script, and says it back if it is none",
    f"{SCRIPTED}/FILE": "plays the script in a file",
}
"""What to call them, and what they do then."""


def scripted(name: str) -> Model:
    """The model that plays a script: it can do everything, and has a price so that costs can be seen."""
    return Model(
        id=name,
        provider_id=SCRIPTED,
        name="Scripted",
        capabilities=Capabilities(reasoning=True, attachment=True, input=frozenset({"text", "image", "pdf"})),
        price=Price(rates=Rates(input=3, output=15, cache_read=0.3, cache_write=3.75)),
        limit=Limit(context=200_000, output=8_192),
    )
