"""Which model to take when nobody said, and which for small errands.

Only providers the user has set up count: those with a key, and those that need none.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import msgspec

from ..errors import ModelNotFoundError, RecordError
from ..records import ModelRef, loads_object
from ..storage import paths
from .model import SCRIPTED_PROVIDER

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from .auth import Credential, Keyring
    from .catalogue import Catalogue
    from .model import Model, ProviderInfo

# Later names win.
_FAVOURITES = ("gpt-5", "claude-sonnet-4", "big-pickle", "gemini-3-pro")

_SMALL = (
    "claude-haiku-4-5",
    "claude-haiku-4.5",
    "3-5-haiku",
    "3.5-haiku",
    "gemini-3-flash",
    "gemini-2.5-flash",
    "gpt-5-nano",
)
_SMALL_OF_COPILOT = ("gpt-5-mini", "claude-haiku-4.5", *_SMALL)
_SMALL_OF_ALL = ("opencode", "gpt-5-nano")
_BEDROCK = "amazon-bedrock"

# In which order OpenCode comes to know of its providers.
_KEY_ORDER = ("environment", "auth.json", "plugin", "config", "none")

_SHARED = ("GITHUB_TOKEN",)
"""Variables that many set for other reasons; so it is with a cloud's own credentials."""

ModelName = tuple[str, str]
"""Provider and model."""


def default_model(
    catalogue: Catalogue, keyring: Keyring, config: Mapping[str, Any], recent: Iterable[ModelName] = ()
) -> Model:
    """The model to use: the configuration's, else the one used last that can be used, else the best of a provider.

    ``recent`` is what :func:`recent_models` read. Providers that the configuration mentions come before others.
    :class:`ModelNotFoundError` says what to do where nothing can be used.
    """
    named = config.get("model")
    if named:
        return catalogue.find(named)
    ready = available_providers(catalogue, keyring)
    names = {info.id for info in ready}
    for provider_id, model_id in recent:
        if provider_id in names and model_id in (models := catalogue.models(provider_id)):
            return models[model_id]
    for info in sorted(ready, key=lambda info: not info.configured):
        models = in_order_of_preference(catalogue.models(info.id).values())
        if models:
            return models[0]
    raise ModelNotFoundError(
        "there is no model to use: none was named, and no provider has a key of yours. Set one, such as "
        "ANTHROPIC_API_KEY or OPENAI_API_KEY, log in with 'opencode auth login', or set up a provider in "
        "opencode.json. Models that need no key are used when they are named: 'opensesh models' lists them, and "
        "scripted/prompt plays what it is told."
    )


def small_model(catalogue: Catalogue, keyring: Keyring, config: Mapping[str, Any], provider_id: str) -> Model | None:
    """A quick, cheap model for titles and the like: the configuration's, else one of the same provider.

    ``None`` if there is none; the main model then does that too.
    """
    named = config.get("small_model")
    if named:
        return catalogue.find(named)
    if provider_id == SCRIPTED_PROVIDER:
        return None
    ready = {info.id: info for info in available_providers(catalogue, keyring)}
    if provider_id in ready:
        models = catalogue.models(provider_id)
        for word in _small_names(provider_id):
            fitting = [name for name in models if word in name]
            if provider_id == _BEDROCK:
                fitting = _in_region(fitting, ready[provider_id].text("region"))
            if fitting:
                return models[fitting[0]]
    fallback, name = _SMALL_OF_ALL
    return catalogue.models(fallback).get(name) if fallback in ready else None


def available_providers(catalogue: Catalogue, keyring: Keyring) -> list[ProviderInfo]:
    """The providers that can be used, in the order OpenCode would come to them: by where the key is, then as listed.

    Those whose only credential may well be there for another reason come last.
    """
    ranked: list[tuple[int, ProviderInfo]] = []
    for info in catalogue.providers():
        ranks = [_key_rank(each) for each in keyring.credentials(info) if _counts(each)]
        if ranks:
            ranked.append((min(ranks), info))
    return [info for _, info in sorted(ranked, key=_rank)]


def in_order_of_preference(models: Iterable[Model]) -> list[Model]:
    """Models, best first: those that take tools and answer in words alone; favourites; ``latest``; last by name."""
    by_name = sorted(models, key=_name, reverse=True)
    return sorted(by_name, key=lambda model: (not _can_work(model), -_favour(model.id), "latest" not in model.id))


def recent_models(folder: str | None = None) -> list[ModelName]:
    """The models last used in OpenCode's terminal, newest first, as ``model.json`` in its state folder has them.

    Empty if there is no such file, or none that can be read.
    """
    path = os.path.join(paths.opencode_state() if folder is None else folder, "model.json")
    try:
        with open(path, "rb") as file:
            listed = loads_object(file.read(), path).get("recent")
        refs = msgspec.convert(listed, list[ModelRef])
    except (OSError, RecordError, msgspec.ValidationError):
        return []
    return [(ref.provider_id, ref.model_id) for ref in refs]


def _counts(credential: Credential) -> bool:
    return credential.source.kind != "public" and not credential.expired()


def _key_rank(credential: Credential) -> int:
    in_passing = credential.kind == "ambient" and credential.source.kind == "environment"
    if in_passing or credential.source.name in _SHARED:
        return len(_KEY_ORDER)
    return _KEY_ORDER.index(credential.source.kind)


def _small_names(provider_id: str) -> Sequence[str]:
    if provider_id.startswith("opencode"):
        return ("gpt-5-nano",)
    return _SMALL_OF_COPILOT if provider_id.startswith("github-copilot") else _SMALL


def _in_region(names: list[str], region: str | None) -> list[str]:
    """Bedrock sells one model under several names; best are those served from anywhere, then from one's own region."""
    from .bedrock_request import REGION_PREFIXES, aws_region

    wanted = ("global.", f"{aws_region(region).split('-', maxsplit=1)[0]}.")
    prefixed = [name for prefix in wanted for name in names if name.startswith(prefix)]
    return prefixed + [name for name in names if not name.startswith(REGION_PREFIXES)]


def _can_work(model: Model) -> bool:
    return model.capabilities.tools and not model.capabilities.output - {"text"}


def _favour(name: str) -> int:
    return next((index for index, word in enumerate(_FAVOURITES) if word in name), -1)


def _name(model: Model) -> str:
    return model.id


def _rank(entry: tuple[int, ProviderInfo]) -> int:
    return entry[0]
