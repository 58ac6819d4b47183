"""Operations that OpenCode 1.18's programs call beside the API of 1.1.65. Its other additions do not exist here."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from msgspec import Struct

from ...config.skills import builtin_skill
from ...engine.cancellation import run_in_thread_uncancellable
from ...tools.file_search import files
from ..config_documents import command_documents, provider_documents, skill_document, skill_documents
from ..newer_agents import newer_agent
from ..operations import Call, Routes, count_of
from ..path_ranking import rank_paths
from .file_routes import changed_files

if TYPE_CHECKING:
    from ...engine.engine import Engine
    from ...project import ProjectLocation
    from ...records import Document

routes = Routes()


class LocatedList(Struct, frozen=True):
    """A list, and the location that it is about."""

    location: dict[str, Any]
    data: list[dict[str, Any]]


class PathQuery(Struct, frozen=True):
    """Letters of a path in order; two may be wrong."""

    query: str = ""
    limit: float = 20


@routes.get("/experimental/capabilities", "experimental.capabilities.get", response=dict[str, Any])
async def capabilities(call: Call) -> object:
    """Get the optional features of the server."""
    return {"backgroundSubagents": False}


@routes.get("/experimental/console", "experimental.console.get", response=dict[str, Any])
async def console(call: Call) -> object:
    """Get the state of OpenCode's console, which opensesh does not have."""
    return {"consoleManagedProviders": [], "switchableOrgCount": 0}


@routes.get("/experimental/workspace", "experimental.workspace.list", response=list[dict[str, Any]])
async def list_workspaces(call: Call) -> object:
    """List remote workspaces; opensesh has none."""
    return []


@routes.get("/experimental/workspace/status", "experimental.workspace.status", response=list[dict[str, Any]])
async def workspace_status(call: Call) -> object:
    """Get the state of remote workspaces; opensesh has none."""
    return []


@routes.get("/project/{projectID}/directories", "project.directories", response=list[dict[str, str]])
async def project_directories(call: Call) -> object:
    """List the checkouts of the project."""
    async with call.engine() as engine:
        return [{"directory": engine.location.worktree}]


@routes.get("/api/location", "v2.location", response=dict[str, Any])
async def get_location(call: Call) -> object:
    """Get the directory and its project."""
    async with call.engine() as engine:
        return _location(engine.location)


@routes.get("/api/agent", "v2.agent.list", response=LocatedList)
async def list_agents(call: Call) -> object:
    """List the agents."""
    async with call.engine() as engine:
        agents = engine.components.agents.by_name.values()
        return _located(engine, [newer_agent(agent, engine.config) for agent in agents])


@routes.get("/api/command", "v2.command.list", response=LocatedList)
async def list_commands(call: Call) -> object:
    """List the commands."""
    async with call.engine() as engine:
        prompts = await engine.components.mcp.prompts()
        documents = await run_in_thread_uncancellable(command_documents, engine.config, prompts)
        shown = [{key: one[key] for key in one if key not in ("source", "hints")} for one in documents]
        return _located(engine, shown)


@routes.get("/api/skill", "v2.skill.list", response=LocatedList)
async def list_skills(call: Call) -> object:
    """List the skills, the built-in one first."""
    async with call.engine() as engine:
        configured = await run_in_thread_uncancellable(skill_documents, engine.config)
        return _located(engine, [skill_document(builtin_skill()), *configured])


@routes.get("/api/provider", "v2.provider.list", response=LocatedList)
async def list_providers(call: Call) -> object:
    """List the providers that can be used."""
    async with call.engine() as engine:
        providers = await run_in_thread_uncancellable(provider_documents, engine, connected_only=True)
        shown = [{key: one[key] for key in ("id", "name", "source", "env")} for one in providers]
        return _located(engine, shown)


@routes.get("/api/model", "v2.model.list", response=LocatedList)
async def list_models(call: Call) -> object:
    """List the models that can be used."""
    async with call.engine() as engine:
        providers = await run_in_thread_uncancellable(provider_documents, engine, connected_only=True)
        return _located(engine, [model for provider in providers for model in provider["models"].values()])


@routes.get("/api/integration", "v2.integration.list", response=LocatedList)
async def list_integrations(call: Call) -> object:
    """List OpenCode's integrations; opensesh has none."""
    async with call.engine() as engine:
        return _located(engine, [])


@routes.get("/api/reference", "v2.reference.list", response=LocatedList)
async def list_references(call: Call) -> object:
    """List OpenCode's references; opensesh has none."""
    async with call.engine() as engine:
        return _located(engine, [])


@routes.get("/api/fs/find", "v2.fs.find", response=LocatedList)
async def find_in_project(call: Call, query: PathQuery) -> object:
    """Search for files and folders by name."""
    async with call.engine() as engine:
        limit = min(max(count_of(query.limit), 1), 200)
        names = await files(engine.location.directory)

        def search() -> list[str]:
            return rank_paths(query.query, names, changed_files(engine.location))[:limit]

        paths = await run_in_thread_uncancellable(search)
        return _located(
            engine, [{"path": path, "type": "directory" if path.endswith("/") else "file"} for path in paths]
        )


def _located(engine: Engine, data: list[Document]) -> Document:
    return {"location": _location(engine.location), "data": data}


def _location(location: ProjectLocation) -> Document:
    return {
        "directory": location.directory,
        "project": {"id": location.id, "directory": location.worktree},
    }
