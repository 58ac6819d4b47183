from __future__ import annotations

import os
import sqlite3
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any

import msgspec
import pytest

from opensesh import project
from opensesh.errors import NotFoundError, OpenseshError
from opensesh.project import ProjectLocation, register, remote_id, resolve
from opensesh.storage.memory import Memory
from opensesh.storage.opencode_db.store import OpencodeDB
from opensesh.storage.protocol import Key

from .storage.opencode_databases import FIXTURES, V1_2, empty_database


def git(folder: Path, *words: str) -> str:
    environment = os.environ | {"GIT_AUTHOR_DATE": "2026-01-01T00:00:00Z", "GIT_COMMITTER_DATE": "2026-01-01T00:00:00Z"}
    done = subprocess.run(["git", *words], cwd=folder, capture_output=True, text=True, check=True, env=environment)
    return done.stdout.strip()


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    folder = tmp_path / "répo with space"
    folder.mkdir()
    git(folder, "init", "-q")
    commit(folder, "one")
    return folder


def commit(folder: Path, message: str) -> str:
    git(folder, "commit", "-q", "--allow-empty", "-m", message)
    return git(folder, "rev-parse", "HEAD")


def place_of(folder: Path) -> tuple[str, str, str, str | None]:
    path = resolve(folder)
    return path.id, path.worktree, path.sandbox, path.vcs


def test_outside_of_a_repository_it_is_global(tmp_path: Path) -> None:
    assert place_of(tmp_path) == ("global", "/", "/", None)


def test_a_repository_without_commits_is_global_but_knows_its_folder(tmp_path: Path) -> None:
    git(tmp_path, "init", "-q")
    assert place_of(tmp_path) == ("global", str(tmp_path), str(tmp_path), "git")


def test_the_root_commit_names_the_project_from_any_folder_in_it(repository: Path) -> None:
    root = git(repository, "rev-list", "--max-parents=0", "HEAD")
    commit(repository, "two")
    below = repository / "a" / "b"
    below.mkdir(parents=True)
    assert place_of(below) == (root, str(repository), str(repository), "git")


def test_of_several_roots_the_smallest_is_taken(repository: Path) -> None:
    git(repository, "checkout", "-q", "--orphan", "other")
    other = commit(repository, "unrelated")
    first = git(repository, "rev-list", "--max-parents=0", "main")
    assert resolve(repository).id == min(first, other)


def test_through_a_symbolic_link_the_real_path_is_found(repository: Path, tmp_path: Path) -> None:
    link = tmp_path / "link"
    link.symlink_to(repository)
    assert resolve(link).worktree == str(repository)
    assert resolve(link).directory == str(link)


def test_a_linked_worktree_shares_the_project_and_keeps_its_own_sandbox(repository: Path, tmp_path: Path) -> None:
    linked = tmp_path / "linked"
    git(repository, "worktree", "add", "-q", str(linked))
    assert place_of(linked) == (resolve(repository).id, str(repository), str(linked), "git")


def test_a_worktree_of_a_bare_repository_belongs_to_the_folder_that_holds_it(repository: Path, tmp_path: Path) -> None:
    holder = tmp_path / "x"
    holder.mkdir()
    git(holder, "clone", "-q", "--bare", str(repository), "bare.git")
    git(holder / "bare.git", "worktree", "add", "-q", str(tmp_path / "out"))
    assert place_of(tmp_path / "out") == (resolve(repository).id, str(holder), str(tmp_path / "out"), "git")
    assert resolve(holder / "bare.git").id == "global"


def test_a_git_file_beside_a_hidden_bare_repository_is_followed(repository: Path, tmp_path: Path) -> None:
    holder = tmp_path / "hidden"
    holder.mkdir()
    git(holder, "clone", "-q", "--bare", str(repository), ".bare")
    (holder / ".git").write_text("gitdir: ./.bare\n")
    path = resolve(holder)
    assert (path.id, path.worktree, path.vcs) == (resolve(repository).id, str(holder), "git")


