"""Providers of models, their keys, and logging in to them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from msgspec import Struct

from ...engine.cancellation import run_in_thread_uncancellable
from ...errors import ProviderLoginError
from ...models.auth import store_entry
from ..config_documents import default_models, provider_documents
from ..operations import Call, Routes
from ..responses import RequestError, empty_response

if TYPE_CHECKING:
    from ...engine.engine import Engine
    from ...records import Document

routes = Routes()


class ConfiguredProviders(Struct, frozen=True):
    """The providers that can be used, and the default model of each."""

    providers: list[dict[str, Any]]
    default: dict[str, str]


class KnownProviders(Struct, frozen=True):
    """All providers, the default model of each, and the ids of those that can be used."""

    all: list[dict[str, Any]]
    default: dict[str, str]
    connected: list[str]


class ApiAuth(Struct, frozen=True, tag_field="type", tag="api"):
    """An API key."""

    key: str


class OAuth(Struct, frozen=True, tag_field="type", tag="oauth"):
    """Tokens of an account."""

    refresh: str
    access: str
    expires: float


class WellKnownAuth(Struct, frozen=True, tag_field="type", tag="wellknown"):
    """A token of an organisation, and the variable that it belongs to."""

    key: str
    token: str


Auth = ApiAuth | OAuth | WellKnownAuth


class LoginMethod(Struct, frozen=True):
    """The number of a way to log in, and the answers to its questions."""

    method: float
    inputs: dict[str, str] = {}


class LoginCode(Struct, frozen=True):
    """The number of a way to log in, and the code that the provider gave."""

    method: float
    code: str | None = None


class Login(Struct, frozen=True):
    """The address and the instructions for a login."""

    url: str
    method: Literal["auto", "code"]
    instructions: str


@routes.get("/config/providers", "config.providers", response=ConfiguredProviders)
async def list_configured_providers(call: Call) -> object:
    """List the providers that can be used, with their models. Keys are masked."""

    def read(engine: Engine) -> Document:
        providers = provider_documents(engine, connected_only=True)
        return {"providers": providers, "default": default_models(providers)}

    return await call.in_thread(read)


@routes.get("/provider", "provider.list", response=KnownProviders)
async def list_providers(call: Call) -> object:
    """List all providers of the catalogue and the configuration, with their models. Keys are masked."""

    def read(engine: Engine) -> Document:
        connected = [provider["id"] for provider in provider_documents(engine, connected_only=True)]
        everything = provider_documents(engine, connected_only=False)
        return {"all": everything, "default": default_models(everything), "connected": connected}

    return await call.in_thread(read)


@routes.put("/auth/{providerID}", "auth.set", response=bool, errors=(400,))
async def set_auth(call: Call, body: Auth) -> object:
    """Store the key of a provider in OpenCode's auth.json, which only its owner can read."""
    await run_in_thread_uncancellable(store_entry, call.parameters["providerID"], call.document)
    return True


@routes.delete("/auth/{providerID}", "auth.remove", response=bool, errors=(400,))
async def remove_auth(call: Call) -> object:
    """Remove the key of a provider from OpenCode's auth.json."""
    await run_in_thread_uncancellable(store_entry, call.parameters["providerID"], None)
    return True


@routes.get("/provider/auth", "provider.auth", response=dict[str, list[dict[str, Any]]])
async def list_auth_methods(call: Call) -> object:
    """List the ways to log in to each provider that plugins offer."""
    async with call.engine() as engine:
        methods = engine.components.provider_logins.methods
    return {provider_id: [method.document() for method in offered] for provider_id, offered in methods.items()}


@routes.post("/provider/{providerID}/oauth/authorize", "provider.oauth.authorize", response=Login, errors=(400,))
async def authorize(call: Call, body: LoginMethod) -> object:
    """Begin to log in to a provider with the method of that number. Nothing is answered if that is an API key."""
    async with call.engine() as engine:
        try:
            logins = engine.components.provider_logins
            number = int(body.method) if body.method.is_integer() else -1
            begun = await logins.authorize(call.parameters["providerID"], number, body.inputs)
        except ProviderLoginError as error:
            raise RequestError(400, error.reason, error.message, providerID=error.provider_id) from error
    return empty_response() if begun is None else Login(begun.url, begun.method, begun.instructions)


@routes.post("/provider/{providerID}/oauth/callback", "provider.oauth.callback", response=bool, errors=(400,))
async def finish_login(call: Call, body: LoginCode) -> object:
    """Finish logging in to a provider, and store its credentials in OpenCode's auth.json."""
    async with call.engine() as engine:
        try:
            await engine.components.provider_logins.finish(call.parameters["providerID"], body.code)
        except ProviderLoginError as error:
            raise RequestError(400, error.reason, error.message, providerID=error.provider_id) from error
    return True
