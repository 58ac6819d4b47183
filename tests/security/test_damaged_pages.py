from __future__ import annotations

import shutil
import sqlite3
from pathlib import Path

import pytest

from opensesh.history.library import Library
from opensesh.storage import open_store
from tests.cli.running import Terminal
from tests.history.sample_tree import Sample

FIXTURES = Path(__file__).parents[1] / "fixtures"
COMMANDS = (
    ("list", "--limit", "0", "--children"),
    ("list", "--json"),
    ("projects",),
    ("show", "last"),
    ("search", "answer"),
    ("stats",),
    ("export", "--format", "jsonl"),
    ("export", "--format", "json"),
)


def page_count(path: Path) -> tuple[int, int]:
    with sqlite3.connect(path) as connection:
        (size,) = connection.execute("PRAGMA page_size").fetchone()
    connection.close()
    return size, path.stat().st_size // size


def attack(fixture: str, pages: slice, tmp_path: Path, terminal: Terminal, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "data"
    folder.mkdir()
    sample = Sample(folder / "storage")
    healthy = sample.talk("Healthy")["id"]
    monkeypatch.setenv("OPENSESH_STORE", str(folder))
    source, database = FIXTURES / fixture / "opencode.db", folder / "opencode.db"
    size, count = page_count(source)
    shutil.copy(source, database)
    everything = {entry.id for entry in Library(str(folder)).sessions()}
    for page in range(count)[pages]:
        for name in folder.glob("opencode.db*"):
            name.unlink()
        shutil.copy(source, database)
        with database.open("r+b") as file:
            file.seek(page * size)
            file.write(bytes(size))
        for words in COMMANDS:
            output = terminal.run(*words)
            assert terminal.code == 0, (page, words, terminal.error)
            assert "internal error" not in terminal.error, (page, words, terminal.error)
            if words[0] in ("list", "export"):
                assert healthy in output, (page, words, terminal.error)
            if words[0] == "list" and not all(name in output for name in everything):
                assert "damaged" in terminal.error, (page, words, terminal.error)
        library = Library(str(folder))
        assert healthy in [entry.id for entry in library.sessions()]
        assert [message.info["role"] for message in open_store(str(folder), report=library.report).messages(healthy)]


@pytest.mark.parametrize("fixture", ["opencode-1.2", "opencode-1.18.33"])
def test_h5_a_damaged_page_costs_no_other_store(
    fixture: str, tmp_path: Path, terminal: Terminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    attack(fixture, slice(1, None, 12), tmp_path, terminal, monkeypatch)


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("fixture", ["opencode-1.2", "opencode-1.18.33"])
def test_h5_no_damaged_page_costs_another_store(
    fixture: str, tmp_path: Path, terminal: Terminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    attack(fixture, slice(None), tmp_path, terminal, monkeypatch)
