from __future__ import annotations

import sys
from pathlib import Path

import pytest

from opensesh.errors import StoreError
from opensesh.storage import open_store
from opensesh.storage.memory import Memory
from opensesh.storage.registry import new_sessions_place

from .opencode_databases import copy_database, execute


def install(folder: Path, value: str) -> None:
    (folder / "shelf.py").write_text(
        "from opensesh.storage.memory import Memory\n\n\ndef open_shelf(url):\n"
        "    store = Memory()\n    store.place = url\n    return store\n"
    )
    metadata = folder / "shelf-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: shelf\nVersion: 1.0\n")
    (metadata / "entry_points.txt").write_text(f"[opensesh.stores]\nshelf = {value}\n")


def test_a_package_registers_a_url_scheme(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(tmp_path, "shelf:open_shelf")
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    store = open_store("shelf://team/sessions")
    monkeypatch.delitem(sys.modules, "shelf")
    assert isinstance(store, Memory)
    assert store.place == "shelf://team/sessions"
    pattern = r"no store is registered for other:// URLs \(registered: shelf://\)"
    with pytest.raises(StoreError, match=pattern) as caught:
        open_store("other://x")
    assert caught.value.data == {"place": "other://x"}


def test_a_registered_store_that_cannot_be_loaded_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(tmp_path, "no_such_module:open_shelf")
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    with pytest.raises(StoreError, match="cannot be loaded from no_such_module:open_shelf"):
        open_store("shelf://x")


def test_new_sessions_go_to_the_store_where_opencode_looks(tmp_path: Path) -> None:
    data = tmp_path / "data"
    tree, database = str(data / "storage"), copy_database(data)
    assert new_sessions_place(open_store(str(data))) == (str(database), "OpenCode looks there")
    (data / "storage" / "session").mkdir(parents=True)
    assert new_sessions_place(open_store(tree)) == (tree, "it was named")
    execute(database, "CREATE TRIGGER other AFTER INSERT ON session BEGIN SELECT 1; END")
    path, reason = new_sessions_place(open_store(str(data)))
    assert (path, reason.startswith(f"{database} is only read: ")) == (tree, True)
    assert new_sessions_place(open_store(str(database))) == ("", reason)
    database.write_bytes(b"not a database")
    opened = open_store(str(data), report=lambda damage: None)
    assert new_sessions_place(opened) == (tree, f"{database} cannot be opened")
    database.unlink()
    assert new_sessions_place(open_store(str(data))) == (tree, "there is no database of OpenCode")
