"""Providers of models, and their keys."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from msgspec import Struct

from ...engine.cancellation import run_in_thread_uncancellable
from ..config_documents import default_models, provider_documents
from ..operations import Call, Routes

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


@routes.get("/config/providers", "config.providers", response=ConfiguredProviders)
async def list_configured_providers(call: Call) -> object:
    """List the providers that can be used, with their models. Keys are masked."""

    def read(engine: Engine) -> Document:
        providers = provider_documents(engine, connected_only=True)
        return {"providers": providers, "default": default_models(providers)}

    async with call.engine() as engine:
        return await run_in_thread_uncancellable(read, engine)


@routes.get("/provider", "provider.list", response=KnownProviders)
async def list_providers(call: Call) -> object:
    """List all providers of the catalogue and the configuration, with their models. Keys are masked."""

    def read(engine: Engine) -> Document:
        connected = [provider["id"] for provider in provider_documents(engine, connected_only=True)]
        everything = provider_documents(engine, connected_only=False)
        return {"all": everything, "default": default_models(everything), "connected": connected}

    async with call.engine() as engine:
        return await run_in_thread_uncancellable(read, engine)
