from __future__ import annotations

import random
import shutil
import sqlite3
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path

import pytest

from opensesh.errors import OpenseshError, StoreError
from opensesh.history.import_export.import_sources import read_sessions
from opensesh.history.import_export.importing import Importer
from opensesh.history.library import Library
from opensesh.storage import open_store
from opensesh.storage.json_tree.store import JsonTree
from opensesh.storage.protocol import Damage
from tests.cli.running import Terminal
from tests.history.sample_tree import Sample

from .test_odd_records import COMMANDS, EXIT_CODES

FIXTURES = Path(__file__).parents[1] / "fixtures"
READING = (
    *COMMANDS,
    ("show", "{healthy}"),
    ("show", "{healthy}", "--context"),
    ("agents",),
    ("models",),
)
WRITING = (
    ("import", "{copy}", "--keep-paths"),
    ("run", "--quiet", "-m", "scripted/prompt", "--session", "{healthy}", "SAY more"),
    ("session", "diff", "{healthy}", "--stat"),
    ("session", "fork", "{healthy}"),
    ("session", "rename", "{healthy}", "Healthy again"),
    ("session", "archive", "{healthy}"),
    ("session", "archive", "{healthy}", "--undo"),
    ("session", "move", "{healthy}", "."),
    ("session", "revert", "{healthy}", "--yes"),
    ("session", "unrevert", "{healthy}"),
    ("session", "compact", "{healthy}"),
    ("session", "remove", "{healthy}", "--yes"),
    ("session", "restore", "{healthy}"),
    ("session", "trash"),
)


def page_count(path: Path) -> tuple[int, int]:
    with sqlite3.connect(path) as connection:
        (size,) = connection.execute("PRAGMA page_size").fetchone()
    connection.close()
    return size, path.stat().st_size // size


def check(terminal: Terminal, words: tuple[str, ...], page: int, *, is_open: bool, **names: str) -> str:
    output = terminal.run(*(word.format(**names) for word in words))
    context = (page, words, terminal.error)
    # A database that cannot be opened at all may have the newer copy of a session: nothing is changed without it.
    is_refused = not is_open and words in WRITING and words[1] not in ("diff", "trash")
    if is_refused:
        assert (terminal.code, "to continue without it" in terminal.error) == (5, True), context
    else:
        assert terminal.code in {"import": (0, 1), **EXIT_CODES}.get(words[0], (0,)), context
    assert not any(sign in terminal.error for sign in ("internal error", "Traceback")), context
    return output


def attack(
    fixture: str,
    choose: Callable[[int], Iterable[int]],
    tmp_path: Path,
    terminal: Terminal,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    work, folder, healthy_tree, copy = (tmp_path / name for name in ("work", "data", "healthy", "copy"))
    for item in (work, folder, copy):
        item.mkdir()
    monkeypatch.chdir(work)
    sample = Sample(healthy_tree)
    session = sample.session("Healthy", directory=str(work), project="global")
    sample.prompt(session, model={"providerID": "scripted", "modelID": "prompt"})
    sample.answer(session)
    healthy = session["id"]
    monkeypatch.setenv("OPENSESH_STORE", str(folder))
    source, database = FIXTURES / fixture / "opencode.db", folder / "opencode.db"
    size, count = page_count(source)
    shutil.copy(source, database)
    shutil.copytree(healthy_tree, folder / "storage")
    everything = {entry.id for entry in Library(str(folder)).sessions()}
    for page in choose(count):
        shutil.rmtree(folder)
        shutil.copytree(healthy_tree, folder / "storage")
        shutil.copy(source, database)
        with database.open("r+b") as file:
            file.seek(page * size)
            file.write(bytes(size))
        damaged = database.read_bytes()
        shutil.copy(database, copy / "opencode.db")
        try:
            is_open, is_writable = True, open_store(str(database)).writable
        except StoreError:
            is_open = is_writable = False
        for words in READING:
            shutil.rmtree("out", ignore_errors=True)
            output = check(terminal, words, page, is_open=is_open, healthy=healthy)
            if words[0] in ("list", "export") and "--split" not in words:
                assert healthy in output or "Healthy" in output, (page, words, terminal.error)
            if words[:2] == ("list", "--json") and not all(name in output for name in everything):
                assert "damaged" in terminal.error, (page, words, terminal.error)
        library = Library(str(folder))
        for entry in library.sessions():
            with suppress(OpenseshError):
                _ = entry.totals, entry.inclusive_cost, entry.first_prompt, entry.transcript(children=True)
        assert healthy in [entry.id for entry in library.sessions()]
        assert [message.info["role"] for message in open_store(str(folder), report=library.report).messages(healthy)]
        for words in WRITING:
            check(terminal, words, page, is_open=is_open, healthy=healthy, copy=str(copy / "opencode.db"))
        assert is_writable or database.read_bytes() == damaged, page


@pytest.mark.parametrize("fixture", ["opencode-1.2", "opencode-1.18.33"])
def test_h5_a_damaged_page_affects_no_other_store(
    fixture: str, tmp_path: Path, terminal: Terminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    attack(fixture, lambda count: random.Random(13).sample(range(count), 4), tmp_path, terminal, monkeypatch)


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("fixture", ["opencode-1.2", "opencode-1.18.33"])
def test_h5_no_damaged_page_affects_another_store(
    fixture: str, tmp_path: Path, terminal: Terminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    attack(fixture, range, tmp_path, terminal, monkeypatch)


@pytest.mark.parametrize("page", [12, 35, 37])
def test_h5_an_import_goes_to_the_tree_where_the_database_is_damaged(page: int, tmp_path: Path) -> None:
    source = FIXTURES / "opencode-1.18.33" / "opencode.db"
    size, _ = page_count(source)
    (tmp_path / "storage").mkdir()
    shutil.copy(source, tmp_path / "opencode.db")
    with (tmp_path / "opencode.db").open("r+b") as file:
        file.seek(page * size)
        file.write(bytes(size))
    store, damage = open_store(str(tmp_path)), list[Damage]()
    results = Importer(store, report=damage.append).take(read_sessions(str(FIXTURES / "opencode-1.1.65" / "storage")))
    assert {result.act for result in results} == {"added"}
    assert [reason for _, reason in damage if reason.startswith(f"sessions go to {tmp_path / 'storage'}")]
    stored = {key[-1] for key in JsonTree(tmp_path / "storage").list(("session",))}
    # Those before the damage showed are in the database.
    assert results[-1].id in stored
    assert {result.id for result in results} <= {key[-1] for key in open_store(str(tmp_path)).list(("session",))}
    store.close()
