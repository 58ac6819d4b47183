from __future__ import annotations

import asyncio
import gc
import os
import shutil
import subprocess
import threading
import time
import warnings
from pathlib import Path

import pytest

from opensesh.errors import SnapshotError
from opensesh.project import ProjectLocation, resolve
from opensesh.workspace.files import FileState
from opensesh.workspace.git import Git, git_environment
from opensesh.workspace.snapshots import MEBIBYTE, SnapshotLimits, Snapshots

from .project_setup import Workspace, git, new_repository, since, write


def tree(workspace: Workspace, snapshots: Snapshots | None = None) -> str:
    result = (snapshots or workspace.snapshots).track()
    assert result is not None, (snapshots or workspace.snapshots).note
    return result


def names(workspace: Workspace, snapshot: str) -> set[str]:
    shown = workspace.snapshots.git.names("ls-tree", "-r", "-z", "--name-only", snapshot)
    return set(shown)


def everything_in(folder: Path) -> dict[str, tuple[bytes, int]]:
    """All bytes of a repository of the user's, and when its index was written."""
    result = {str(path): (path.read_bytes(), 0) for path in sorted((folder / ".git").rglob("*")) if path.is_file()}
    index = folder / ".git" / "index"
    return result | {str(index): (index.read_bytes(), index.stat().st_mtime_ns)}


def test_a_snapshot_is_the_tree_that_git_itself_would_make(workspace: Workspace) -> None:
    assert tree(workspace) == git(workspace.folder, "rev-parse", "HEAD^{tree}")


def test_the_users_repository_and_index_are_left_alone(workspace: Workspace) -> None:
    write(workspace.folder, {"staged.txt": "s", "new.txt": "n"})
    git(workspace.folder, "add", "staged.txt")
    before = everything_in(workspace.folder)
    first = tree(workspace)
    write(workspace.folder, {"README.md": "changed\n"})
    since(workspace.snapshots, first)
    assert everything_in(workspace.folder) == before
    assert git(workspace.folder, "status", "--porcelain").splitlines() == ["M README.md", "A  staged.txt", "?? new.txt"]


def test_files_that_the_users_repository_has_are_not_stored_again(workspace: Workspace) -> None:
    write(workspace.folder, {f"data/{number}.txt": str(number) * 100 for number in range(50)})
    git(workspace.folder, "add", "-A")
    git(workspace.folder, "commit", "-qm", "data")
    assert names(workspace, tree(workspace)) >= {"data/0.txt", "data/49.txt"}
    stored = [path for path in Path(workspace.snapshots.repository.store, "objects").rglob("*") if path.is_file()]
    assert [path.name for path in stored] == ["alternates"]


def test_opencode_finds_the_store_as_it_would_have_made_it(workspace: Workspace) -> None:
    snapshot = tree(workspace)
    store = workspace.home / "data" / "snapshot" / workspace.place.id
    assert git(store, "--git-dir", str(store), "config", "core.autocrlf") == "false"
    assert git(store, "--git-dir", str(store), "config", "core.worktree") == str(workspace.folder)
    assert "README.md" in git(workspace.folder, "--git-dir", str(store), "ls-tree", "-r", "--name-only", snapshot)
    assert not (store / "index").exists()


def test_the_patch_lists_what_changed_by_absolute_path(workspace: Workspace) -> None:
    write(workspace.folder, {"gone.txt": "x"})
    first = tree(workspace)
    write(workspace.folder, {"README.md": "changed\n", "new/deep.txt": "n"})
    (workspace.folder / "gone.txt").unlink()
    patch = since(workspace.snapshots, first)
    assert patch.hash == first
    assert set(patch.files) == {str(workspace.folder / name) for name in ("README.md", "new/deep.txt", "gone.txt")}
    assert since(workspace.snapshots, tree(workspace)).files == ()


@pytest.mark.parametrize(
    "name",
    [
        "with space.txt",
        "line\nbreak.txt",
        "-rf",
        "--help",
        "ünïcode ☃.txt",
        'quote"s.txt',
        "back\\slash.txt",
        "tab\there",
        ":(exclude)x",
        "*.py",
        "a" * 200,
        os.fsdecode(b"no-text-\xff\xfe"),
        "e\u0301 combining",
    ],
)
def test_odd_names_are_names_like_any_other(workspace: Workspace, name: str) -> None:
    first = tree(workspace)
    path = workspace.folder / name
    path.write_text("1")
    second = tree(workspace)
    assert workspace.snapshots.changed(first, second).files == (str(path),)
    assert [diff["file"] for diff in workspace.snapshots.diff(first, second)] == [name]
    with workspace.snapshots.objects() as objects:
        result = objects.state(second, name)
        assert result is not None
        assert objects.content(result.oid) == b"1"
    path.unlink()
    assert tree(workspace) == first


