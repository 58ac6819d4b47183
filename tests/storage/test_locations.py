from __future__ import annotations

from pathlib import Path

import pytest

from opensesh.errors import StoreError
from opensesh.storage.locations import databases, find_stores, is_users_own


def found(place: str | None = None) -> tuple[str, str | None, tuple[str, ...]]:
    stores = find_stores(place)
    return stores.path, stores.tree, stores.databases


def made(folder: Path, *names: str) -> list[str]:
    folder.mkdir(parents=True, exist_ok=True)
    for name in names:
        (folder / name).write_bytes(b"")
    return [str(folder / name) for name in names]


def test_without_a_word_it_is_the_data_folder_of_opencode(isolated: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = isolated / ".local" / "share" / "opencode"
    assert found() == (str(data), str(data / "storage"), ())
    (database,) = made(data, "opencode.db")
    assert find_stores().databases == (database,)
    monkeypatch.setenv("OPENSESH_STORE", str(isolated / "mine"))
    assert find_stores().tree == str(isolated / "mine" / "storage")
    assert find_stores(str(data)).databases == (database,)


def test_a_place_may_be_a_database_a_tree_or_a_data_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (database,) = made(tmp_path / "data", "opencode.db")
    assert found(database) == (database, None, (database,))
    (tmp_path / "data" / "storage" / "session").mkdir(parents=True)
    tree = str(tmp_path / "data" / "storage")
    assert found(str(tmp_path / "data")) == (str(tmp_path / "data"), tree, (database,))
    assert found(tree) == (tree, tree, ())
    monkeypatch.chdir(tmp_path)
    assert find_stores("data/storage").tree == tree
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("USERPROFILE", str(tmp_path))
    assert find_stores("~/data").databases == (database,)


@pytest.mark.parametrize("name", ["project/a.json", "session", "message", "part", "migration"])
def test_a_tree_is_known_by_any_of_its_folders(tmp_path: Path, name: str) -> None:
    (tmp_path / name).mkdir(parents=True)
    assert find_stores(str(tmp_path)).tree == str(tmp_path)
    (tmp_path / "storage").mkdir()
    assert find_stores(str(tmp_path)).tree == str(tmp_path / "storage")


def test_a_url_is_not_a_path() -> None:
    with pytest.raises(StoreError, match="is not a path") as caught:
        find_stores("postgresql://me@host/db")
    assert caught.value.data == {"place": "postgresql://me@host/db"}


def test_the_released_database_comes_first_and_copies_are_left_out(tmp_path: Path) -> None:
    for name in (
        "opencode-next.db",
        "opencode.db",
        "opencode.db-wal",
        "opencode.db-shm",
        "opencode-local.db",
        "opencode-fix-123.db",
        "opencode.db.bak",
        "opencode-backup.db",
        "opencode-backup-2026-01-01.db",
        "opencode-local.old.db",
        "opencode.copy.db",
        "opencode-copy2.db",
        "opencode-OLD.db",
        "opencode-x-tmp.db",
        "opencode-a b.db",
        "opencodex.db",
        "opencode",
        "other.db",
        "auth.json",
    ):
        (tmp_path / name).touch()
    (tmp_path / "opencode-folder.db").mkdir()
    names = ["opencode.db", "opencode-fix-123.db", "opencode-local.db", "opencode-next.db"]
    assert databases(tmp_path) == [str(tmp_path / name) for name in names]
    assert databases(tmp_path / "absent") == []


def test_the_environment_names_another(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data, backup = tmp_path / "share" / "opencode", tmp_path / "backup"
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "share"))
    [database, named] = made(data, "opencode.db", "mine.sqlite")
    [elsewhere] = made(tmp_path, "elsewhere.db")
    [saved] = made(backup, "opencode.db")
    assert databases(data, {"OPENCODE_DB": "mine.sqlite"}) == [named]
    assert databases(data, {"OPENCODE_DB": elsewhere}) == [elsewhere]
    assert databases(data, {"OPENCODE_DB": "absent.db"}) == []
    for nothing in ("", ":memory:"):
        assert databases(data, {"OPENCODE_DB": nothing}) == [database]
    for other in ("mine.sqlite", elsewhere, "absent.db"):
        assert databases(backup, {"OPENCODE_DB": other}) == [saved]
    monkeypatch.setenv("OPENCODE_DB", "mine.sqlite")
    assert databases(data) == [*find_stores().databases] == [named]


def test_a_database_elsewhere_is_the_users_own_if_opencode_uses_it(
    isolated: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = isolated / ".local" / "share" / "opencode"
    own, other = made(tmp_path / "elsewhere", "own.db", "other.db")
    made(data, "opencode-local.db")
    assert is_users_own([str(data / "opencode-local.db"), str(data)])
    assert not is_users_own([own])
    (data / "opencode.db").symlink_to(own)
    assert is_users_own([own, str(data)])
    assert not is_users_own([own, other])
    (data / "opencode.db").unlink()
    monkeypatch.setenv("OPENCODE_DB", own)
    assert is_users_own([own, str(data)])
    assert not is_users_own([other])


def test_an_empty_folder_named_storage_is_a_tree(tmp_path: Path) -> None:
    tree = tmp_path / "storage"
    assert find_stores(str(tree)).tree == str(tree)
    tree.mkdir()
    assert find_stores(str(tree)).tree == str(tree)
    assert find_stores(str(tmp_path)).tree == str(tree)
