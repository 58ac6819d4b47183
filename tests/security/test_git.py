"""Repositories whose own configuration is hostile, as in an archive that was unpacked: no program of theirs may run."""

from __future__ import annotations

import asyncio
import os
import subprocess
from pathlib import Path

import pytest

from opensesh.project import current_branch, other_ids, resolve
from opensesh.storage import project_ids
from opensesh.storage.memory import Memory
from opensesh.storage.project_ids import GitCommand, project_id
from opensesh.storage.protocol import Conventions
from opensesh.tools import file_search
from opensesh.tools.glob import GlobTool
from opensesh.tools.grep import GrepTool
from opensesh.tools.path_access import is_inside
from opensesh.workspace.repository import repo_settings
from opensesh.workspace.snapshots import tracked_files

from ..engine.harness import open_harness
from ..server.serving import serving
from ..tools.bench import Bench

HOOKS = ("post-checkout", "post-index-change", "pre-commit", "reference-transaction")


def git(folder: Path, *arguments: str) -> None:
    identity = ("-c", "user.name=a", "-c", "user.email=a@b")
    subprocess.run(["git", *identity, *arguments], cwd=folder, check=True, capture_output=True)


@pytest.fixture
def evidence(tmp_path: Path) -> Path:
    """The folder in which every program of the repository leaves a file."""
    (tmp_path / "evidence").mkdir()
    return tmp_path / "evidence"