def test_what_the_project_ignores_is_left_out(workspace: Workspace, isolated: Path) -> None:
    write(isolated, {".config/git/ignore": "*.everywhere\n", "mine": "*.mine\n"})
    write(workspace.folder, {".gitignore": "build/\n*.log\n!keep.log\n", "sub/.gitignore": "local\n"})
    (workspace.folder / ".git" / "info" / "exclude").write_text("*.private\n")
    listed = ["build/a", "a.log", "keep.log", "sub/local", "local", "a.everywhere", "a.private", "a.mine"]
    write(workspace.folder, dict.fromkeys(listed, "x"))
    assert {"keep.log", "local", "a.mine"} <= names(workspace, tree(workspace))
    assert not {"build/a", "a.log", "sub/local", "a.everywhere", "a.private"} & names(workspace, tree(workspace))
    (workspace.folder / ".git" / "info" / "exclude").write_text("keep.log\n")
    write(workspace.folder, {".gitignore": "build/\n*.log\n"})
    assert "keep.log" not in names(workspace, tree(workspace))
    assert "a.private" in names(workspace, tree(workspace))
    git(workspace.folder, "config", "--global", "core.excludesFile", "~/mine")
    assert "a.mine" not in names(workspace, tree(workspace, workspace.open_snapshots()))


def test_a_file_that_is_ignored_from_now_on_leaves_the_snapshots_and_stays_on_disk(workspace: Workspace) -> None:
    write(workspace.folder, {"secret.env": "KEY=1"})
    first = tree(workspace)
    assert "secret.env" in names(workspace, first)
    write(workspace.folder, {".gitignore": "*.env\n"})
    second = tree(workspace)
    assert "secret.env" not in names(workspace, second)
    assert (workspace.folder / "secret.env").read_text() == "KEY=1"
    assert workspace.snapshots.changed(first, second).files == (str(workspace.folder / ".gitignore"),)
    assert [diff["file"] for diff in workspace.snapshots.diff(first, tree(workspace))] == [".gitignore"]
    write(workspace.folder, {".gitignore": "", "secret.env": "KEY=2"})
    assert [diff["file"] for diff in workspace.snapshots.diff(first, tree(workspace))] == [".gitignore", "secret.env"]


def test_a_file_that_was_only_hidden_does_not_count_as_new(workspace: Workspace) -> None:
    write(workspace.folder, {".gitignore": "*.env\n", "old.env": "KEY=1"})
    os.utime(workspace.folder / "old.env", (1_700_000_000, 1_700_000_000))
    first = tree(workspace)
    write(workspace.folder, {".gitignore": "", "new.env": "KEY=2"})
    files = since(workspace.snapshots, first).files
    assert set(files) == {str(workspace.folder / ".gitignore"), str(workspace.folder / "new.env")}


def test_large_files_are_left_out_with_a_note_unless_git_tracks_them(workspace: Workspace) -> None:
    big = "x" * (2 * MEBIBYTE + 1)
    write(workspace.folder, {"asset.bin": big})
    git(workspace.folder, "add", "asset.bin")
    write(workspace.folder, {"dump.bin": big, "fits.bin": big[:-1]})
    first = tree(workspace)
    assert {"asset.bin", "fits.bin"} <= names(workspace, first)
    assert "dump.bin" not in names(workspace, first)
    assert workspace.snapshots.note is not None
    assert "dump.bin" in workspace.snapshots.note
    (workspace.folder / "dump.bin").write_text("small now")
    assert since(workspace.snapshots, first).files == ()


def test_a_file_that_grows_too_large_is_not_followed_any_more(workspace: Workspace) -> None:
    write(workspace.folder, {"server.log": "x"})
    first = tree(workspace)
    (workspace.folder / "server.log").write_bytes(b"x" * (2 * MEBIBYTE + 1))
    second = tree(workspace)
    assert "server.log" not in names(workspace, second)
    assert workspace.snapshots.changed(first, second).files == ()


def test_too_much_that_is_new_is_refused_before_it_is_read(workspace: Workspace) -> None:
    snapshots = workspace.open_snapshots(limits=SnapshotLimits(new=1000))
    write(workspace.folder, {f"data/{number}": "x" * 100 for number in range(20)})
    assert snapshots.track() is None
    assert snapshots.note is not None
    assert ".gitignore" in snapshots.note
    git(workspace.folder, "add", "-A")
    assert snapshots.track() is not None


