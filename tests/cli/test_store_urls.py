from __future__ import annotations

import sys
from pathlib import Path

import pytest

from .running import Terminal

PACKAGE = """from opensesh.storage.memory import Memory

STORES = {}


def open_shelf(url):
    store = STORES.setdefault(url, Memory())
    store.place = store.id = url
    return store
"""


@pytest.fixture
def shelf(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    (tmp_path / "shelf.py").write_text(PACKAGE)
    metadata = tmp_path / "shelf-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: shelf\nVersion: 1.0\n")
    (metadata / "entry_points.txt").write_text("[opensesh.stores]\nshelf = shelf:open_shelf\n")
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    monkeypatch.delitem(sys.modules, "shelf", raising=False)
    return "shelf://team"


@pytest.mark.parametrize("as_variable", [False, True])
def test_every_command_takes_the_url_of_a_store(
    terminal: Terminal, shelf: str, monkeypatch: pytest.MonkeyPatch, as_variable: bool
) -> None:
    place = () if as_variable else ("--store", shelf)
    if as_variable:
        monkeypatch.setenv("OPENSESH_STORE", shelf)
    assert terminal.run("run", "-m", "scripted/prompt", "SAY Over the rainbow.", *place) == "Over the rainbow.\n"
    for words in (["list"], ["show", "last"], ["projects"], ["export", "last"], ["session", "rename", "last", "New"]):
        assert terminal.run(*words, *place), words
        assert terminal.code == 0, words
    assert "rainbow" in terminal.run("search", "rainbow", *place)
    assert "total" in terminal.run("stats", *place)
    assert shelf in terminal.run("doctor", *place)
    assert "Moved to the trash: 1 session" in terminal.run("session", "remove", "last", "--yes", *place)
    assert "records restored" in terminal.run("session", "restore", "last", *place)


def test_a_url_that_no_store_is_registered_for_is_named(terminal: Terminal, shelf: str) -> None:
    for words in (["list"], ["search", "x"], ["stats"], ["doctor"]):
        terminal.run(*words, "--store", "other://x")
        assert terminal.code == 5
        assert "no store is registered for other:// URLs (registered: shelf://)" in terminal.error
