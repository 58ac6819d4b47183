"""From a model to something that can be asked: the right adapter, with its address, its headers and its key."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..errors import AuthFailed, ModelError, UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from .auth import Credential, Keyring
    from .catalogue import Catalogue, ProviderInfo
    from .model import Model
    from .request import Provider
    from .transport import Transport

SCRIPTED = "scripted"
_NOT_SPOKEN = ("@ai-sdk/google-vertex", "@ai-sdk/google-vertex/anthropic", "@ai-sdk/azure", "@ai-sdk/cohere")


class Connections:
    """One adapter a provider and key, kept so that connections are used again. Close it when done."""

    def __init__(
        self, catalogue: Catalogue, keyring: Keyring, *, scripts: Mapping[str, Provider] | None = None
    ) -> None:
        """``scripts`` are scripted models by name, for tests; others are opened by their path."""
        self._catalogue = catalogue
        self._keyring = keyring
        self._open: dict[tuple[str, ...], Provider] = {}
        self._scripts: dict[str, Provider] = dict(scripts or {})
        self._transport: Transport | None = None

    def provider(self, model: Model) -> Provider:
        """What to ask for ``model``; :class:`AuthFailed` says where to put a key that is needed and not there."""
        if model.provider_id == SCRIPTED:
            return self._scripted(model.id)
        info = self._catalogue.provider(model.provider_id)
        credential = self._keyring.credential(info)
        if credential is None:
            names = " or ".join(info.env) or f"{info.id.upper()}_API_KEY"
            raise AuthFailed(f"there is no key for {info.name}: set {names}, or log in with `opencode auth login`")
        key = (model.provider_id, model.npm, model.api_url, credential.key)
        if key not in self._open:
            self._open[key] = self._connect(model, info, credential)
        return self._open[key]

    async def aclose(self) -> None:
        """Close every connection."""
        self._open.clear()
        if self._transport is not None:
            await self._transport.aclose()
            self._transport = None

    def _scripted(self, name: str) -> Provider:
        if name not in self._scripts:
            from .scripted import ScriptedModel

            try:
                self._scripts[name] = ScriptedModel.named(name)
            except OSError as error:
                raise UsageError(f"the script {name} cannot be read: {error.strerror or error}") from error
        return self._scripts[name]

    def _connect(self, model: Model, info: ProviderInfo, credential: Credential) -> Provider:
        from .transport import Transport

        self._transport = self._transport or Transport()
        address = model.api_url or info.base_url or info.api_url
        given: dict[str, Any] = {"headers": info.headers, "transport": self._transport}
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

                place = {name: info.options[name] for name in ("region", "profile") if info.options.get(name)}
                return Bedrock(credential.key or None, **given, **place)
            case npm if npm in _NOT_SPOKEN:
                raise ModelError(f"{info.name} is reached over {npm}, which opensesh does not speak")
            case _ if not address:
                raise ModelError(f"where is {info.name}? Set provider.{info.id}.options.baseURL in opencode.json")
            case _:
                from .openai_chat import OpenAIChat

                return OpenAIChat(credential.key, provider_id=info.id, **given)
