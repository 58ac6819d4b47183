"""What OpenCode's configuration says about providers: what it adds, overrides and rules out."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import msgspec
from msgspec import Struct

from ..records import merged
from ..storage.protocol import Damage

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping


class Settings(Struct, kw_only=True, frozen=True):
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
        # The options hold the key, and a repr ends up in logs.
        return f"Settings(name={self.name!r}, models={list(self.models)!r})"


NOTHING = Settings()


class Overlay:
    """The parts ``provider``, ``enabled_providers`` and ``disabled_providers`` of a configuration."""

    def __init__(self, config: Mapping[str, Any], report: Callable[[Damage], None]) -> None:
        self._providers = cast("Mapping[str, Any]", config.get("provider") or {})
        self._enabled = cast("list[str] | None", config.get("enabled_providers"))
        self._disabled = cast("list[str]", config.get("disabled_providers") or [])
        self._report = report
        self._read: dict[str, Settings] = {}
        self.problems: dict[str, str] = {}
        """What is wrong with the settings of a provider (``acme``) or a model (``acme/large``)."""

    @property
    def names(self) -> tuple[str, ...]:
        """The providers it mentions."""
        return tuple(self._providers)

    def settings(self, provider_id: str) -> Settings:
        """What it says about one provider. Settings that cannot be read are reported once, and then say nothing."""
        if provider_id not in self._providers:
            return NOTHING
        if provider_id not in self._read:
            self._read[provider_id] = self._convert(provider_id)
        return self._read[provider_id]

    def refusal(self, provider_id: str) -> str:
        """Why this provider may not be used; nothing if it may."""
        if provider_id in self._disabled:
            return "it is in disabled_providers of the configuration"
        if self._enabled is not None and provider_id not in self._enabled:
            return "it is not in enabled_providers of the configuration"
        return ""

    def model_refusal(self, provider_id: str, model_id: str) -> str:
        """Why this model of a provider that may be used may not; nothing if it may."""
        settings = self.settings(provider_id)
        if model_id in settings.blacklist:
            return f"it is in provider.{provider_id}.blacklist of the configuration"
        if settings.whitelist is not None and model_id not in settings.whitelist:
            return f"it is not in provider.{provider_id}.whitelist of the configuration"
        return ""

    def original(self, provider_id: str, model_id: str) -> str:
        """Which of the catalogue's models this one goes back to: ``id`` may name another than its own."""
        named = self.settings(provider_id).models.get(model_id, {}).get("id")
        return named if isinstance(named, str) and named else model_id

    def apply(self, provider_id: str, model_id: str, listed: Mapping[str, Any]) -> dict[str, Any]:
        """``listed``, the catalogue's entry, with what the configuration says of the model laid over it."""
        settings = self.settings(provider_id)
        own = settings.models.get(model_id, {})
        renamed = {"name": model_id} if self.original(provider_id, model_id) != model_id else {}
        server = {"npm": settings.npm, "api": settings.api}
        return merged(listed, renamed, {"provider": {key: value for key, value in server.items() if value}}, own)

    def problem(self, name: str, error: Exception) -> None:
        """Note what is wrong with a provider or model, and report it."""
        reason = str(error).replace("`", "")
        self.problems[name] = reason
        self._report(Damage(f"provider {name}", reason))

    def _convert(self, provider_id: str) -> Settings:
        try:
            return msgspec.convert(self._providers[provider_id], Settings)
        except msgspec.ValidationError as error:
            self.problem(provider_id, error)
            return NOTHING
