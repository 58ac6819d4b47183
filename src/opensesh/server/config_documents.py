"""Configuration, agents, commands, skills, providers and models as OpenCode's API shows them, without secrets."""

from __future__ import annotations

from functools import cache
from importlib import resources
from typing import TYPE_CHECKING, Any

import msgspec

from ..config import commands, skills
from ..models.choice import available_providers, in_order_of_preference
from ..models.model import cost_document, public_document
from ..records import Document, as_list, as_object, document_of, object_at
from ..redaction import Redactor, flags_before, is_secret_setting, without_named

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ..config import Agent, Command, Config, Skill
    from ..engine.engine import Engine
    from ..models.auth import Credential
    from ..models.model import Model, ProviderInfo

MASK = "********"
"""Shown in place of a secret. Where a client sends it back, the setting stays as it is."""
_WITH_ADDRESSES = (("mcp",), ("provider",), ("lsp",), ("formatter",), ("enterprise",), ("instructions",))
"""Sections with addresses and commands, in which a secret may be a part of a text. They have no prompts, in which
something that looks like a key would hide the whole text."""
_SOURCES = {"environment": "env", "auth.json": "api", "plugin": "custom", "config": "config"}


@cache
def default_keybinds() -> dict[str, str]:
    """Return OpenCode's default key bindings. The terminal client of 1.1.65 has none of its own."""
    return msgspec.json.decode(resources.files("opensesh.server").joinpath("keybinds.json").read_bytes())


def config_document(config: Config, *, effective: bool = True) -> Document:
    """Return a configuration; ``effective`` adds what OpenCode adds when it is in use."""
    document: Document = masked(config.document)
    for name, agent in object_at(document, "agent").items():
        document["agent"][name] = agent | {
            "options": object_at(agent, "options"),
            "permission": object_at(agent, "permission"),
        }
    if effective:
        document.setdefault("mode", {})
        document.setdefault("plugin", [])
        document["keybinds"] = default_keybinds() | object_at(document, "keybinds")
    elif not (origin := config.origin(("username",))) or not origin.line:
        document.pop("username", None)
    return document


def masked(value: Any, *path: str) -> Any:
    """Return a copy of a setting, to which the names ``path`` lead, with :data:`MASK` in place of secrets."""
    if (members := as_object(value)) is not None:
        return {name: masked(item, *path, name) for name, item in members.items()}
    if (items := as_list(value)) is not None:
        flags = flags_before(items)
        return [masked(item, *path, *([flag] if flag else [])) for flag, item in zip(flags, items, strict=True)]
    if not isinstance(value, str) or not value:
        return value
    is_secret = is_secret_setting(path) or (path[:1] in _WITH_ADDRESSES and _has_secret(value))
    return MASK if is_secret else value


def _has_secret(value: str) -> bool:
    return without_named(value, MASK) != value or Redactor().text(value) != value


def agent_document(agent: Agent) -> Document:
    """Return an agent."""
    document = document_of(agent)
    if not agent.hidden:
        del document["hidden"]
    elif agent.native:
        document.pop("description", None)  # OpenCode's hidden agents have none
    document["options"] = masked(agent.options)
    return document


def command_documents(config: Config, prompts: Iterable[Command]) -> list[Document]:
    """Return the commands: built-in ones, those of the configuration, prompts of MCP servers, and skills."""
    listed = [*commands(config, skills(config).values()).values(), *prompts]
    return [document_of(command) for command in sorted(listed, key=lambda command: command.source == "skill")]


def skill_documents(config: Config) -> list[Document]:
    """Return the skills."""
    return [skill_document(skill) for skill in skills(config).values()]


def skill_document(skill: Skill) -> Document:
    """Return a skill."""
    return {"name": skill.name, "description": skill.description, "location": skill.location, "content": skill.content}


def provider_documents(engine: Engine, *, connected_only: bool) -> list[Document]:
    """Return the providers with their models: those that can be used, or all of the catalogue."""
    models = engine.components.models
    catalogue, keyring = models.catalogue, models.keyring
    infos = available_providers(catalogue, keyring) if connected_only else catalogue.providers()
    return [_provider(engine, info, keyring.credential(info)) for info in infos]


def default_models(providers: list[Document]) -> dict[str, str]:
    """Return the best model of each provider."""
    return {provider["id"]: next(iter(provider["models"])) for provider in providers if provider["models"]}


def _provider(engine: Engine, info: ProviderInfo, credential: Credential | None) -> Document:
    models = engine.components.models.catalogue.models(info.id)
    kind = credential.source.kind if credential is not None else "none"
    source = "config" if info.configured and kind in ("config", "none") else _SOURCES.get(kind, "custom")
    options = masked(info.options)
    if credential is not None and credential.source.kind == "config" and credential.secret is not None:
        options = {"apiKey": MASK} | options
    return {
        "id": info.id,
        "source": source,
        "name": info.name,
        "env": list(info.env),
        "options": options,
        "models": {
            model.id: model_document(model, info.options.get("baseURL"))
            for model in in_order_of_preference(models.values())
        },
    }


def model_document(model: Model, base_url: object) -> Document:
    """Return a model of a provider with this option ``baseURL``, which is not repeated as the model's own address."""
    document = public_document(model)
    if model.limit.input:
        document["limit"]["input"] = model.limit.input
    for tier in model.price.tiers if model.price is not None else ():
        if tier.above == 200_000:
            document["cost"]["experimentalOver200K"] = cost_document(tier.rates)
    interleaved = model.capabilities.interleaved
    document["capabilities"]["interleaved"] = {"field": interleaved} if interleaved else False
    has_address = bool(model.api_url) and model.api_url != base_url
    return {
        "id": model.id,
        "providerID": model.provider_id,
        "name": document["name"],
        "family": model.family,
        "api": {"id": model.wire_id, "npm": model.npm, **({"url": model.api_url} if has_address else {})},
        "status": model.status,
        "headers": masked(model.headers, "headers"),
        "options": masked(model.options),
        **document,
        "variants": masked(model.variants),
    }
