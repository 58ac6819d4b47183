"""Git worktrees of the project, in which agents work without touching the main checkout."""

from __future__ import annotations

import asyncio
import os
import re
import subprocess
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from ...engine.cancellation import run_in_thread_uncancellable
from ...project import register, resolve
from ...records import Document, as_list
from ...records.view import js_name
from ...sessions.slugs import new_slug
from ...storage import keys, paths
from ...workspace.git import git_environment
from ..operations import Call, Routes
from ..responses import RequestError

if TYPE_CHECKING:
    from ...engine.engine import Engine
    from ...project import ProjectLocation

routes = Routes()
_GIT_SECONDS = 300.0
_NAME_ATTEMPTS = 26


class WorktreeCreate(Struct, frozen=True, rename=js_name):
    """A name for the worktree, and a command to run in it."""

    name: str | None = None
    start_command: str | None = None


class WorktreeFolder(Struct, frozen=True):
    """The folder of a worktree."""

    directory: str


class Worktree(Struct, frozen=True):
    """A worktree."""

    name: str
    branch: str
    directory: str


@routes.get("/experimental/worktree", "worktree.list", response=list[str])
async def list_worktrees(call: Call) -> object:
    """List the folders of the worktrees that were created here."""
    return await call.in_thread(lambda engine: _worktrees(engine.location))


@routes.post("/experimental/worktree", "worktree.create", response=Worktree, errors=(400,))
async def create_worktree(call: Call, body: WorktreeCreate | None = None) -> object:
    """Create a worktree with a branch of its own, and run a command in it."""
    start_command = body.start_command if body is not None else None
    async with call.engine() as engine:
        location, wanted_name = engine.location, (body.name if body is not None else None) or ""
        if location.vcs != "git" or location.worktree == "/":
            raise RequestError(400, "WorktreeNotGitError", "worktrees need a git repository")
        name = await _unused_name(location, re.sub(r"[^a-z0-9]+", "-", wanted_name.lower()).strip("-")[:60])
        branch, folder = f"opencode/{name}", os.path.join(_folder(location), name)
        await _git(location, "worktree", "add", "-b", branch, folder)
        await run_in_thread_uncancellable(_remember, engine, folder)
        if start_command:
            process = await asyncio.create_subprocess_exec("bash", "-lc", start_command, cwd=folder)
            if await process.wait():
                message = {"message": f"the start command ended with {process.returncode}"}
                call.state.publish("worktree.failed", message, folder)
                raise RequestError(400, "WorktreeStartCommandFailedError", message["message"])
        call.state.publish("worktree.ready", {"name": name, "branch": branch}, folder)
        return {"name": name, "branch": branch, "directory": folder}


@routes.delete("/experimental/worktree", "worktree.remove", response=bool, errors=(400,))
async def remove_worktree(call: Call, body: WorktreeFolder) -> object:
    """Remove a worktree that was created here, and its branch."""
    async with call.engine() as engine:
        if not os.path.lexists(body.directory.replace("\0", "")):
            return True  # as in OpenCode
        folder = await _known(engine.location, body.directory, "WorktreeRemoveFailedError")
        branch = await _git(engine.location, "branch", "--show-current", cwd=folder)
        await call.state.pool.close(folder)
        await _git(engine.location, "worktree", "remove", "--force", folder)
        if branch.startswith("opencode/"):
            await _git(engine.location, "branch", "-D", branch)
    return True


@routes.post("/experimental/worktree/reset", "worktree.reset", response=bool, errors=(400,))
async def reset_worktree(call: Call, body: WorktreeFolder) -> object:
    """Set a worktree that was created here back to the branch of the main checkout."""
    async with call.engine() as engine:
        folder = await _known(engine.location, body.directory, "WorktreeResetFailedError")
        head = await _git(engine.location, "rev-parse", "HEAD", cwd=engine.location.worktree)
        await _git(engine.location, "reset", "--hard", head, cwd=folder)
        await _git(engine.location, "clean", "-fdx", cwd=folder)
    return True


def _folder(location: ProjectLocation) -> str:
    return os.path.join(paths.data(), "worktree", location.id)


def _worktrees(location: ProjectLocation) -> list[str]:
    folder = _folder(location)
    try:
        names = sorted(os.listdir(folder))
    except OSError:
        return []
    return [path for name in names if os.path.exists(os.path.join(path := os.path.join(folder, name), ".git"))]


async def _unused_name(location: ProjectLocation, base: str) -> str:
    """Return ``base``, with two words after it if a worktree or a branch has that name; without a base, two words."""
    for attempt in range(_NAME_ATTEMPTS):
        name = base if base and not attempt else "-".join(filter(None, (base, new_slug())))
        is_used = os.path.lexists(os.path.join(_folder(location), name))
        if not is_used and not await _git(location, "branch", "--list", f"opencode/{name}"):
            return name
    raise RequestError(400, "WorktreeNameGenerationFailedError", "every name that was tried is used")


async def _known(location: ProjectLocation, directory: str, error_name: str) -> str:
    """Return the folder of a worktree that was created here; no other one is touched."""
    known = await run_in_thread_uncancellable(_worktrees, location)
    folder = os.path.realpath(directory) if "\0" not in directory else ""
    for path in known:
        if os.path.realpath(path) == folder:
            return path
    raise RequestError(400, error_name, f"{directory} is not a worktree that was created here")


def _remember(engine: Engine, folder: str) -> None:
    """Add a worktree to the project's record, as OpenCode does."""
    location = resolve(folder)

    def edit(record: Document) -> None:
        sandboxes: list[Any] = as_list(record.get("sandboxes")) or []
        if location.sandbox not in sandboxes:
            record["sandboxes"] = [*sandboxes, location.sandbox]

    register(engine.sessions.store, engine.location)  # there may have been no session yet
    engine.sessions.store.update(keys.project(engine.location.id), edit)


async def _git(location: ProjectLocation, *arguments: str, cwd: str | None = None) -> str:
    def run() -> str:
        done = subprocess.run(
            ["git", *arguments],
            cwd=cwd or location.worktree,
            env=git_environment(isolated=False),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            check=False,
            timeout=_GIT_SECONDS,
        )
        if done.returncode:
            reason = os.fsdecode(done.stderr).strip().rpartition("\n")[2]
            raise RequestError(400, "WorktreeCreateFailedError", f"git {arguments[0]} failed: {reason}")
        return os.fsdecode(done.stdout).strip()

    return await run_in_thread_uncancellable(run)
