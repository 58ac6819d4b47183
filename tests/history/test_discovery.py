from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from opensesh import history
from opensesh.errors import NotFoundError
from opensesh.history.discovery import (
    base_name,
    current_project,
    find_project_groups,
    labels,
    project_groups,
    resolve_path_argument,
    session_project_name,
)
from opensesh.history.library import Library, SessionFilter

from .sample_stores import Tree


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    return Tree(tmp_path / "storage")


@pytest.fixture
def library(tree: Tree) -> Library:
    tree.project("global", "/")
    tree.project("aaa111", "/srv/dev/eastore", vcs="git", sandboxes=["/srv/dev/eastore-review"])
    tree.project("bbb222", "/srv/dev/weststore", vcs="git")
    tree.project("ccc333", "/home/me/site", name="Web Shop", vcs="git")
    return history.open(str(tree.root.parent))


def ids(library: Library, name: str) -> list[str]:
    return sorted(session.id for session in library.sessions(project=name))


@pytest.mark.parametrize(
    ("name", "projects"),
    [
        ("aaa111", ["aaa111"]),
        ("eastore", ["aaa111"]),
        ("EASTORE", ["aaa111"]),
        ("/srv/dev/eastore", ["aaa111"]),
        ("/srv/dev/eastore/", ["aaa111"]),
        ("eastore-review", ["aaa111"]),
        ("web shop", ["ccc333"]),
        ("site", ["ccc333"]),
        ("store", ["aaa111", "bbb222"]),
        ("easstore", ["aaa111"]),
        ("weststoer", ["bbb222"]),
        ("Global", ["global"]),
        ("qqqq", []),
    ],
)
def test_projects_go_by_many_names_and_roughly(library: Library, name: str, projects: list[str]) -> None:
    assert [group.project.id for group in find_project_groups(project_groups(library.projects, []), name)] == projects


@pytest.mark.parametrize(
    ("name", "projects"),
    [
        ("easst", ["eastwood"]),
        ("eaastw", ["eastwood"]),
        ("esatw", ["eastwood"]),
        ("eastv", ["eastwood"]),
        ("natur", ["two"]),
        ("natuer", ["two"]),
        ("dashbaord", ["two"]),
        ("dushboa", ["two"]),
        ("eats", []),
        ("wwood", []),
        ("least", []),
        ("xastw", []),
        ("homme", []),
        ("paint", []),
        ("0123x", []),
    ],
)
def test_one_wrong_letter_in_the_beginning_of_a_name_is_forgiven(tree: Tree, name: str, projects: list[str]) -> None:
    tree.project("eastwood", "/home/me/eastwood", vcs="git")
    tree.project("two", "/home/me/natural-dashboard-of-everything", vcs="git")
    tree.project("0123456789" * 4, "/home/me/printing", vcs="git")
    library = history.open(str(tree.root.parent))
    assert [group.project.id for group in find_project_groups(project_groups(library.projects, []), name)] == projects


def test_projects_go_by_their_remote(tree: Tree, tmp_path: Path) -> None:
    clone = tmp_path / "clone"
    (clone / ".git").mkdir(parents=True)
    (clone / ".git" / "config").write_text('[remote "origin"]\n\turl = git@example.com:acme/rocket.git\n')
    tree.project("ddd444", str(clone))
    session = tree.session(project="ddd444", directory=str(clone))
    library = history.open(str(tree.root.parent))
    assert {"rocket", "acme/rocket"} < set(labels(library.projects[0]))
    for name in ("rocket", "acme/rocket", "rockte"):
        assert ids(library, name) == [session]


def test_a_project_without_a_folder_has_no_remote(tree: Tree, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / ".git").mkdir()
    (tmp_path / ".git" / "config").write_text('[remote "origin"]\n\turl = git@example.com:acme/rocket.git\n')
    monkeypatch.chdir(tmp_path)
    tree.project("ddd444", "")
    assert labels(history.open(str(tree.root.parent)).projects[0]) == ["ddd444"]


def test_a_folder_of_another_machine_is_called_by_its_last_step(tree: Tree) -> None:
    tree.project("ddd444", "C:\\Dev\\Shop")
    tree.project("global", "/")
    result = project_groups(history.open(str(tree.root.parent)).projects, ["D:\\My Notes\\"])
    assert [item.title for item in result] == ["Shop", "My Notes"]


def test_sessions_of_a_project_are_found_however_they_are_filed(tree: Tree, library: Library) -> None:
    filed = tree.session(project="aaa111", directory="/old/place")
    worktree = tree.session(project="eee555", directory="/srv/dev/eastore-review")
    before = tree.session(project="global", directory="/srv/dev/eastore")
    below = tree.session(project="global", directory="/srv/dev/eastore/packages/api")
    tree.session(project="global", directory="/srv/dev/eastore2")
    tree.session(project="bbb222", directory="/srv/dev/weststore")
    assert ids(library, "aaa111") == sorted([filed, worktree, before, below])


