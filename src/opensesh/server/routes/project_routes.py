"""Projects, paths and version control."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

from ...engine.cancellation import run_in_thread_uncancellable
from ...events import ProjectUpdated
from ...project import current_branch, register
from ...records import Document, Project, as_object, object_at
from ...storage import keys, paths
from ..operations import Call, Routes

if TYPE_CHECKING:
    from ...engine.engine import Engine

routes = Routes()


class ProjectIcon(Struct, frozen=True):
    """The icon of a project in clients."""

    url: str | None = None
    override: str | None = None
    color: str | None = None


class ProjectCommands(Struct, frozen=True):
    """Scripts of the project."""

    start: str | None = None


class ProjectUpdate(Struct, frozen=True):
    """Changes to a project; absent fields stay as they are."""

    name: str | None = None
    icon: ProjectIcon | None = None
    commands: ProjectCommands | None = None


class PathInfo(Struct, frozen=True):
    """The folders of OpenCode and of the directory."""

    home: str
    state: str
    config: str
    worktree: str
    directory: str


class VcsInfo(Struct, frozen=True):
    """The branch that is checked out; absent outside version control."""

    branch: str | None = None


@routes.get("/project", "project.list", response=list[Project])
async def list_projects(call: Call) -> object:
    """List the projects that have been opened."""

    def read(engine: Engine) -> list[Document]:
        register(engine.sessions.store, engine.location)
        return [record for _, record in engine.sessions.store.scan(("project",)) if as_object(record) is not None]

    return await call.in_thread(read)


@routes.get("/project/current", "project.current", response=Project)
async def current_project(call: Call) -> object:
    """Get the project of the directory."""
    return await call.in_thread(lambda engine: register(engine.sessions.store, engine.location).document)


@routes.patch("/project/{projectID}", "project.update", response=Project, errors=(400, 404))
async def update_project(call: Call, body: ProjectUpdate) -> object:
    """Change the name, the icon or the commands of a project."""

    def edit(record: Document) -> None:
        for field in ("name", "icon", "commands"):
            change = call.document.get(field)
            if change is None:
                continue
            inner = as_object(change)
            record[field] = change if inner is None else object_at(record, field) | inner

    async with call.engine() as engine:
        key = keys.project(call.parameters["projectID"])
        record = await run_in_thread_uncancellable(engine.sessions.store.update, key, edit)
        call.state.bus.publish(ProjectUpdated(info=record))
        return record


@routes.get("/path", "path.get", response=PathInfo)
async def get_paths(call: Call) -> object:
    """Get the folders of OpenCode and of the directory."""
    async with call.engine() as engine:
        location = engine.location
        return {
            "home": paths.home(),
            "state": paths.opencode_state(),
            "config": paths.config(),
            "worktree": location.sandbox,
            "directory": location.directory,
        }


@routes.get("/vcs", "vcs.get", response=VcsInfo)
async def get_vcs(call: Call) -> object:
    """Get the branch that is checked out in the directory."""
    branch = await call.in_thread(lambda engine: current_branch(engine.location))
    return {"branch": branch} if branch else {}
