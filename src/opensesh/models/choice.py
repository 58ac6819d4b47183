"""Default models: for sessions, and a small one for titles.

Only providers that the user has set up are considered: those with a key, and those that need none.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import msgspec

from ..errors import ModelNotFoundError, RecordError
from ..records import ModelRef, loads_object
from ..storage import paths
from ..storage.disk import read_file
from .model import SCRIPTED_PROVIDER

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from .auth import Keyring
    from .catalogue import Catalogue
    from .model import Model, ProviderInfo

# The last match wins.
_PREFERRED = ("gpt-5", "claude-sonnet-4", "big-pickle", "gemini-3-pro")

_SMALL = (
    "claude-haiku-4-5",
    "claude-haiku-4.5",
    "3-5-haiku",
    "3.5-haiku",
    "gemini-3-flash",
    "gemini-2.5-flash",
    "gpt-5-nano",
)
_SMALL_COPILOT = ("gpt-5-mini", "claude-haiku-4.5", *_SMALL)
_SMALL_FALLBACK = ("opencode", "gpt-5-nano")

# The order in which OpenCode loads its providers.
_KEY_ORDER = ("environment", "auth.json", "plugin", "config", "none")

_MULTI_PURPOSE_VARIABLES = ("GITHUB_TOKEN",)
"""Variables that are often set for other reasons, like the credentials of a cloud."""

ModelName = tuple[str, str]
"""Provider id and model id."""


def default_model(
    catalogue: Catalogue, keyring: Keyring, config: Mapping[str, Any], recent: Iterable[ModelName] = ()
) -> Model:
    """Return the configured model, else the most recent usable one, else the best one of a provider.

    ``recent`` comes from :func:`recent_models`. Configured providers come before others. Raises
    :class:`ModelNotFoundError`, which explains what to do, if no model is usable.
    """
    configured = config.get("model")
    if configured:
        return catalogue.find(configured)
    available = available_providers(catalogue, keyring)
    provider_ids = {info.id for info in available}
    for provider_id, model_id in recent:
        if provider_id in provider_ids and model_id in (models := catalogue.models(provider_id)):
            return models[model_id]
    for info in sorted(available, key=lambda info: not info.configured):
        models = in_order_of_preference(catalogue.models(info.id).values())
        if models:
            return models[0]
    raise ModelNotFoundError(
        "there is no model to use: none was named, and there is no key for any provider. Set one, such as "
        "ANTHROPIC_API_KEY or OPENAI_API_KEY, log in with 'opensesh auth login', or configure a provider in "
        "opencode.json. Models without a key have to be named: 'opensesh models' lists them, and scripted/prompt "
        "plays the prompt as a script."
    )


def small_model(catalogue: Catalogue, keyring: Keyring, config: Mapping[str, Any], provider_id: str) -> Model | None:
    """Return a fast, cheap model for titles and summaries: the configured one, else one of the same provider.

    ``None`` if there is none; the main model is used then.
    """
    configured = config.get("small_model")
    if configured:
        return catalogue.find(configured)
    if provider_id == SCRIPTED_PROVIDER:
        return None
    available = {info.id: info for info in available_providers(catalogue, keyring)}
    if provider_id in available:
        models = catalogue.models(provider_id)
        words = _SMALL_COPILOT if provider_id.startswith("github-copilot") else _SMALL
        for word in ("gpt-5-nano",) if provider_id.startswith("opencode") else words:
            matching = [name for name in models if word in name]
            if provider_id == "amazon-bedrock":
                from .bedrock_request import REGION_PREFIXES, aws_region

                # Bedrock has several ids of one model: global ones, then those of the region, then plain ones.
                region = aws_region(available[provider_id].text("region")).split("-", maxsplit=1)[0]
                prefixes = ("global.", f"{region}.")
                prefixed = [name for prefix in prefixes for name in matching if name.startswith(prefix)]
                matching = prefixed + [name for name in matching if not name.startswith(REGION_PREFIXES)]
            if matching:
                return models[matching[0]]
    fallback, name = _SMALL_FALLBACK
    return catalogue.models(fallback).get(name) if fallback in available else None


def available_providers(catalogue: Catalogue, keyring: Keyring) -> list[ProviderInfo]:
    """Return the usable providers in OpenCode's order: by the source of the key, then as in the catalogue.

    Those whose only credential may be there for another reason come last.
    """
    ranked: list[tuple[int, ProviderInfo]] = []
    for info in catalogue.providers():
        ranks: list[int] = []
        for credential in keyring.credentials(info):
            source = credential.source
            if source.kind == "public" or credential.expired():
                continue
            from_cloud = credential.kind == "ambient" and source.kind == "environment"
            is_uncertain = from_cloud or source.name in _MULTI_PURPOSE_VARIABLES
            ranks.append(len(_KEY_ORDER) if is_uncertain else _KEY_ORDER.index(source.kind))
        if ranks:
            ranked.append((min(ranks), info))
    return [info for _, info in sorted(ranked, key=lambda entry: entry[0])]


def in_order_of_preference(models: Iterable[Model]) -> list[Model]:
    """Return models, best first: with tools and only text output; preferred names; ``latest``; highest name."""

    def preference(model: Model) -> tuple[bool, int, bool]:
        is_usable = model.capabilities.tools and not model.capabilities.output - {"text"}
        position = next((index for index, word in enumerate(_PREFERRED) if word in model.id), -1)
        return not is_usable, -position, "latest" not in model.id

    by_name = sorted(models, key=lambda model: model.id, reverse=True)
    return sorted(by_name, key=preference)


def recent_models(folder: str | None = None) -> list[ModelName]:
    """Return the models last used in OpenCode's terminal, newest first, from ``model.json`` in its state folder.

    Empty if that file is missing or cannot be read.
    """
    path = os.path.join(paths.opencode_state() if folder is None else folder, "model.json")
    try:
        listed = loads_object(read_file(path), path).get("recent")
        refs = msgspec.convert(listed, list[ModelRef])
    except (OSError, RecordError, msgspec.ValidationError):
        return []
    return [(ref.provider_id, ref.model_id) for ref in refs]
