"""The catalogue of models: which exist, their limits and prices.

It works offline, from the snapshot in the package or a newer copy on this machine (see
:mod:`opensesh.models.catalogue_sources`), with the configuration's providers and models merged in. Creating one reads
nothing; the first query does, and only what it needs. A catalogue is safe to use from several threads.
"""

from __future__ import annotations

import logging
import os
import re
from threading import RLock
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Raw

from ..errors import ModelNotFoundError
from ..flags import Flags
from ..text import close_matches, did_you_mean
from .catalogue_entries import ENTRY_DECODER, ProviderEntry, build_model
from .catalogue_sources import ProviderHeader, newest_source, refresh_copy, retired_models
from .model import SCRIPTED_MODELS, SCRIPTED_PROVIDER, ProviderInfo, scripted_model

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    import httpx2

    from ..storage.protocol import Damage
    from .catalogue_sources import CatalogueSource
    from .model import Model

_ALIASES = {"github-copilot-enterprise": ("github-copilot", "GitHub Copilot Enterprise")}
"""Providers that models.dev does not list, with the one whose models they offer and their name."""

_CHAT_ONLY = ("gpt-5-chat-latest", "openai/gpt-5-chat")


def log_damage(damage: Damage) -> None:
    """Log data that cannot be used as a warning."""
    logging.getLogger("opensesh.models").warning("%s: %s", damage.path, damage.reason)