def test_a_submodule_is_a_project_of_its_own(repository: Path, tmp_path: Path) -> None:
    outer = tmp_path / "outer"
    outer.mkdir()
    git(outer, "init", "-q")
    commit(outer, "outer")
    git(outer, "-c", "protocol.file.allow=always", "submodule", "--quiet", "add", str(repository), "sub")
    path = resolve(outer / "sub")
    assert path.id == resolve(repository).id
    assert (path.sandbox, path.worktree) == (str(outer / "sub"), str(outer / ".git" / "modules"))


def test_a_shallow_clone_is_named_by_its_boundary(repository: Path, tmp_path: Path) -> None:
    second = commit(repository, "two")
    git(tmp_path, "clone", "-q", "--depth", "1", f"file://{repository}", "shallow")
    assert resolve(tmp_path / "shallow").id == second


def test_a_cached_id_wins_even_if_it_is_not_a_commit(repository: Path) -> None:
    made_later = remote_id("git@github.com:some/where.git")
    (repository / ".git" / "opencode").write_text(made_later)
    assert resolve(repository).id == made_later
    git(repository, "remote", "add", "origin", "https://github.com/Some/Else.git")
    assert set(project.other_ids(resolve(repository))) == {
        git(repository, "rev-list", "--max-parents=0", "HEAD"),
        remote_id("https://github.com/Some/Else"),
    }


@pytest.mark.parametrize("wrong", ["", "../../etc", "a/b", "\0", "x" * 300])
def test_a_cached_id_that_could_be_a_path_is_ignored(repository: Path, wrong: str) -> None:
    (repository / ".git" / "opencode").write_text(wrong)
    assert resolve(repository).id == git(repository, "rev-list", "--max-parents=0", "HEAD")


def test_nothing_is_written_into_git_unless_asked(repository: Path) -> None:
    before = sorted(os.listdir(repository / ".git"))
    resolve(repository)
    assert sorted(os.listdir(repository / ".git")) == before
    resolve(repository, remember=True)
    assert (repository / ".git" / "opencode").read_text() == resolve(repository).id


