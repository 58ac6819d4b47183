"""Configuration, agents, commands, skills and tools."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Struct

from ...config import Agent as AgentInfo
from ...config import Command as CommandInfo
from ...config import ConfigSettings, load
from ...config import Skill as SkillInfo
from ...config.source import Source
from ...config.validation import check, unknown_keys
from ...engine.cancellation import run_in_thread_uncancellable
from ...records import Document, as_list, as_object, merged
from ...storage import paths
from ...storage.disk import Disk, read_or_empty
from ...tools.tool_registry import description_values, to_spec
from ..config_documents import (
    MASK,
    agent_document,
    command_documents,
    config_document,
    default_keybinds,
    skill_documents,
)
from ..operations import Call, Routes
from ..responses import RequestError, validation_response

if TYPE_CHECKING:
    from starlette.responses import Response


routes = Routes()
_NAMES = ("opencode.jsonc", "opencode.json")


class ToolListQuery(Struct, frozen=True):
    """The model that the tools are offered to."""

    provider: str
    model: str


class ToolListItem(Struct, frozen=True):
    """A tool as a model is offered it."""

    id: str
    description: str
    parameters: Any


@routes.get("/config", "config.get", response=ConfigSettings)
async def get_config(call: Call) -> object:
    """Get the configuration of the directory. Keys and tokens in it are masked."""
    async with call.engine() as engine:
        return config_document(engine.config)


@routes.get("/global/config", "global.config.get", response=ConfigSettings)
async def get_global_config(call: Call) -> object:
    """Get the configuration of the user, without that of a project. Keys and tokens in it are masked."""
    return await run_in_thread_uncancellable(_global_config)


@routes.patch("/config", "config.update", response=ConfigSettings, errors=(400, 409))
async def update_config(call: Call, body: ConfigSettings) -> object:
    """Change settings in the opencode.json of the directory, which is then closed and opened again."""
    if (refusal := await _update_file(call, call.directory)) is not None:
        return refusal
    await call.state.dispose(call.directory)
    return _completed(call.document)


@routes.patch("/global/config", "global.config.update", response=ConfigSettings, errors=(400, 409))
async def update_global_config(call: Call, body: ConfigSettings) -> object:
    """Change settings in the user's opencode.json; all directories are then closed and opened again."""
    if (refusal := await _update_file(call, paths.config())) is not None:
        return refusal
    await call.state.dispose_all()
    return await run_in_thread_uncancellable(_global_config)


@routes.get("/agent", "app.agents", response=list[AgentInfo])
async def list_agents(call: Call) -> object:
    """List the agents, the default one first."""
    async with call.engine() as engine:
        return [agent_document(agent) for agent in engine.components.agents.by_name.values()]


@routes.get("/command", "command.list", response=list[CommandInfo])
async def list_commands(call: Call) -> object:
    """List the commands: built-in ones, those of the configuration and of MCP servers, and skills."""
    async with call.engine() as engine:
        prompts = await engine.components.mcp.prompts()
        return await run_in_thread_uncancellable(command_documents, engine.config, prompts)


@routes.get("/skill", "app.skills", response=list[SkillInfo])
async def list_skills(call: Call) -> object:
    """List the skills."""
    return await call.in_thread(lambda engine: skill_documents(engine.config))


@routes.get("/experimental/tool/ids", "tool.ids", response=list[str], errors=(400,))
async def list_tool_ids(call: Call) -> object:
    """List the names of the tools."""
    async with call.engine() as engine:
        components = engine.components
        return list(components.tool_sources.registry(await components.mcp.tools()).tools)


@routes.get("/experimental/tool", "tool.list", response=list[ToolListItem], errors=(400,))
async def list_tools(call: Call, query: ToolListQuery) -> object:
    """List the tools that a model is offered, with their schemas."""
    async with call.engine() as engine:
        components = engine.components
        registry = components.tool_sources.registry(await components.mcp.tools())
        values = description_values(engine.location.directory)
        specs = [to_spec(tool, values) for tool in registry.offered(query.model, query.provider)]
        return [{"id": one.name, "description": one.description, "parameters": one.parameters} for one in specs]


def _global_config() -> Document:
    environ = {**os.environ, "OPENCODE_DISABLE_PROJECT_CONFIG": "1"}
    return config_document(load("/", "/", environ=environ), effective=False)


def _completed(settings: Document) -> Document:
    """Return the sent settings with the defaults that OpenCode adds to them when it reads them."""
    completed = dict(settings)
    if (agents := as_object(settings.get("agent"))) is not None:
        defaults: Document = {"options": Document(), "permission": Document()}
        completed["agent"] = {name: defaults | (as_object(agent) or {}) for name, agent in agents.items()}
    if (keybinds := as_object(settings.get("keybinds"))) is not None:
        completed["keybinds"] = default_keybinds() | keybinds
    if isinstance(action := settings.get("permission"), str):
        completed["permission"] = {"*": action}
    return completed


async def _update_file(call: Call, folder: str) -> Response | None:
    """Change settings in the file of a folder; return an error response if one of them is unknown."""
    try:
        await run_in_thread_uncancellable(update_config_file, folder, call.document)
    except msgspec.ValidationError as error:
        return validation_response(error, call.document)
    return None


def update_config_file(folder: str, changes: Document) -> None:
    """Merge settings into the configuration file of a folder: ``opencode.json``, unless there is another.

    Masked secrets stay as they are. A file with comments is not changed, since they would be lost, and neither is one
    that would become invalid. An unknown setting raises :class:`msgspec.ValidationError`.
    """
    path = next((path for name in _NAMES if os.path.exists(path := os.path.join(folder, name))), None)
    path = path or os.path.join(folder, "opencode.json")
    content = read_or_empty(path)
    try:
        existing = as_object(json.loads(content)) if content.strip() else {}
    except ValueError:
        existing = None
    if existing is None:
        message = f"{path} has comments or is not valid JSON, and was not changed; edit it by hand"
        raise RequestError(409, "ConfigFileError", message)
    document = merged(existing, _without_masks(changes))
    for unknown in unknown_keys(check(document, ConfigSettings, Source(path, "")), document):
        if len(unknown.path) == 1 and unknown.path[0] in changes:
            raise msgspec.ValidationError(f"{unknown.reason} - at `$.{unknown.path[0]}`")
    mode = os.stat(path).st_mode & 0o777 if os.path.exists(path) else 0o644
    Disk().replace(path, json.dumps(document, indent=2, ensure_ascii=False).encode() + b"\n")
    os.chmod(path, mode)


def _without_masks(value: Any) -> Any:
    if (members := as_object(value)) is not None:
        shown = {key: item for key, item in members.items() if item != MASK and MASK not in (as_list(item) or ())}
        return {key: _without_masks(item) for key, item in shown.items()}
    if (items := as_list(value)) is not None:
        return [_without_masks(item) for item in items]
    return value