def test_no_more_is_stored_than_there_is_space_for(workspace: Workspace) -> None:
    write(workspace.folder, {"noise": os.urandom(50_000).hex()})
    tree(workspace)
    snapshots = workspace.open_snapshots(limits=SnapshotLimits(store=10_000))
    assert snapshots.track() is None
    assert snapshots.note is not None
    assert "doctor --tidy" in snapshots.note
    assert not snapshots.enabled


def test_links_are_kept_as_links_and_never_followed(workspace: Workspace, tmp_path: Path) -> None:
    write(tmp_path / "elsewhere", {"secret": "s"})
    (workspace.folder / "file").symlink_to(tmp_path / "elsewhere" / "secret")
    (workspace.folder / "folder").symlink_to(tmp_path / "elsewhere", target_is_directory=True)
    (workspace.folder / "broken").symlink_to("nowhere")
    (workspace.folder / "loop").symlink_to("loop")
    snapshot = tree(workspace)
    with workspace.snapshots.objects() as objects:
        result = {name: objects.state(snapshot, name) or FileState() for name in ("file", "folder", "broken", "loop")}
        assert {state.mode for state in result.values()} == {"120000"}
        assert objects.content(result["broken"].oid) == b"nowhere"
        assert objects.state(snapshot, "folder/secret") == FileState()


def test_a_folder_that_becomes_a_link_or_a_file_and_back(workspace: Workspace) -> None:
    write(workspace.folder, {"thing/a": "1", "other/a": "1"})
    first = tree(workspace)
    (workspace.folder / "thing" / "a").unlink()
    (workspace.folder / "thing").rmdir()
    (workspace.folder / "thing").symlink_to("other", target_is_directory=True)
    second = tree(workspace)
    assert {"thing", "other/a"} <= names(workspace, second)
    assert "thing/a" not in names(workspace, second)
    (workspace.folder / "thing").unlink()
    (workspace.folder / "thing").write_text("file")
    assert "thing" in names(workspace, tree(workspace))
    (workspace.folder / "thing").unlink()
    write(workspace.folder, {"thing/a": "1"})
    assert tree(workspace) == first


def test_bytes_are_kept_as_they_are_with_any_attributes_and_settings(workspace: Workspace, isolated: Path) -> None:
    git(workspace.folder, "config", "--global", "core.autocrlf", "true")
    git(workspace.folder, "config", "--global", "filter.loud.clean", "tr a-z A-Z")
    attributes = (
        "* text=auto\n*.win text eol=crlf\n*.loud filter=loud\n*.id ident\n*.u working-tree-encoding=UTF-16LE-BOM\n"
    )
    raw = {"a.win": b"1\r\n2\n", "b.txt": b"1\r\n2\r\n", "c.loud": b"quiet", "d.id": b"$Id$\n", "e.u": b"\xff\xfex\0"}
    (workspace.folder / ".gitattributes").write_text(attributes)
    for name, data in raw.items():
        (workspace.folder / name).write_bytes(data)
    snapshot = tree(workspace)
    with workspace.snapshots.objects() as objects:
        assert {name: objects.content((objects.state(snapshot, name) or FileState()).oid) for name in raw} == raw


def test_no_hook_and_no_monitor_of_the_users_runs(workspace: Workspace, tmp_path: Path) -> None:
    trace = tmp_path / "trace"
    hooks = tmp_path / "hooks"
    for name in ("post-index-change", "pre-commit", "reference-transaction"):
        write(hooks, {name: f"#!/bin/sh\necho ran >> '{trace}'\n"})
        (hooks / name).chmod(0o755)
    for setting in (("core.hooksPath", str(hooks)), ("core.fsmonitor", str(hooks / "pre-commit"))):
        git(workspace.folder, "config", "--global", *setting)
    first = tree(workspace)
    write(workspace.folder, {"README.md": "2"})
    assert since(workspace.snapshots, first).files
    assert not trace.exists()