def test_a_folder_outside_of_version_control_is_found_by_its_name(tree: Tree, library: Library) -> None:
    notes = tree.session(project="global", directory="/home/me/notes")
    other = tree.session(project="global", directory="/home/me/other")
    assert ids(library, "notes") == [notes]
    assert ids(library, "ntoes") == [notes]
    assert ids(library, "global") == sorted([notes, other])


def test_the_folder_that_was_opened_last_outside_of_a_project_says_nothing_of_the_others(
    tree: Tree, library: Library
) -> None:
    tree.project("global", "/home/me/shop", vcs="git", sandboxes=["/home/me/stall"])
    proj = tree.session(project="global", directory="/home/me/proj")
    shop = tree.session(project="global", directory="/home/me/shop")
    assert (ids(library, "shop"), ids(library, "proj")) == ([shop], [proj])
    assert ids(library, "global") == sorted([shop, proj])
    with pytest.raises(NotFoundError):
        library.resolve_project("stall")
    known = project_groups(library.projects, ["/home/me/proj", "/home/me/shop", "/"])
    assert [(item.title, item.folder) for item in known if item.project.id == "global"] == [
        ("global", "/"),
        ("proj", "/home/me/proj"),
        ("shop", "/home/me/shop"),
    ]


def test_two_records_of_one_folder_are_one_project(tree: Tree, library: Library) -> None:
    tree.project("fff666", "/srv/dev/eastore")
    old = tree.session(project="fff666", directory="/somewhere")
    new = tree.session(project="aaa111", directory="/srv/dev/eastore")
    assert ids(library, "aaa111") == sorted([old, new])


def test_titles_are_the_last_resort(tree: Tree, library: Library) -> None:
    named = tree.session(project="bbb222", title="Rewrite the frobnicator")
    tree.session(project="bbb222")
    assert ids(library, "frobnicator") == [named]
    with pytest.raises(NotFoundError, match="no project resembles 'nowhere-at-all'"):
        library.resolve_project("nowhere-at-all")


def test_what_may_belong_here_is_counted(tree: Tree, library: Library) -> None:
    tree.session(project="aaa111", directory="/srv/dev/eastore")
    tree.session(project="global", directory="/mnt/backup/eastore")
    tree.session(project="bbb222", directory="/srv/dev/weststore", title="Port a fix to eastore")
    tree.session(project="bbb222", directory="/srv/dev/weststore", title="Something else")
    tree.session(project="global", directory="/mnt/backup/eastore", parentID="ses_x")
    result = library.overview(SessionFilter(library.resolve_project("aaa111")))
    assert (result.total, result.possible_matches) == (1, 1)
    result = library.overview(SessionFilter(library.resolve_project("/srv/dev/eastore")))
    assert (result.total, result.possible_matches) == (1, 1)
    result = library.overview(SessionFilter(library.resolve_project("eastore")))
    assert (result.total, result.possible_matches) == (2, 1)
    assert library.overview(SessionFilter()).possible_matches == 0


def test_here_is_the_project_of_a_directory(tree: Tree, tmp_path: Path) -> None:
    repository = tmp_path / "repo"
    (repository / "sub").mkdir(parents=True)
    for words in (("init", "-q"), ("commit", "-q", "--allow-empty", "-m", "x")):
        subprocess.run(["git", *words], cwd=repository, check=True)
    library = history.open(str(tree.root.parent))
    chosen = current_project(str(repository / "sub"))
    (identity,) = chosen.projects
    filed = tree.session(project=identity, directory="/elsewhere")
    inside = tree.session(project="global", directory=str(repository))
    moved = tree.session(project="global", directory="/gone/repo")
    result = library.overview(SessionFilter(chosen))
    assert sorted(item.id for item in result.sessions) == sorted([filed, inside])
    assert result.possible_matches == 1
    assert moved not in [item.id for item in result.sessions]
    plain = current_project(str(tmp_path))
    assert plain.matches("global", str(tmp_path), "")
    assert not plain.matches("global", "/", "")


def test_a_way_from_here_or_from_home_means_the_project_of_the_folder_it_leads_to(
    tree: Tree, library: Library, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop = tmp_path / "shop"
    (shop / "sub").mkdir(parents=True)
    session = tree.session(project="global", directory=str(shop))
    tree.session(project="global", directory=str(tmp_path))
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(shop)
    known = project_groups(library.projects, [str(shop), str(tmp_path)])
    for way in (".", "./", "../shop", "~/shop"):
        assert ids(library, way) == [session]
        assert [group.folder for group in find_project_groups(known, way)] == [str(shop)]
    monkeypatch.chdir(shop / "sub")
    assert ids(library, "..") == [session]
    assert [resolve_path_argument(name) for name in ("./shop", "../nowhere", "...", ".shop", "~shop", "sub")] == [
        ""
    ] * 6


def test_names_of_folders_of_any_machine() -> None:
    assert [base_name(folder) for folder in ("/a/Bc/", "C:\\x\\Y", "", "/")] == ["bc", "y", "", ""]


def test_a_session_outside_of_any_project_is_shown_with_its_folder_as_it_is_spelt() -> None:
    named = [session_project_name(None, "global", folder) for folder in ("/home/me/MyNotes/", "C:\\Work", "/")]
    assert named == ["MyNotes", "Work", "global"]