def test_without_git_the_cache_still_answers(repository: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    known = resolve(repository, remember=True).id
    monkeypatch.setenv("PATH", "/nowhere")
    path = resolve(repository)
    assert (path.id, path.worktree, path.vcs) == (known, str(repository), None)
    assert str(path.note).startswith("git is not installed")


def test_a_repository_of_another_user_is_not_trusted_and_it_says_so(
    repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GIT_TEST_ASSUME_DIFFERENT_OWNER", "1")
    path = resolve(repository)
    assert path.id == "global"
    assert "belongs to another user" in str(path.note)


def test_a_stray_git_dir_in_the_environment_is_ignored(repository: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = resolve(repository)
    monkeypatch.setenv("GIT_DIR", "/nowhere")
    assert resolve(repository) == expected


def test_fake_vcs_is_git_or_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENCODE_FAKE_VCS", "git")
    assert resolve(tmp_path).vcs == "git"
    monkeypatch.setenv("OPENCODE_FAKE_VCS", "svn")
    with pytest.raises(OpenseshError, match="svn"):
        resolve(tmp_path)


@pytest.mark.parametrize(
    ("url", "same"),
    [
        ("https://GitHub.com/a/b.git", "git@github.com:a/b.git"),
        ("ssh://git@github.com:22/a/b", "https://user:secret@github.com/a/b"),
        ("git+ssh://git@github.com/a/b", "HTTPS:github.com\\a\\b"),
        ("git@github.com:/srv/a/b.git", "https://me@work.example@github.com/srv/a/b/?query#fragment"),
        ("https://host/My Project/ü.git/", "ssh://host/My%20Project/%C3%BC"),
        ("https://host/a/./c/%2E./b", "me@host:a/b"),
        ("https://[2001:DB8::1]:8443/a/b", "ssh://git@[2001:db8::1]/a/b"),
        ("https://münchen.example/a", "git@xn--mnchen-3ya.example:a"),
    ],
)
def test_one_remote_has_one_id_however_it_is_spelled(url: str, same: str) -> None:
    assert remote_id(url) == remote_id(same) != ""


@pytest.mark.parametrize(
    "local",
    ["", "/srv/repo", "../repo", "file:///srv/repo", "C:/repo", "alias:me/repo", "https://host/", "ext::sh -c x"],
)
def test_a_local_remote_has_no_id(local: str) -> None:
    assert remote_id(local) == ""


def test_registering_writes_the_record_as_opencode_does(repository: Path, tmp_path: Path) -> None:
    store = Memory()
    first = register(store, resolve(repository))
    assert list(first.document) == ["id", "worktree", "vcs", "sandboxes", "time"]
    assert list(first.document["time"]) == ["created", "updated"]
    linked = tmp_path / "linked"
    git(repository, "worktree", "add", "-q", str(linked))
    assert register(store, resolve(linked)).sandboxes == (str(linked),)
    git(repository, "worktree", "remove", str(linked))
    assert register(store, resolve(repository)).sandboxes == ()


class Slow(Memory):
    """Takes its time to read."""

    def read(self, key: Key) -> Any:
        result = super().read(key)
        time.sleep(0.01)
        return result


def test_checkouts_that_are_opened_at_the_same_time_are_all_noted(tmp_path: Path) -> None:
    store = Slow()
    folders = [str(tmp_path / name) for name in "abcdef"]
    for folder in folders:
        os.mkdir(folder)
    places = [ProjectLocation(folder, "abc", str(tmp_path), folder, "git") for folder in folders]
    register(store, ProjectLocation(str(tmp_path), "abc", str(tmp_path), str(tmp_path), "git"))
    with ThreadPoolExecutor(len(places)) as pool:
        list(pool.map(register, [store] * len(places), places))
    assert sorted(store.read(("project", "abc"))["sandboxes"]) == folders


@pytest.mark.parametrize("result", [[], None, "text"])
def test_an_invalid_record_is_made_anew(repository: Path, result: Any) -> None:
    store = Memory()
    path = resolve(repository)
    store.write(("project", path.id), result)
    assert register(store, path).worktree == str(repository)


def test_sessions_of_global_in_that_folder_are_adopted_once(repository: Path) -> None:
    store = Memory()
    here = {"id": "ses_1", "projectID": "global", "directory": str(repository), "own": 1, "time": {"created": 1}}
    store.write(("session", "global", "ses_1"), here)
    store.write(("session", "global", "ses_2"), here | {"id": "ses_2", "directory": "/elsewhere"})
    path = resolve(repository)
    register(store, path)
    assert store.read(("session", path.id, "ses_1")) == here | {"projectID": path.id}
    with pytest.raises(NotFoundError):
        store.read(("session", "global", "ses_1"))
    assert store.list(("session", "global")) == [("session", "global", "ses_2")]


def test_the_global_record_has_no_vcs() -> None:
    record = register(Memory(), ProjectLocation("/x", "global", "/", "/", None))
    assert "vcs" not in record.document
    assert record.worktree == "/"


def test_a_database_of_1_15_keeps_a_project_under_the_cached_id_until_opencode_moves_it(
    repository: Path, tmp_path: Path
) -> None:
    root = resolve(repository, remember=True).id
    remote = "git@Example.com:me/Thing.git"
    git(repository, "remote", "add", "origin", remote)
    path = tmp_path / "opencode.db"
    with closing(sqlite3.connect(path)) as connection:
        connection.executescript((FIXTURES / "opencode-schemas" / "1.15.13.sql").read_text())
    with OpencodeDB(path) as store:
        location = resolve(repository, store=store)
        assert location.id == remote_id(remote), "OpenCode has not seen the project"
        register(store, msgspec.structs.replace(location, id=root))
        assert resolve(repository, store=store).id == root
        register(store, location)
        assert resolve(repository, store=store).id == remote_id(remote)


def test_clones_of_one_remote_are_a_project_whose_worktree_stays_the_first(repository: Path, tmp_path: Path) -> None:
    git(repository, "remote", "add", "origin", "git@example.com:me/thing")
    clone, linked = tmp_path / "clone", tmp_path / "linked"
    git(tmp_path, "clone", "-q", str(repository), str(clone))
    git(clone, "remote", "set-url", "origin", "https://example.com/me/thing")
    git(clone, "worktree", "add", "-q", str(linked))
    with OpencodeDB(empty_database(tmp_path / "data")) as store:
        known = [register(store, resolve(folder, store=store)) for folder in (repository, clone, linked, repository)]
    assert {(one.id, one.worktree) for one in known} == {(known[0].id, str(repository))}
    assert known[-1].sandboxes == (str(clone), str(linked))


def test_head_and_real_paths_identify_projects_since_1_2_27(repository: Path, tmp_path: Path) -> None:
    first = git(repository, "rev-list", "--max-parents=0", "HEAD")
    below = repository / "a"
    below.mkdir()
    (tmp_path / "link").symlink_to(below)
    broken = tmp_path / "broken"
    broken.mkdir()
    (broken / ".git").write_text("gitdir: /nowhere\n")
    for number in range(5):
        git(repository, "checkout", "-q", "--orphan", f"other{number}")
        commit(repository, f"unrelated {number}")
    git(repository, "checkout", "-q", "main")
    old = tmp_path / "opencode.db"
    with closing(sqlite3.connect(old)) as connection:
        connection.executescript((FIXTURES / "opencode-schemas" / "1.2.20.sql").read_text())
    with OpencodeDB(old) as store:
        assert resolve(repository, store=store) == resolve(repository)
        assert resolve(repository, store=store).id != first
        assert resolve(tmp_path / "link", store=store).id == "global"
    with OpencodeDB(empty_database(tmp_path / "1.2.27", V1_2)) as store:
        assert resolve(repository, store=store).id == first
        assert resolve(tmp_path / "link", store=store) == resolve(below, store=store)
        assert (resolve(broken, store=store).worktree, resolve(broken, store=store).vcs) == (str(broken), None)
    with OpencodeDB(empty_database(tmp_path / "1.18")) as store:
        assert (resolve(broken, store=store).worktree, resolve(broken, store=store).vcs) == ("/", None)


def test_a_submodule_or_a_checkout_of_a_bare_repository_is_its_own_worktree_since_1_15_11(
    repository: Path, tmp_path: Path
) -> None:
    git(repository, "init", "-q", "--separate-git-dir", str(tmp_path / "apart.git"))
    git(tmp_path, "clone", "-q", "--bare", str(repository), str(tmp_path / "bare.git"))
    git(tmp_path / "bare.git", "worktree", "add", "-q", str(tmp_path / "out"))
    git(repository, "worktree", "add", "-q", str(tmp_path / "linked"))
    with OpencodeDB(empty_database(tmp_path / "data")) as store:
        for folder in (repository, tmp_path / "out", tmp_path / "linked"):
            assert resolve(folder, store=store).worktree == str(folder)


def test_a_store_of_a_newer_opencode_names_a_project_by_its_remote(repository: Path, tmp_path: Path) -> None:
    root = resolve(repository).id
    with (
        OpencodeDB(empty_database(tmp_path / "new")) as newer,
        OpencodeDB(empty_database(tmp_path / "old", V1_2)) as old,
    ):
        assert resolve(repository, store=newer).id == root
        git(repository, "remote", "add", "origin", "git@Example.com:me/Thing.git")
        assert resolve(repository, store=newer).id == remote_id("https://example.com/me/Thing")
        assert resolve(repository, store=old).id == resolve(repository).id == root
        git(repository, "remote", "set-url", "origin", "../elsewhere")
        linked = tmp_path / "linked"
        git(repository, "worktree", "add", "-q", str(linked))
        (repository / ".git" / "opencode").write_text("cached")
        assert resolve(linked, store=newer).id == "cached"