def test_variables_of_a_hook_around_us_do_not_lead_astray(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = everything_in(workspace.folder)
    for name in ("GIT_DIR", "GIT_INDEX_FILE", "GIT_WORK_TREE", "GIT_OBJECT_DIRECTORY"):
        monkeypatch.setenv(name, str(workspace.folder / ".git" / name))
    monkeypatch.setenv("GIT_CONFIG_COUNT", "1")
    monkeypatch.setenv("GIT_CONFIG_KEY_0", "core.bare")
    monkeypatch.setenv("GIT_CONFIG_VALUE_0", "true")
    assert names(workspace, tree(workspace)) == {"README.md", "src/main.py"}
    for name in list(os.environ):
        if name.startswith("GIT_CONFIG_") and name[-1] in "0T":
            monkeypatch.delenv(name)
    assert everything_in(workspace.folder) == before


def test_modes_count_where_the_disk_knows_them(workspace: Workspace) -> None:
    first = tree(workspace)
    (workspace.folder / "README.md").chmod(0o755)
    assert since(workspace.snapshots, first).files == (str(workspace.folder / "README.md"),)
    git(workspace.folder, "config", "core.fileMode", "false")
    relaxed = workspace.open_snapshots()
    last = tree(workspace, relaxed)
    (workspace.folder / "README.md").chmod(0o644)
    assert since(relaxed, last).files == ()


def test_what_git_found_out_about_the_disk_is_carried_over(workspace: Workspace) -> None:
    git(workspace.folder, "config", "core.ignoreCase", "true")
    tree(workspace)
    assert workspace.snapshots.git.line("config", "core.ignorecase") == "true"


def test_an_empty_folder_is_not_part_of_a_snapshot(workspace: Workspace) -> None:
    first = tree(workspace)
    (workspace.folder / "empty").mkdir()
    assert tree(workspace) == first


def test_repositories_within_are_left_out_with_a_note(workspace: Workspace, tmp_path: Path) -> None:
    module = new_repository(tmp_path / "module")
    git(workspace.folder, "-c", "protocol.file.allow=always", "submodule", "add", "-q", str(module), "module")
    new_repository(workspace.folder / "nested")
    (workspace.folder / "unborn").mkdir()
    git(workspace.folder / "unborn", "init", "-q")
    git(workspace.folder, "worktree", "add", "-q", "linked")
    first = tree(workspace)
    assert names(workspace, first) == {"README.md", "src/main.py", ".gitmodules"}
    assert workspace.snapshots.note is not None
    assert "4 nested repositories" in workspace.snapshots.note
    write(workspace.folder, {"module/README.md": "x", "nested/new": "x", "unborn/x": "x", "linked/x": "x"})
    assert since(workspace.snapshots, first).files == ()


def test_files_that_may_not_be_read_cost_only_themselves(workspace: Workspace) -> None:
    if os.geteuid() == 0:
        pytest.skip("root may read everything")
    write(workspace.folder, {"closed": "x", "open": "x"})
    (workspace.folder / "closed").chmod(0)
    assert names(workspace, tree(workspace)) == {"README.md", "src/main.py", "open"}


def test_pipes_and_sockets_are_no_files(workspace: Workspace) -> None:
    os.mkfifo(workspace.folder / "pipe")
    assert names(workspace, tree(workspace)) == {"README.md", "src/main.py"}


def test_linked_worktrees_share_the_store_and_nothing_else(workspace: Workspace, tmp_path: Path) -> None:
    linked = tmp_path / "linked"
    git(workspace.folder, "worktree", "add", "-q", str(linked))
    other = workspace.open_snapshots(resolve(linked))
    assert other.repository.store == workspace.snapshots.repository.store
    assert other.repository.index != workspace.snapshots.repository.index
    first = tree(workspace)
    assert other.track() == first
    write(linked, {"only-here": "x"})
    assert since(other, first).files == (str(linked / "only-here"),)
    assert since(workspace.snapshots, first).files == ()


def test_only_the_directory_one_works_in_is_looked_at(workspace: Workspace) -> None:
    write(workspace.folder, {"a/x": "1", "b/x": "1"})
    inner = workspace.open_snapshots(resolve(workspace.folder / "a"))
    first = tree(workspace, inner)
    write(workspace.folder, {"a/x": "2", "b/x": "2"})
    assert since(inner, first).files == (str(workspace.folder / "a" / "x"),)
    assert [diff["file"] for diff in inner.diff(first, tree(workspace, inner))] == ["a/x"]


def test_a_repository_without_commits_has_snapshots(tmp_path: Path) -> None:
    folder = tmp_path / "new"
    folder.mkdir()
    git(folder, "init", "-q")
    write(folder, {"a": "1"})
    workspace = Workspace(tmp_path / "home", folder)
    assert workspace.place.id == "global"
    first = tree(workspace)
    write(folder, {"a": "2"})
    assert since(workspace.snapshots, first).files == (str(folder / "a"),)


def test_a_repository_in_another_format_keeps_its_files_to_itself(tmp_path: Path) -> None:
    folder = tmp_path / "modern"
    folder.mkdir()
    git(folder, "init", "-q", "--object-format=sha256")
    write(folder, {"a": "1"})
    git(folder, "add", "-A")
    git(folder, "commit", "-qm", "first")
    workspace = Workspace(tmp_path / "home", folder)
    assert len(tree(workspace)) == 40
    assert not Path(workspace.snapshots.repository.store, "objects", "info", "alternates").exists()


async def test_without_a_repository_nothing_is_taken_and_the_note_says_so(plain: Workspace) -> None:
    write(plain.folder, {"a": "1"})
    assert plain.snapshots.track() is None
    assert plain.snapshots.begin() is None
    assert since(plain.snapshots, "0" * 40).files == ()
    assert plain.snapshots.diff("0" * 40, "1" * 40) == []
    assert plain.snapshots.note == "there are no snapshots outside of a git repository"
    assert not (plain.home / "data" / "snapshot").exists()


def test_without_git_nothing_is_taken_and_the_note_says_so(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(workspace.home))
    snapshots = workspace.open_snapshots()
    assert snapshots.track() is None
    assert snapshots.note is not None
    assert "not installed" in snapshots.note
    assert workspace.snapshots.track() is None
    assert workspace.snapshots.note == "no snapshot was taken: git is not installed"


def test_a_pretended_repository_and_a_home_folder_have_no_snapshots(isolated: Path) -> None:
    pretended = Snapshots(ProjectLocation("/", "global", "/", "/", "git"))
    assert not pretended.enabled
    git(isolated, "init", "-q")
    home = Snapshots(resolve(isolated))
    assert home.track() is None
    assert home.note is not None
    assert "home" in home.note


def test_snapshots_that_are_turned_off_can_still_be_looked_into(workspace: Workspace) -> None:
    first = tree(workspace)
    write(workspace.folder, {"README.md": "2"})
    second = tree(workspace)
    off = workspace.open_snapshots(enabled=False)
    assert off.track() is None
    assert off.note == "snapshots are turned off"
    assert off.changed(first, second).files == (str(workspace.folder / "README.md"),)


def test_a_damaged_index_and_a_lock_left_behind_cost_one_long_look(workspace: Workspace) -> None:
    first = tree(workspace)
    index = Path(workspace.snapshots.repository.index)
    Path(f"{index}.lock").write_bytes(b"")
    index.write_bytes(b"DIRC" + os.urandom(400))
    assert tree(workspace) == first
    index.write_bytes(b"")
    assert tree(workspace, workspace.open_snapshots()) == first


def test_files_that_the_users_repository_drops_are_stored_when_they_are_missed(workspace: Workspace) -> None:
    write(workspace.folder, {"staged": "only in the index for a while"})
    git(workspace.folder, "add", "staged")
    tree(workspace)
    git(workspace.folder, "rm", "-q", "--cached", "staged")
    git(workspace.folder, "prune", "--expire=now")
    write(workspace.folder, {"README.md": "2"})
    snapshot = tree(workspace)
    with workspace.snapshots.objects() as objects:
        result = objects.state(snapshot, "staged")
        assert result is not None
        assert objects.content(result.oid) == b"only in the index for a while"


def test_a_snapshot_that_is_gone_has_no_changes_to_tell(workspace: Workspace) -> None:
    assert workspace.snapshots.changed("1" * 40, tree(workspace)).files == ()


def test_a_record_cannot_slip_git_an_option(workspace: Workspace, tmp_path: Path) -> None:
    trap = f"--output={tmp_path / 'trap'}"
    first = tree(workspace)
    write(workspace.folder, {"README.md": "2"})
    assert workspace.snapshots.changed(trap, tree(workspace)).files == ()
    for compare in (workspace.snapshots.diff, workspace.snapshots.text):
        with pytest.raises(SnapshotError, match="not the id"):
            compare(first, trap)
    with workspace.snapshots.objects() as objects:
        assert objects.state(trap, "x") is None
    assert not (tmp_path / "trap").exists()


def test_looking_makes_nothing_where_there_is_nothing(workspace: Workspace) -> None:
    with pytest.raises(SnapshotError):
        workspace.snapshots.diff("1" * 40, "2" * 40)
    with workspace.snapshots.objects() as objects:
        assert objects.state("1" * 40, "any") is None
    assert not workspace.home.exists()


def test_a_stored_folder_that_was_never_finished_is_finished(workspace: Workspace) -> None:
    Path(workspace.snapshots.repository.store).mkdir(parents=True)
    assert names(workspace, tree(workspace)) == {"README.md", "src/main.py"}


def test_tidying_of_opencodes_does_not_take_our_snapshots(workspace: Workspace) -> None:
    write(workspace.folder, {"new": "x"})
    first = tree(workspace)
    (workspace.folder / "new").unlink()
    tree(workspace)
    store = workspace.snapshots.repository.store
    old = time.time() - 30 * 86_400
    for path in Path(store, "objects").rglob("*"):
        os.utime(path, (old, old))
    git(Path(store), "--git-dir", store, "gc", "--prune=7.days")
    assert names(workspace, first) == {"README.md", "src/main.py", "new"}


async def test_a_snapshot_begun_early_is_of_the_moment_it_was_awaited_at_the_latest(workspace: Workspace) -> None:
    taking = workspace.begin_snapshot()
    first = await taking
    assert taking.done
    assert first == await taking
    write(workspace.folder, {"README.md": "2"})
    second = await workspace.begin_snapshot()
    assert first
    assert second
    assert workspace.snapshots.changed(first, second).files == (str(workspace.folder / "README.md"),)
    workspace.snapshots.close()


async def test_beginning_never_waits_even_while_another_snapshot_is_taken(workspace: Workspace) -> None:
    with workspace.snapshots.repository.index_lock().hold("index"):
        takings = [workspace.begin_snapshot() for _ in range(3)]  # none would return if it waited for the lock
        assert not any(taking.done for taking in takings)
        assert await takings[0].result(0.05) is None
    assert await takings[1] == await takings[2]
    assert await takings[0] is None
    workspace.snapshots.close()


async def test_who_is_cancelled_while_waiting_leaves_the_snapshot_to_others(workspace: Workspace) -> None:
    with workspace.snapshots.repository.index_lock().hold("index"):
        taking = workspace.begin_snapshot()
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.05):
                await taking
    assert await taking is not None
    workspace.snapshots.close()


