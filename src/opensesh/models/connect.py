"""From a model to something that can be asked: the right adapter, with its address, its headers and its key."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from ..errors import AuthFailedError, ModelError, UsageError
from ..text import close_matches, did_you_mean
from .model import SCRIPTED_PROMPT, SCRIPTED_PROVIDER

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from .auth import Credential, Keyring
    from .catalogue import Catalogue, ProviderInfo
    from .model import Model
    from .request import Provider
    from .transport import Transport

_NOT_SPOKEN = ("@ai-sdk/google-vertex", "@ai-sdk/google-vertex/anthropic", "@ai-sdk/azure", "@ai-sdk/cohere")


class Timeouts(Struct, frozen=True):
    """How many seconds a provider may take; ``None`` for ever."""

    answer: float | None
    """From the request to the end of the answer."""
    silence: float | None


class Connections:
    """One adapter a provider and key, kept so that connections are used again. Close it when done."""

    def __init__(
        self,
        catalogue: Catalogue,
        keyring: Keyring,
        *,
        scripts: Mapping[str, Provider] | None = None,
        untrusted_reason: Callable[[Model], str] = lambda _: "",
    ) -> None:
        """``scripts`` are scripted models by name, for tests; others are opened by their path. ``untrusted_reason``
        returns why a model must not be called, or an empty string."""
        self._catalogue = catalogue
        self._keyring = keyring
        self._untrusted_reason = untrusted_reason
        self._open: dict[tuple[str, ...], Provider] = {}
        self._scripts: dict[str, Provider] = dict(scripts or {})
        self._transports: dict[Timeouts, Transport] = {}

    def provider(self, model: Model) -> Provider:
        """What to ask for ``model``; :class:`AuthFailedError` says where to put a key that is needed and not there,
        and why
        one is not asked that nobody has trusted."""
        if model.provider_id == SCRIPTED_PROVIDER and model.id in self._scripts:
            return self._scripts[model.id]
        why = self._untrusted_reason(model)
        if why:
            raise AuthFailedError(why)
        if model.provider_id == SCRIPTED_PROVIDER:
            return self._scripted(model.id)
        info = self._catalogue.provider(model.provider_id)
        credential = self._keyring.credential(info)
        if credential is None:
            names = " or ".join(info.env) or f"{info.id.upper()}_API_KEY"
            raise AuthFailedError(f"there is no key for {info.name}: set {names}, or log in with 'opencode auth login'")
        key = (model.provider_id, model.npm, model.api_url, credential.key)
        if key not in self._open:
            self._open[key] = self._connect(model, info, credential)
        return self._open[key]

    async def aclose(self) -> None:
        """Close every connection."""
        self._open.clear()
        while self._transports:
            _, transport = self._transports.popitem()
            await transport.aclose()

    def _scripted(self, name: str) -> Provider:
        # The one import of a higher layer: a scripted model is a provider that a configuration can name.
        from ..testing.scripted import ScriptedModel

        try:
            self._scripts[name] = ScriptedModel.named(name)
        except OSError as error:
            reason = f"{error.strerror or error}.{did_you_mean(_scripts_like(name))}"
            raise UsageError(f"the script {name} cannot be read: {reason}") from error
        except ValueError as error:  # there is a NUL in its name, or no text in it
            raise UsageError(f"the script {name} cannot be read: it is no file of UTF-8 text") from error
        return self._scripts[name]

    def _transport(self, info: ProviderInfo) -> Transport:
        """One for all providers that are waited for as long."""
        from .transport import Transport

        wait = configured_timeouts(info.options)
        if wait not in self._transports:
            self._transports[wait] = Transport(timeout=wait.answer, idle_timeout=wait.silence)
        return self._transports[wait]

    def _connect(self, model: Model, info: ProviderInfo, credential: Credential) -> Provider:
        address = model.api_url or info.base_url or info.api_url
        given: dict[str, Any] = {"headers": info.headers, "transport": self._transport(info)}
        if address:
            given["base_url"] = address
        match model.npm:
            case "@ai-sdk/anthropic":
                from .anthropic import Anthropic

                bearer = "bearer" if credential.kind == "oauth" else "x-api-key"
                return Anthropic(credential.key, auth_header=bearer, **given)
            case "@ai-sdk/openai":
                from .openai_responses import OpenAIResponses

                return OpenAIResponses(credential.key, provider_id=info.id, **given)
            case "@ai-sdk/google":
                from .google import Google

                return Google(credential.key, provider_id=info.id, **given)
            case "@ai-sdk/amazon-bedrock":
                from .bedrock import Bedrock

                names = {"region": "region", "profile": "profile", "endpoint": "base_url"}
                given |= {names[name]: text for name in names if (text := info.text(name))}
                return Bedrock(credential.key or None, **given)
            case npm if npm in _NOT_SPOKEN:
                raise ModelError(f"{info.name} is reached over {npm}, which opensesh does not speak")
            case _ if not address:
                raise ModelError(f"where is {info.name}? Set provider.{info.id}.options.baseURL in opencode.json")
            case _:
                from .openai_chat import OpenAIChat

                counts = info.options.get("includeUsage") is not False
                return OpenAIChat(credential.key, provider_id=info.id, include_usage=counts, **given)


def _scripts_like(name: str) -> list[str]:
    """What someone who mistyped the name of a script may have meant: one that lies there, or the prompt itself."""
    folder = os.path.dirname(name)
    try:
        beside = [os.path.join(folder, each) for each in os.listdir(folder or ".")]
    except OSError:
        beside = []
    return [f"{SCRIPTED_PROVIDER}/{each}" for each in close_matches(name, [SCRIPTED_PROMPT, *beside], 3)]


def configured_timeouts(options: Mapping[str, Any]) -> Timeouts:
    """How long to wait for a provider, by its ``options`` in the configuration.

    ``timeout`` is for a whole answer, in milliseconds; where it is longer than silence is borne, so is the silence.
    ``false`` waits for ever.
    """
    from .transport import IDLE_TIMEOUT_SECONDS

    match options.get("timeout"):
        case False:
            return Timeouts(None, None)
        case int() | float() as given if given > 0 and given is not True:
            return Timeouts(given / 1000, max(given / 1000, IDLE_TIMEOUT_SECONDS))
        case _:
            return Timeouts(None, IDLE_TIMEOUT_SECONDS)
