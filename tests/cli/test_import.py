from __future__ import annotations

import io
import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from ..history.sample_tree import Sample, contents
from ..storage.opencode_databases import assert_sound, copy_database, empty_database, execute, select
from .running import Screen, Terminal

FIXTURES = Path(__file__).parents[1] / "fixtures"


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("OPENSESH_STORE", str(tmp_path / "here"))
    return tmp_path / "here" / "storage"


def test_what_was_exported_comes_back(terminal: Terminal, here: Path, tmp_path: Path) -> None:
    tree = str(FIXTURES / "opencode-1.1.65" / "storage")
    out = tmp_path / "all.json"
    terminal.run("export", "--format", "json", "-o", str(out), "--store", tree)
    answer = terminal.json("import", str(out))
    assert (terminal.code, answer["counts"]) == (0, {"added": 13})
    assert terminal.json("import", str(out), tree)["counts"] == {"unchanged": 26}
    assert terminal.run("export", "--format", "json") == out.read_text()
    assert terminal.run("import", tree) == "13 sessions: 13 unchanged.\n"


def test_a_text_that_is_not_an_export_is_refused(terminal: Terminal, here: Path, tmp_path: Path) -> None:
    for text in ("hello\n", "two\nlines\n", ""):
        (tmp_path / "notes.txt").write_text(text)
        terminal.run("import", str(tmp_path / "notes.txt"))
        assert terminal.code == 2
        assert "not a session. Can be imported: OpenCode's export JSON" in terminal.error


def test_an_export_comes_in_through_a_pipe(terminal: Terminal, here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    exported = terminal.run("export", "--format", "json", "--store", str(FIXTURES / "opencode-1.1.65" / "storage"))

    def piped(data: bytes) -> str:
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(data)))
        return terminal.run("import", "-")

    assert "13 sessions: 13 added." in piped(exported.encode())
    assert piped(exported.encode()) == "13 sessions: 13 unchanged.\n"
    assert terminal.run("export", "--format", "json") == exported
    for data, reported in ((b"", "standard input is empty"), (b"[1]", "standard input: not a session.")):
        piped(data)
        assert terminal.code == 2
        assert reported in terminal.error
    piped(exported.encode()[:5000])
    assert terminal.code == 5
    assert "standard input at byte 5000: torn: it ends in the middle; export it again" in terminal.error


def test_one_file_of_several_that_cannot_be_brought_in_stops_none_of_the_others(
    terminal: Terminal, here: Path, tmp_path: Path
) -> None:
    names = ["ses_e1f505ae8ffev56KO8VQGT1kHX", "ses_e1f503b9bffe3fk9XpM2JtHmpJ"]
    for name in names:
        store = str(FIXTURES / "opencode-1.1.65" / "storage")
        terminal.run("export", name, "--format", "json", "-o", str(tmp_path / f"{name}.json"), "--store", store)
    (tmp_path / "cut.json").write_text('{\n  "info": {\n')
    files = [str(tmp_path / f"{name}.json") for name in (names[0], "cut", "nowhere", names[1])]
    assert terminal.run("import", *files).endswith("2 sessions: 2 added.\n")
    assert terminal.code == 1
    for text in (f"{files[1]}: torn: it ends in the middle", f"{files[2]}: {files[2]} does not exist"):
        assert text in terminal.error


def test_a_database_is_copied_into_the_tree(terminal: Terminal, here: Path) -> None:
    path = str(FIXTURES / "opencode-1.18.33" / "opencode.db")
    assert "13 would be added" in terminal.run("import", path, "--dry-run")
    assert not here.exists()
    assert "13 added" in terminal.run("import", path)
    assert len(list(here.glob("session/*/*.json"))) == 13
    assert terminal.json("list", "--limit", "0", "--children", "--archived")["total"] == 13


def test_folders_are_mapped_as_given(terminal: Terminal, here: Path, tmp_path: Path) -> None:
    sample = Sample(tmp_path / "there")
    session = sample.talk()
    (tmp_path / "shop").mkdir()
    terminal.run("import", str(tmp_path / "there"), "--map", f"/srv/dev/shop={tmp_path / 'shop'}")
    assert terminal.json("show", session["id"])["info"]["directory"] == str(tmp_path / "shop")


@pytest.mark.parametrize("arguments", ["nonsense", "relative=/srv", "=/srv", "/srv="])
def test_a_mapping_that_cannot_mean_anything_is_refused(terminal: Terminal, here: Path, arguments: str) -> None:
    terminal.run("import", str(FIXTURES / "opencode-1.1.65" / "storage"), "--map", arguments)
    assert terminal.code == 2
    assert "--map OLD=NEW" in terminal.error
    assert not here.exists()