class Catalogue:
    """Models, by provider and name."""

    def __init__(
        self,
        config: Mapping[str, Any] | None = None,
        *,
        environ: Mapping[str, str] | None = None,
        source: CatalogueSource | None = None,
        report: Callable[[Damage], None] = log_damage,
    ) -> None:
        """``config`` is OpenCode's; it uses ``provider``, ``enabled_providers`` and ``disabled_providers``.

        ``report`` is called for copies, providers and models that cannot be used. ``source`` replaces the search for
        the newest copy.
        """
        self._environ = os.environ if environ is None else environ
        self._config = ProviderEntry(config or {}, report)
        self._report = report
        self._given_source = source
        self._lock = RLock()
        self._reset()

    @property
    def origin(self) -> CatalogueSource:
        """Which copy of the catalogue is in use."""
        with self._lock:
            return self._opened()

    def providers(self) -> tuple[ProviderInfo, ...]:
        """Return the providers that may be used: the catalogue's, then the configuration's own."""
        with self._lock:
            names = dict.fromkeys((*self._opened().headers, *_ALIASES, *self._config.names))
            infos = [self._info(name) for name in names if not self._config.exclusion(name)]
            return tuple(info for info in infos if info)

    def provider(self, provider_id: str) -> ProviderInfo:
        """Return one provider; :class:`ModelNotFoundError` suggests similar names."""
        with self._lock:
            info = self._info(provider_id)
            exclusion = self._config.exclusion(provider_id)
            if info is None:
                near = _closest(provider_id, [*(other.id for other in self.providers()), SCRIPTED_PROVIDER])
                raise self._no_provider(provider_id, near)
            if exclusion:
                raise ModelNotFoundError(f"The provider {provider_id} may not be used: {exclusion}.")
            return info

    def models(self, provider_id: str) -> dict[str, Model]:
        """Return the models that a provider offers, by name, in the catalogue's order.

        Deprecated and alpha models are left out (``OPENCODE_ENABLE_EXPERIMENTAL_MODELS`` includes the latter), and so
        are those that the configuration excludes.
        """
        with self._lock:
            self.provider(provider_id)
            hidden = ["deprecated"] if Flags(self._environ).enable_experimental_models else ["deprecated", "alpha"]
            models: dict[str, Model] = {}
            for name in self._names(provider_id):
                model = self.known(provider_id, name)
                excluded = name in _CHAT_ONLY or self._config.model_exclusion(provider_id, name)
                if model is not None and model.status not in hidden and not excluded:
                    models[name] = model
            return models

    def model(self, provider_id: str, model_id: str) -> Model:
        """Return one model; :class:`ModelNotFoundError` gives the reason and suggests similar names.

        Deprecated models are found too, since the provider may still serve them, and so are scripted models.
        """
        with self._lock:
            if not model_id:
                raise self._incomplete_name(provider_id)
            if provider_id == SCRIPTED_PROVIDER:
                return scripted_model(model_id)
            if self._info(provider_id) is None:
                near: list[str] = []  # the same or the most similar model of providers with similar names
                for name in _closest(provider_id, [*(info.id for info in self.providers()), SCRIPTED_PROVIDER]):
                    models = {model_id: None} if name == SCRIPTED_PROVIDER else self.models(name)
                    best = [model_id] if model_id in models else _closest(model_id, models)
                    near += [f"{name}/{match}" for match in best[:1]]
                raise self._no_provider(provider_id, near)
            self.provider(provider_id)
            model = self.known(provider_id, model_id)
            if model is None:
                ref = f"{provider_id}/{model_id}"
                problem = self._config.problems.get(ref)
                if problem:
                    raise ModelNotFoundError(f"{ref} cannot be used, its settings are invalid: {problem}")
                near = [f"{provider_id}/{name}" for name in _closest(model_id, self.models(provider_id))]
                message = f"{provider_id} has no model {model_id!r}.{_did_you_mean(near)}"
                raise ModelNotFoundError(message, suggestions=near)
            exclusion = self._config.model_exclusion(provider_id, model_id)
            if exclusion:
                raise ModelNotFoundError(f"{model.ref} may not be used: {exclusion}.")
            return model

    def find(self, ref: str) -> Model:
        """Return the model ``provider/model``, as :meth:`model` does; the model's name may contain slashes."""
        provider_id, _, model_id = ref.partition("/")
        return self.model(provider_id, model_id)

    def known(self, provider_id: str, model_id: str) -> Model | None:
        """Return a model even if it may not be used, to price earlier calls; ``None`` if unknown. Never raises.

        A model that the catalogue no longer lists is deprecated.
        """
        with self._lock:
            key = provider_id, model_id
            if key in self._built:
                return self._built[key]
            model = None
            info = self._info(provider_id)
            names = self._names(provider_id)
            listed = self._entries(provider_id, retired=model_id not in names)
            if info is not None and (model_id in names or model_id in listed):
                try:
                    if info.configured:
                        raw = listed.get(self._config.base_model(provider_id, model_id))
                        below = {} if raw is None else msgspec.json.decode(raw, type=dict[str, Any])
                        entry = self._config.configured_entry(provider_id, model_id, below)
                    else:
                        entry = ENTRY_DECODER.decode(listed[model_id])
                    model = build_model(model_id, entry, info, self._environ)
                except msgspec.MsgspecError as error:
                    self._config.add_problem(f"{provider_id}/{model_id}", error)
            self._built[key] = model
            return model

    def refresh(self, client: httpx2.Client | None = None) -> bool:
        """Fetch the current catalogue from models.dev; return whether it changed. Nothing else uses the network.

        Raises :class:`~opensesh.errors.ModelConnectionError` or :class:`~opensesh.errors.ModelError`, and keeps the
        old catalogue then.
        """
        changed = refresh_copy(self._environ, client)
        with self._lock:
            self._reset()
        return changed

    def _reset(self) -> None:
        self._source: CatalogueSource | None = None
        self._infos: dict[str, ProviderInfo | None] = {}
        self._raw: dict[tuple[str, bool], dict[str, Raw]] = {}
        self._built: dict[tuple[str, str], Model | None] = {}

    def _opened(self) -> CatalogueSource:
        if self._source is None:
            self._source = self._given_source or newest_source(self._environ, self._report)
        return self._source

    def _info(self, provider_id: str) -> ProviderInfo | None:
        if provider_id in self._infos:
            return self._infos[provider_id]
        original, name = _ALIASES.get(provider_id, (provider_id, ""))
        header = self._opened().headers.get(original)
        settings = self._config.settings(provider_id)
        info = None
        if header is not None or settings.models:
            header = header or ProviderHeader()
            info = ProviderInfo(
                id=provider_id,
                name=settings.name or name or header.name or provider_id,
                env=tuple(header.env if settings.env is None else settings.env),
                npm=settings.npm or header.npm,
                api_url=settings.api or header.api,
                options={key: value for key, value in settings.options.items() if key != "apiKey"},
                configured=provider_id in self._config.names,
            )
        self._infos[provider_id] = info
        return info

    def _names(self, provider_id: str) -> tuple[str, ...]:
        """Return the names of a provider's models: the catalogue's, then the configuration's own."""
        own = self._config.settings(provider_id).models
        return tuple(dict.fromkeys((*self._entries(provider_id), *own)))

    def _entries(self, provider_id: str, *, retired: bool = False) -> dict[str, Raw]:
        original, _ = _ALIASES.get(provider_id, (provider_id, ""))
        if (original, retired) not in self._raw:
            models = retired_models(original) if retired else self._opened().models(original)
            self._raw[original, retired] = models
        return self._raw[original, retired]

    def _no_provider(self, provider_id: str, near: list[str]) -> ModelNotFoundError:
        problem = self._config.problems.get(provider_id)
        if problem:
            return ModelNotFoundError(f"provider.{provider_id} in the configuration is invalid: {problem}")
        return ModelNotFoundError(f"there is no provider {provider_id!r}.{_did_you_mean(near)}", suggestions=near)

    def _incomplete_name(self, name: str) -> ModelNotFoundError:
        if name == SCRIPTED_PROVIDER:
            ways = " and ".join(f"{ref} {description}" for ref, description in SCRIPTED_MODELS.items())
            return ModelNotFoundError(f"a script is missing: {ways}.", suggestions=list(SCRIPTED_MODELS))
        infos = {info.id: info for info in self.providers()}
        if name in infos:
            return ModelNotFoundError(f"{name} is a provider, not a model. 'opensesh models {name}' lists its models.")
        near = self._offering(name, infos)
        if not near:
            every = dict.fromkeys(model_id for provider_id in infos for model_id in self._names(provider_id))
            near = [ref for match in _closest(name, every) for ref in self._offering(match, infos)[:1]]
        message = f"{name!r} is not a full name: a model is called provider/model."
        return ModelNotFoundError(message + _did_you_mean(near), suggestions=near)

    def _offering(self, name: str, infos: dict[str, ProviderInfo]) -> list[str]:
        """Return references to the model ``name``: its vendor's first, then those of small providers."""
        offering = [info for info in infos.values() if name in self._names(info.id)]
        offering.sort(
            key=lambda info: (info.npm != f"@ai-sdk/{info.id}", "compatible" in info.npm, len(self._names(info.id)))
        )
        return [f"{info.id}/{name}" for info in offering if name in self.models(info.id)][:3]


def _closest(name: str, choices: Iterable[str]) -> list[str]:
    """Return at most three: those with a word that begins like ``name``, shortest first, then similar spellings."""
    letters = _letters(name)
    if not letters:
        return []
    pool = list(choices)
    matching: list[str] = []
    for choice in pool:
        words = re.findall(r"[^\W_]+", choice.lower())
        if letters in _letters(choice) and any("".join(words[i:]).startswith(letters) for i in range(len(words))):
            matching.append(choice)
    return list(dict.fromkeys((*sorted(matching, key=len), *close_matches(name, pool, 3, letters=_letters))))[:3]


def _letters(name: str) -> str:
    return "".join(character for character in name.lower() if character.isalnum())


def _did_you_mean(near: list[str]) -> str:
    return did_you_mean(near) or " 'opensesh models' lists the models."