@pytest.fixture
def hostile(tmp_path: Path, evidence: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A repository in which each setting that names a program names one."""
    project = tmp_path / "project"
    project.mkdir()
    git(project, "init", "-q")
    (project / "a.txt").write_text("one\n")
    (project / ".gitattributes").write_text("* filter=x=y diff=x=y merge=x=y\n")
    git(project, "add", "a.txt")
    git(project, "commit", "-qm", "x")
    (project / "hooks").mkdir()
    for name in HOOKS:
        (project / "hooks" / name).write_text(f"#!/bin/sh\ntouch {evidence}/{name}\n")
        (project / "hooks" / name).chmod(0o755)
    programs = {
        **{f"core.{name}": name for name in ("fsmonitor", "pager", "sshCommand", "editor", "alternateRefsCommand")},
        "diff.external": "external",
        "diff.x=y.textconv": "textconv",
        "diff.x=y.command": "command",
        "filter.x=y.clean": "clean",
        "filter.x=y.smudge": "smudge",
        "remote.origin.uploadpack": "uploadpack",
    }
    included = tmp_path / "project" / "included"
    for setting, name in programs.items():
        git(project, "config", "--file", str(included), setting, f"touch {evidence}/{name}; cat")
    settings = {
        "include.path": "../included",
        "core.hooksPath": "hooks",
        "core.repositoryformatversion": "1",
        "extensions.partialClone": "origin",
        "remote.origin.promisor": "true",
        "remote.origin.url": f"ext::sh -c touch% {evidence}/transport",
        "protocol.ext.allow": "always",
    }
    for setting, value in settings.items():
        git(project, "config", setting, value)
    # An object that is missing, and that git would fetch.
    (project / ".git" / "refs" / "heads" / "gone").write_text("1" * 40 + "\n")
    (project / "a.txt").write_text("one\ntwo\n")
    (project / "new.txt").write_text("three\n")
    monkeypatch.chdir(project)
    monkeypatch.setattr(file_search, "ripgrep", lambda: None)
    return project


def test_git_starts_no_program_of_a_repository_that_identifies_a_project(hostile: Path, evidence: Path) -> None:
    location = resolve(hostile)
    current_branch(location)
    other_ids(location)
    project_id(str(hostile))
    assert os.listdir(evidence) == []


async def test_git_starts_no_program_of_a_repository_whose_files_the_server_shows(
    hostile: Path, evidence: Path
) -> None:
    (hostile / ".git" / "refs" / "heads" / "gone").unlink()
    async with serving(hostile) as client:
        status = await client.get("/file/status")
        assert {"path": "a.txt", "added": 1, "removed": 0, "status": "modified"} in status
        assert "+two" in (await client.get("/file/content?path=a.txt"))["diff"]
        assert await client.get("/file?path=.")
    assert os.listdir(evidence) == []


async def test_git_starts_no_program_of_a_repository_within_the_one_whose_files_the_server_shows(
    tmp_path: Path, evidence: Path
) -> None:
    project = tmp_path / "outer"
    inner = project / "inner"
    inner.mkdir(parents=True)
    for folder in (project, inner):
        git(folder, "init", "-q")
    (inner / ".gitattributes").write_text("* filter=x\n")
    (inner / "a.txt").write_text("one\n")
    for folder in (inner, project):
        git(folder, "add", ".")
        git(folder, "commit", "-qm", "x")
    git(inner, "config", "filter.x.clean", f"touch {evidence}/clean; cat")
    (inner / "a.txt").write_text("two\n")
    git(project, "diff", "HEAD")
    assert os.listdir(evidence) == ["clean"], "git itself starts it"
    (evidence / "clean").unlink()
    (inner / "a.txt").write_text("three\n")
    (project / "new.txt").write_text("x")
    async with serving(project) as client:
        assert [entry["path"] for entry in await client.get("/file/status")] == ["new.txt"]
        assert (await client.get("/file/content?path=inner/a.txt"))["content"] == "three"
    assert os.listdir(evidence) == []


async def test_git_starts_no_program_of_a_repository_that_tools_search(hostile: Path, evidence: Path) -> None:
    bench = Bench(hostile)
    assert "new.txt" in (await bench.run(GlobTool(), pattern="*.txt")).output
    assert "Line 2: two" in (await bench.run(GrepTool(), pattern="two")).output
    assert tracked_files(str(hostile), ["a.txt", "new.txt"]) == {"a.txt"}
    repo_settings(str(hostile))
    assert os.listdir(evidence) == []


async def test_git_starts_no_program_of_a_repository_in_which_a_session_runs(hostile: Path, evidence: Path) -> None:
    (hostile / ".git" / "refs" / "heads" / "gone").unlink()  # with it, the project has no snapshots
    calls = ['write {"filePath":"b.txt","content":"x"}', 'bash {"command":"git status; git log -p; git diff"}']
    async with open_harness("\n---\n".join([*(f"CALL {call}" for call in calls), "SAY end"])) as harness:
        outcome = await harness.ask()
        assert outcome.kind == "answered"
        await harness.engine.diff(harness.session)
        prompt = harness.messages()[0]
        await harness.engine.revert(harness.session, prompt.info["id"])
    assert not (hostile / "b.txt").exists()
    assert os.listdir(evidence) == []


@pytest.mark.parametrize("place", ["../home", "/", "../.."])
def test_a_repository_does_not_make_another_folder_a_part_of_its_project(tmp_path: Path, place: str) -> None:
    home = tmp_path / "home"
    home.mkdir()
    project = tmp_path / "project"
    project.mkdir()
    git(project, "init", "-q")
    git(project, "commit", "-q", "--allow-empty", "-m", "x")
    git(project, "config", "core.worktree", place if place == "/" else str((project / ".git" / place).resolve()))
    location = resolve(project)
    assert (location.sandbox, location.vcs) == (str(project), "git")
    assert not is_inside(Bench(project, Path(location.sandbox)), os.path.realpath(home / "secret"))


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() != 0, reason="only root can give a folder away")
def test_a_repository_of_another_user_around_a_directory_is_not_its_project(tmp_path: Path) -> None:
    own = tmp_path / "work"
    own.mkdir()
    git(tmp_path, "init", "-q")
    git(tmp_path, "commit", "-q", "--allow-empty", "-m", "x")
    (tmp_path / ".git" / "opencode").write_text("an id of its choice")
    for path in (tmp_path / ".git", tmp_path):
        os.chown(path, 1234, 1234)
    location = resolve(own)
    assert (location.id, location.sandbox, location.vcs) == ("global", "/", None)
    assert location.note is not None
    assert "belongs to another user" in location.note
    assert not location.contains(str(tmp_path / "other"))
    os.chown(own, 1234, 1234)
    assert resolve(own).sandbox == str(tmp_path), "as for a repository that is mounted into a container"


@pytest.mark.parametrize("content", ["private", "x" * 1_000])
def test_the_id_of_a_project_is_not_written_through_a_link(tmp_path: Path, content: str) -> None:
    project, private = tmp_path / "project", tmp_path / "private"
    project.mkdir()
    private.write_text(content + "\0")
    git(project, "init", "-q")
    git(project, "commit", "-q", "--allow-empty", "-m", "x")
    (project / ".git" / "opencode").symlink_to(private)
    location = resolve(project, remember=True)
    assert private.read_text() == content + "\0"
    (project / ".git" / "opencode").unlink()
    resolve(project, remember=True)
    assert (project / ".git" / "opencode").read_text() == location.id


class _NewerStore(Memory):
    """A store of an OpenCode that looks for the git folder that worktrees share."""

    conventions = Conventions(projects_by_remote=True)


@pytest.mark.parametrize("name", [".git", ".git/opencode", "linked/commondir"])
def test_a_named_pipe_in_a_repository_is_not_waited_for(
    tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    project = tmp_path / "project"
    project.mkdir()
    monkeypatch.setattr(project_ids, "_TIMEOUT_SECONDS", 5)
    if name == ".git/opencode":
        git(project, "init", "-q")
        git(project, "commit", "-q", "--allow-empty", "-m", "x")
    elif name != ".git":
        (project / ".git").write_text("gitdir: linked\n")
        (project / "linked").mkdir()
    os.mkfifo(project / name)
    location = resolve(project, store=_NewerStore(), remember=True)
    assert location.sandbox == str(project)


def test_a_git_that_does_not_answer_is_not_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    git(tmp_path, "init", "-q")
    (tmp_path / ".git" / "HEAD").unlink()
    os.mkfifo(tmp_path / ".git" / "HEAD")
    monkeypatch.setattr(project_ids, "_TIMEOUT_SECONDS", 0.2)
    command = GitCommand(str(tmp_path))
    assert command.lines("rev-parse", "HEAD") == ()
    assert command.problem is not None
    assert "did not answer" in command.problem


@pytest.fixture
def misleading(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A repository whose index names files outside of it: behind a folder that is a link by now."""
    monkeypatch.setattr(file_search, "ripgrep", lambda: None)
    project, outside = tmp_path / "project", tmp_path / "outside"
    (project / "data").mkdir(parents=True)
    (outside / "sub").mkdir(parents=True)
    for folder in (project / "data", outside, outside / "sub"):
        (folder / "a.txt").write_text("needle\n")
    git(project, "init", "-q")
    git(project, "add", "-A")
    git(project, "commit", "-qm", "x")
    commit = subprocess.run(["git", "rev-parse", "HEAD"], cwd=project, capture_output=True, text=True, check=True)
    git(project, "update-index", "--add", "--cacheinfo", f"160000,{commit.stdout.strip()},data/sub")
    (project / "data" / "a.txt").unlink()
    (project / "data").rmdir()
    (project / "data").symlink_to(outside)
    (project / "own.txt").write_text("needle\n")
    return project


async def test_files_that_the_index_names_behind_a_link_are_not_searched(misleading: Path) -> None:
    bench = Bench(misleading)
    assert (await bench.run(GlobTool(), pattern="**/*.txt")).output == str(misleading / "own.txt")
    assert (await bench.run(GrepTool(), pattern="needle")).metadata["matches"] == 1
    assert await file_search.files(str(misleading)) == ["own.txt"]


async def test_the_server_shows_no_file_that_the_index_names_behind_a_link(misleading: Path) -> None:
    async with serving(misleading) as client:
        assert await client.get("/find/file", params={"query": "txt"}) == ["own.txt"]
        found = await client.get("/find", params={"pattern": "needle"})
    assert [match["path"]["text"] for match in found] == ["own.txt"]


async def test_a_link_to_a_named_pipe_does_not_keep_the_server_from_listing_changes(misleading: Path) -> None:
    os.mkfifo(misleading.parent / "pipe")
    (misleading / "odd").symlink_to(misleading.parent / "pipe")
    (misleading / "endless").symlink_to("/dev/zero")
    (misleading.parent / "long").write_text("\n" * 100)
    (misleading / "elsewhere").symlink_to(misleading.parent / "long")
    async with serving(misleading) as client, asyncio.timeout(20):
        added = {file["path"]: file["added"] for file in await client.get("/file/status") if file["status"] == "added"}
    assert added == {"own.txt": 2, "elsewhere": 1}