def test_where_nothing_can_be_stored_no_session_is_blamed(terminal: Terminal, here: Path) -> None:
    here.parent.mkdir()
    here.write_text("no folder")
    assert terminal.run("import", str(FIXTURES / "opencode-1.1.65" / "storage"), "--keep-paths") == ""
    assert terminal.code == 5
    assert terminal.error.startswith(f"opensesh: {here}")
    assert terminal.error.count("\n") == 1


def test_a_folder_without_a_session_is_reported(terminal: Terminal, here: Path, tmp_path: Path) -> None:
    assert terminal.run("import", str(tmp_path)) == "No sessions found.\n"
    assert terminal.code == 0


def test_records_are_counted_one_and_many(terminal: Terminal, here: Path, tmp_path: Path) -> None:
    sample = Sample(tmp_path / "there")
    one = sample.session("Alone")["id"]
    terminal.run("import", str(tmp_path / "there"))
    sample.write(("todo", one), [{"id": "1", "content": "look", "status": "pending"}])
    assert f"extended   {one}        1 record  Alone\n" in terminal.run("import", str(tmp_path / "there"))


def test_folders_that_are_not_here_are_asked_for(
    here: Path, tmp_path: Path, terminal: Terminal, screen: Callable[..., Screen]
) -> None:
    sample = Sample(tmp_path / "there")
    session = sample.talk()
    (tmp_path / "shop").mkdir()
    asked = screen("import", str(tmp_path / "there"))
    asked.until("/srv/dev/shop (1 session) does not exist here. Where is it now? [leave it] ")
    asked.type(f"{tmp_path / 'shop'}\n")
    asked.until("1 added")
    assert asked.end() == 0
    assert terminal.json("show", session["id"])["info"]["directory"] == str(tmp_path / "shop")


def test_what_cannot_be_imported_is_reported_in_one_line(terminal: Terminal, here: Path, tmp_path: Path) -> None:
    (tmp_path / "x.jsonl").write_text('{"session_id": "ses_1", "messages": []}\n')
    terminal.run("import", str(tmp_path / "x.jsonl"))
    assert (terminal.code, terminal.error.count("\n")) == (2, 1)
    assert "Can be imported: OpenCode's export JSON" in terminal.error
    terminal.run("import", str(tmp_path / "nothing"))
    assert terminal.code == 3
    (tmp_path / "evil.json").write_text(json.dumps({"info": {"id": "../x"}, "messages": []}))
    terminal.run("import", str(tmp_path / "evil.json"))
    assert terminal.code == 1
    here.mkdir(parents=True)
    terminal.run("import", str(here))
    assert (terminal.code, "is the store that sessions are imported into" in terminal.error) == (2, True)


def test_a_database_that_is_only_read_is_not_imported_into(terminal: Terminal, tmp_path: Path) -> None:
    database = copy_database(tmp_path)
    execute(database, "CREATE TRIGGER other AFTER INSERT ON session BEGIN SELECT 1; END")
    before = select(database, "SELECT id FROM session ORDER BY id")
    terminal.run("import", str(FIXTURES / "opencode-1.1.65" / "storage"), "--store", str(database))
    assert (terminal.code, "is read-only" in terminal.error) == (5, True)
    assert select(database, "SELECT id FROM session ORDER BY id") == before


def test_the_tree_of_a_data_folder_is_imported_into_its_database(terminal: Terminal, tmp_path: Path) -> None:
    data = tmp_path / "data"
    database = empty_database(data)
    tree = data / "storage"
    shutil.copytree(FIXTURES / "opencode-1.1.65" / "storage", tree)
    before = contents(tree)
    store = ("--store", str(data))
    assert "13 would be added" in terminal.run("import", str(tree), *store, "--dry-run")
    assert select(database, "SELECT count(*) FROM session") == [(0,)]
    assert "13 added" in terminal.run("import", str(tree), *store)
    assert terminal.run("import", str(tree), *store) == "13 sessions: 13 unchanged.\n"
    assert contents(tree) == before
    assert_sound(database)
    checked = terminal.json("doctor", *store)
    assert [(part["sessions"], part["onlyHere"]) for part in checked["stores"]] == [(13, 0), (13, 0)]
    assert checked["newSessions"] == {"place": str(database), "reason": "OpenCode looks there"}
    terminal.run("import", str(data), *store)
    assert (terminal.code, "name that store" in terminal.error) == (2, True)
