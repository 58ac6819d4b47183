"""Which models exist, what they hold and what they cost.

The catalogue works offline, from the snapshot that comes with the package or a newer copy found on this machine (see
:mod:`opensesh.models.sources`), with the configuration's providers and models laid over it. Making one reads
nothing: the first question does, and reads no more than it needs. One catalogue may be asked from many threads.
"""

from __future__ import annotations

import os
import re
from threading import RLock
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec
from msgspec import Raw

from ..errors import ModelNotFoundError
from ..flags import Flags
from ..text import close_matches, did_you_mean
from . import entries, sources
from .entries import ProviderInfo
from .model import SCRIPTED_MODELS, SCRIPTED_PROVIDER, scripted_model
from .overlay import Overlay

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    import httpx2

    from ..storage.protocol import Damage
    from .model import Model
    from .sources import Header, Source

__all__ = ["Catalogue", "Origin", "ProviderInfo"]

_CLONES = {"github-copilot-enterprise": ("github-copilot", "GitHub Copilot Enterprise")}
"""Providers that models.dev does not list, since they sell what another one sells."""

_CHAT_ONLY = ("gpt-5-chat-latest", "openai/gpt-5-chat")


class Origin(NamedTuple):
    """Which copy of the catalogue is in use."""

    label: str
    date: str
    """The day of the data, ``2026-09-28``."""


def log_damage(damage: Damage) -> None:
    """The default way to hear of data that cannot be used: a warning in the log."""
    import logging

    logging.getLogger("opensesh.models").warning("%s: %s", damage.path, damage.reason)