def test_many_at_once_on_one_checkout_agree(workspace: Workspace) -> None:
    result: list[str | None] = []

    def take(snapshots: Snapshots) -> None:
        result.append(snapshots.track())

    threads = [threading.Thread(target=take, args=(workspace.open_snapshots(),)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert set(result) == {git(workspace.folder, "rev-parse", "HEAD^{tree}")}


def test_a_git_that_hangs_is_ended(workspace: Workspace) -> None:
    patient = Git(str(workspace.folder), git_environment(), timeout_seconds=0.2)
    process = patient.start("cat-file", "--batch", pipe_stdin=True)
    start = time.perf_counter()
    with pytest.raises(Exception, match="did not end"):
        patient.finish(subprocess.Popen(["sleep", "30"], stdout=subprocess.PIPE, stderr=subprocess.PIPE))
    assert time.perf_counter() - start < 25
    patient.finish(process, b"")


def test_ten_thousand_files_take_a_moment(workspace: Workspace) -> None:
    for number in range(100):
        (workspace.folder / f"pkg{number}").mkdir()
        for item in range(100):
            (workspace.folder / f"pkg{number}" / f"f{item}.py").write_text(f"{number} {item}\n")
    git(workspace.folder, "add", "-A")
    git(workspace.folder, "commit", "-qm", "many")
    first = tree(workspace)
    write(workspace.folder, {"pkg3/f4.py": "changed\n"})
    start = time.perf_counter()
    git(workspace.folder, "status", "--porcelain")
    middle = time.perf_counter()
    patch = since(workspace.snapshots, first)
    assert time.perf_counter() - middle < 20 * (middle - start) + 2
    assert patch.files == (str(workspace.folder / "pkg3" / "f4.py"),)


def test_a_directory_that_is_gone_costs_the_snapshot_and_leaves_no_git_behind(tmp_path: Path) -> None:
    repository = new_repository(tmp_path / "work", {"below/a": "1"})
    workspace = Workspace(tmp_path / "home", repository / "below")
    assert workspace.snapshots.track() is not None
    shutil.rmtree(repository / "below")
    with warnings.catch_warnings(record=True) as received:
        warnings.simplefilter("always")
        assert workspace.snapshots.track() is None
        gc.collect()
    assert [str(item.message) for item in received] == []
    assert f"{repository / 'below'} does not exist" in str(workspace.snapshots.note)
