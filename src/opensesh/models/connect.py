"""From a model to its provider: the right adapter, with URL, headers and key."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from ..errors import AuthFailedError, ModelError, UsageError
from ..text import close_matches, did_you_mean
from .model import SCRIPTED_PROMPT, SCRIPTED_PROVIDER
from .request import IDLE_TIMEOUT_SECONDS

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from .auth import Credential, Keyring
    from .catalogue import Catalogue
    from .model import Model, ProviderInfo
    from .request import Provider
    from .transport import Transport

Timeouts = tuple[float | None, float | None]
"""Seconds from the request to the end of the response, and of silence before or within it; ``None`` for no limit."""

UNSUPPORTED_SDKS = ("@ai-sdk/google-vertex", "@ai-sdk/google-vertex/anthropic", "@ai-sdk/azure", "@ai-sdk/cohere")


class Connections:
    """The adapters in use, one for each provider and key, so that connections are reused. Close it when done."""

    def __init__(
        self,
        catalogue: Catalogue,
        keyring: Keyring,
        *,
        scripts: Mapping[str, Provider] | None = None,
        untrusted_reason: Callable[[str, str], str] = lambda _provider, _model: "",
    ) -> None:
        """``scripts`` are scripted models by name; other names are paths of scripts. ``untrusted_reason`` returns why
        a model, given by its provider's id and its own, must not be called, or an empty string."""
        self._catalogue = catalogue
        self._keyring = keyring
        self._untrusted_reason = untrusted_reason
        self._adapters: dict[tuple[str, ...], Provider] = {}
        self._scripts: dict[str, Provider] = dict(scripts or {})
        self._transports: dict[Timeouts, Transport] = {}

    def provider(self, model: Model) -> Provider:
        """Return the provider to call for ``model``.

        Raises :class:`AuthFailedError` for a model that is not trusted, and for a missing key, with where to put it.
        """
        if model.provider_id == SCRIPTED_PROVIDER and model.id in self._scripts:
            return self._scripts[model.id]
        reason = self._untrusted_reason(model.provider_id, model.id)
        if reason:
            raise AuthFailedError(reason)
        if model.provider_id == SCRIPTED_PROVIDER:
            self._scripts[model.id] = _open_script(model.id)
            return self._scripts[model.id]
        info = self._catalogue.provider(model.provider_id)
        credential = self._keyring.credential(info)
        if credential is None:
            names = " or ".join(info.env) or f"{info.id.upper()}_API_KEY"
            reason = self._keyring.unusable_login(info.id)
            why = f" ({reason})" if reason else ""
            raise AuthFailedError(
                f"there is no key for {info.name}{why}: set {names}, or log in with 'opensesh auth login'"
            )
        key = (model.provider_id, model.npm, model.api_url, credential.key)
        if key not in self._adapters:
            self._adapters[key] = self._connect(model, info, credential)
        return self._adapters[key]

    async def aclose(self) -> None:
        """Close every connection."""
        self._adapters.clear()
        while self._transports:
            _, transport = self._transports.popitem()
            await transport.aclose()

    def _connect(self, model: Model, info: ProviderInfo, credential: Credential) -> Provider:
        # Adapters are imported here so that a run loads the one it uses, and httpx2 only when it uses one.
        from .transport import Transport

        timeouts = response, idle = configured_timeouts(info.options)
        if timeouts not in self._transports:
            self._transports[timeouts] = Transport(timeout=response, idle_timeout=idle)
        options: dict[str, Any] = {"headers": info.headers, "transport": self._transports[timeouts]}
        base_url = model.api_url or info.base_url or info.api_url
        if info.id.startswith("github-copilot") and credential.enterprise_url and not info.base_url:
            domain = credential.enterprise_url.removeprefix("https://").removeprefix("http://").rstrip("/")
            base_url = f"https://copilot-api.{domain}"
        if base_url:
            options["base_url"] = base_url
        match model.npm:
            case "@ai-sdk/anthropic":
                from .anthropic import Anthropic

                auth_header = "bearer" if credential.kind == "oauth" else "x-api-key"
                return Anthropic(credential.key, auth_header=auth_header, **options)
            case "@ai-sdk/openai":
                from .openai_responses import OpenAIResponses

                return OpenAIResponses(credential.key, provider_id=info.id, **options)
            case "@ai-sdk/google":
                from .google import Google

                return Google(credential.key, provider_id=info.id, **options)
            case "@ai-sdk/amazon-bedrock":
                from .bedrock import Bedrock

                names = {"region": "region", "profile": "profile", "endpoint": "base_url"}
                options |= {names[name]: text for name in names if (text := info.text(name))}
                return Bedrock(credential.key or None, **options)
            case npm if npm in UNSUPPORTED_SDKS:
                raise ModelError(f"{info.name} uses {npm}, which opensesh does not support")
            case _ if not base_url:
                raise ModelError(f"{info.name} has no URL: set provider.{info.id}.options.baseURL in opencode.json")
            case _:
                from .openai_chat import OpenAIChat

                include_usage = info.options.get("includeUsage") is not False
                return OpenAIChat(credential.key, provider_id=info.id, include_usage=include_usage, **options)


def configured_timeouts(options: Mapping[str, Any]) -> Timeouts:
    """Return the timeouts that a provider's ``options`` in the configuration set.

    ``timeout`` is for a whole response, in milliseconds; a longer one also extends the idle timeout. ``false`` means no
    limit.
    """
    match options.get("timeout"):
        case False:
            return None, None
        case int() | float() as milliseconds if milliseconds > 0 and milliseconds is not True:
            return milliseconds / 1000, max(milliseconds / 1000, IDLE_TIMEOUT_SECONDS)
        case _:
            return None, IDLE_TIMEOUT_SECONDS


def _open_script(name: str) -> Provider:
    # The one import of a higher layer: a scripted model is a provider that a configuration can name.
    from ..testing.scripted import ScriptedModel

    try:
        return ScriptedModel.named(name)
    except OSError as error:
        folder = os.path.dirname(name)
        try:
            paths = [os.path.join(folder, entry) for entry in os.listdir(folder or ".")]
        except OSError:
            paths = []
        near = [f"{SCRIPTED_PROVIDER}/{match}" for match in close_matches(name, [SCRIPTED_PROMPT, *paths], 3)]
        reason = f"{error.strerror or error}.{did_you_mean(near)}"
        raise UsageError(f"the script {name} cannot be read: {reason}") from error
    except ValueError as error:  # there is a NUL in its name, or it is not UTF-8
        raise UsageError(f"the script {name} cannot be read: it is not a UTF-8 text file") from error