class Catalogue:
    """Models, by provider and name."""

    def __init__(
        self,
        config: Mapping[str, Any] | None = None,
        *,
        environ: Mapping[str, str] | None = None,
        source: Source | None = None,
        report: Callable[[Damage], None] = log_damage,
    ) -> None:
        """``config`` is OpenCode's; read are ``provider``, ``enabled_providers`` and ``disabled_providers``.

        ``report`` hears of copies, providers and models that cannot be used. ``source`` replaces the search for the
        newest copy.
        """
        self._environ = os.environ if environ is None else environ
        self._overlay = Overlay(config or {}, report)
        self._report = report
        self._fixed = source
        self._lock = RLock()
        self._forget()

    @property
    def origin(self) -> Origin:
        """Which copy is in use, and of which day."""
        with self._lock:
            source = self._opened()
            return Origin(source.label, source.date)

    def providers(self) -> tuple[ProviderInfo, ...]:
        """The providers that may be used, the catalogue's first, then the configuration's own."""
        with self._lock:
            names = dict.fromkeys((*self._listed(), *_CLONES, *self._overlay.names))
            infos = [self._info(name) for name in names if not self._overlay.refusal(name)]
            return tuple(info for info in infos if info)

    def provider(self, provider_id: str) -> ProviderInfo:
        """One provider, or :class:`ModelNotFoundError` with the names that come close."""
        with self._lock:
            info = self._info(provider_id)
            refusal = self._overlay.refusal(provider_id)
            if info is None:
                near = _closest(provider_id, [*(each.id for each in self.providers()), SCRIPTED_PROVIDER])
                raise self._no_provider(provider_id, near)
            if refusal:
                raise ModelNotFoundError(f"The provider {provider_id} may not be used: {refusal}.")
            return info

    def models(self, provider_id: str) -> dict[str, Model]:
        """What a provider offers, by name, in the catalogue's order.

        Without models that are outdated or unfinished (``OPENCODE_ENABLE_EXPERIMENTAL_MODELS`` shows the latter), and
        without those the configuration rules out.
        """
        with self._lock:
            self.provider(provider_id)
            every = {name: self.known(provider_id, name) for name in self._names(provider_id)}
            return {name: model for name, model in every.items() if model and self._is_offered(model)}

    def model(self, provider_id: str, model_id: str) -> Model:
        """One model, or :class:`ModelNotFoundError` that says why not and what comes close.

        Outdated models are found too: whoever names one may still be served. So are those that play a script, which no
        provider offers.
        """
        with self._lock:
            if not model_id:
                raise self._half_a_name(provider_id)
            if provider_id == SCRIPTED_PROVIDER:
                return scripted_model(model_id)
            if self._info(provider_id) is None:
                raise self._no_provider(provider_id, self._elsewhere(provider_id, model_id))
            self.provider(provider_id)
            model = self.known(provider_id, model_id)
            if model is None:
                raise self._no_model(provider_id, model_id)
            refusal = self._overlay.model_refusal(provider_id, model_id)
            if refusal:
                raise ModelNotFoundError(f"{model.ref} may not be used: {refusal}.")
            return model

    def find(self, ref: str) -> Model:
        """The model called ``provider/model``, as :meth:`model` finds it; its own name may have slashes."""
        provider_id, _, model_id = ref.partition("/")
        return self.model(provider_id, model_id)

    def known(self, provider_id: str, model_id: str) -> Model | None:
        """What is known of a model, whether it may be used or not: to price what was done before. Never raises."""
        with self._lock:
            key = provider_id, model_id
            if key not in self._built:
                self._built[key] = self._build(provider_id, model_id)
            return self._built[key]

    def refresh(self, client: httpx2.Client | None = None) -> bool:
        """Fetch today's catalogue from models.dev; whether it is news. The one thing here that uses the network.

        Raises :class:`~opensesh.errors.ModelConnectionError` or :class:`~opensesh.errors.ModelError`, and then all is
        as
        it was.
        """
        changed = sources.refresh(self._environ, client)
        with self._lock:
            self._forget()
        return changed

    def _forget(self) -> None:
        self._source: Source | None = None
        self._headers: dict[str, Header] | None = None
        self._infos: dict[str, ProviderInfo | None] = {}
        self._raw: dict[str, dict[str, Raw]] = {}
        self._built: dict[tuple[str, str], Model | None] = {}

    def _opened(self) -> Source:
        if self._source is None:
            self._source = self._fixed or sources.choose(self._environ, self._report)
        return self._source

    def _listed(self) -> dict[str, Header]:
        if self._headers is None:
            self._headers = self._opened().headers()
        return self._headers

    def _info(self, provider_id: str) -> ProviderInfo | None:
        if provider_id not in self._infos:
            self._infos[provider_id] = self._describe(provider_id)
        return self._infos[provider_id]

    def _describe(self, provider_id: str) -> ProviderInfo | None:
        original, name = _CLONES.get(provider_id, (provider_id, ""))
        header = self._listed().get(original)
        settings = self._overlay.settings(provider_id)
        if header is None and not settings.models:
            return None
        header = header or sources.Header()
        return ProviderInfo(
            id=provider_id,
            name=settings.name or name or header.name or provider_id,
            env=tuple(header.env if settings.env is None else settings.env),
            npm=settings.npm or header.npm,
            api_url=settings.api or header.api,
            options={key: value for key, value in settings.options.items() if key != "apiKey"},
            configured=provider_id in self._overlay.names,
        )

    def _names(self, provider_id: str) -> tuple[str, ...]:
        """A provider's models, the catalogue's first, then the configuration's own."""
        own = self._overlay.settings(provider_id).models
        return tuple(dict.fromkeys((*self._entries(provider_id), *own)))

    def _entries(self, provider_id: str) -> dict[str, Raw]:
        original, _ = _CLONES.get(provider_id, (provider_id, ""))
        if original not in self._raw:
            self._raw[original] = self._opened().models(original)
        return self._raw[original]

    def _build(self, provider_id: str, model_id: str) -> Model | None:
        info = self._info(provider_id)
        if info is None or model_id not in self._names(provider_id):
            return None
        try:
            return entries.build(model_id, self._entry(info, model_id), info, self._environ)
        except msgspec.MsgspecError as error:
            self._overlay.problem(f"{provider_id}/{model_id}", error)
            return None

    def _entry(self, info: ProviderInfo, model_id: str) -> entries.Entry:
        listed = self._entries(info.id)
        if not info.configured:
            return entries.decode(listed[model_id])
        raw = listed.get(self._overlay.original(info.id, model_id))
        below = {} if raw is None else msgspec.json.decode(raw, type=dict[str, Any])
        return entries.convert(self._overlay.apply(info.id, model_id, below))

    def _is_offered(self, model: Model) -> bool:
        if model.status == "deprecated" or model.id in _CHAT_ONLY:
            return False
        if model.status == "alpha" and not Flags(self._environ).enable_experimental_models:
            return False
        return not self._overlay.model_refusal(model.provider_id, model.id)

    def _no_provider(self, provider_id: str, near: list[str]) -> ModelNotFoundError:
        problem = self._overlay.problems.get(provider_id)
        if problem:
            return ModelNotFoundError(f"provider.{provider_id} in the configuration is wrong: {problem}")
        return ModelNotFoundError(f"there is no provider {provider_id!r}.{_did_you_mean(near)}", suggestions=near)

    def _no_model(self, provider_id: str, model_id: str) -> ModelNotFoundError:
        ref = f"{provider_id}/{model_id}"
        problem = self._overlay.problems.get(ref)
        if problem:
            return ModelNotFoundError(f"{ref} cannot be used, its settings are wrong: {problem}")
        near = [f"{provider_id}/{name}" for name in _closest(model_id, self.models(provider_id))]
        return ModelNotFoundError(f"{provider_id} has no model {model_id!r}.{_did_you_mean(near)}", suggestions=near)

    def _elsewhere(self, provider_id: str, model_id: str) -> list[str]:
        """The same model, or the one nearest to it, of the providers called nearly like this."""
        near: list[str] = []
        for name in _closest(provider_id, [*(info.id for info in self.providers()), SCRIPTED_PROVIDER]):
            models = {model_id: None} if name == SCRIPTED_PROVIDER else self.models(name)
            best = [model_id] if model_id in models else _closest(model_id, models)
            near += [f"{name}/{each}" for each in best[:1]]
        return near

    def _half_a_name(self, name: str) -> ModelNotFoundError:
        if name == SCRIPTED_PROVIDER:
            ways = " and ".join(f"{each} {does}" for each, does in SCRIPTED_MODELS.items())
            return ModelNotFoundError(f"which script? {ways}.", suggestions=list(SCRIPTED_MODELS))
        infos = {info.id: info for info in self.providers()}
        if name in infos:
            return ModelNotFoundError(
                f"{name} is a provider, not a model. 'opensesh models {name}' lists what it offers."
            )
        near = self._sellers(name, infos)
        if not near:
            every = dict.fromkeys(each for provider_id in infos for each in self._names(provider_id))
            near = [ref for each in _closest(name, every) for ref in self._sellers(each, infos)[:1]]
        said = f"{name!r} is half a name: a model is called provider/model."
        return ModelNotFoundError(said + _did_you_mean(near), suggestions=near)

    def _sellers(self, name: str, infos: dict[str, ProviderInfo]) -> list[str]:
        """Who offers the model called ``name``: its maker, then who speaks a wire of its own and sells little else."""
        having = [info for info in infos.values() if name in self._names(info.id)]
        having.sort(
            key=lambda info: (info.npm != f"@ai-sdk/{info.id}", "compatible" in info.npm, len(self._names(info.id)))
        )
        return [f"{info.id}/{name}" for info in having if name in self.models(info.id)][:3]


def _closest(name: str, choices: Iterable[str]) -> list[str]:
    """At most three: those in which a word begins like ``name``, shortest first, then those spelt much like it."""
    wanted = _letters(name)
    if not wanted:
        return []
    pool = list(choices)
    holding = sorted((choice for choice in pool if wanted in _letters(choice) and _begins(wanted, choice)), key=len)
    return list(dict.fromkeys((*holding, *close_matches(name, pool, 3, letters=_letters))))[:3]


def _begins(wanted: str, name: str) -> bool:
    """Whether ``wanted`` stands in ``name`` from the beginning of one of its words on."""
    words = re.findall(r"[^\W_]+", name.lower())
    return any("".join(words[place:]).startswith(wanted) for place in range(len(words)))


def _letters(name: str) -> str:
    return "".join(character for character in name.lower() if character.isalnum())


def _did_you_mean(near: list[str]) -> str:
    return did_you_mean(near) or " 'opensesh models' lists what there is."
