from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

from ..history.sample_tree import Sample, contents
from .running import Screen, Terminal

FIXTURES = Path(__file__).parents[1] / "fixtures"


def test_each_finding_is_a_line_and_damage_is_a_number(terminal: Terminal, store: Path) -> None:
    out = terminal.run("doctor")
    assert terminal.code == 0
    assert "      13        54    133         13" in out
    assert "folder      /srv/dev/eastore: the folder of 13 sessions does not exist any more" in out
    assert "1 inconsistent, 1 note. --fix repairs 1 of them." in out
    next((store / "part").glob("*/*.json")).write_bytes(b"")
    assert "the file is empty" in terminal.run("doctor")
    assert terminal.code == 5
    answer = terminal.json("doctor")
    assert {finding["kind"] for finding in answer["findings"]} == {"torn", "orphan", "folder"}
    assert answer["stores"][0]["sessions"] == 13


def test_a_missing_folder_is_one_finding_for_all_stores(terminal: Terminal, tmp_path: Path) -> None:
    shutil.copytree(FIXTURES / "opencode-1.1.65" / "storage", tmp_path / "data" / "storage")
    shutil.copy(FIXTURES / "opencode-1.18.33" / "opencode.db", tmp_path / "data" / "opencode.db")
    findings = terminal.json("doctor", "--store", str(tmp_path / "data"))["findings"]
    folders = [finding["path"] for finding in findings if finding["kind"] == "folder"]
    assert len(folders) == len(set(folders)) > 0


def test_repairs_are_made_once_and_taken_back(terminal: Terminal, store: Path) -> None:
    next((store / "part").glob("*/*.json")).write_bytes(b"")
    before = contents(store)
    answer = terminal.json("doctor", "--fix")
    assert (terminal.code, answer["fixed"], answer["files"]) == (0, 2, 2)
    after = contents(store)
    again = terminal.json("doctor", "--fix")
    assert (again["fixed"], again["undo"], contents(store) == after) == (0, None, True)
    assert terminal.json("doctor", "--undo", answer["undo"]) == {"restored": 2, "left": []}
    assert contents(store) == before
    terminal.run("doctor", "--undo", answer["undo"])
    assert terminal.code == 3
    out = terminal.run("doctor", "--fix")
    assert "(fixed)" in out
    assert "2 repaired, 2 records changed or quarantined.\n" in out
    undo = out.partition("opensesh doctor --undo ")[2].split()[0]
    assert terminal.run("doctor", "--undo", undo) == "2 records restored.\n"


def test_many_findings_of_a_kind_are_cut_short(terminal: Terminal, store: Path) -> None:
    for number in range(20):
        (store / "todo" / f"ses_{number:02d}.json").write_text("[]")
    out = terminal.run("doctor")
    assert "... and 13 more; --all shows them" in out
    assert "ses_19" not in out
    assert "ses_19" in terminal.run("doctor", "--all")


def test_an_old_tree_is_brought_forward_when_asked(terminal: Terminal, store: Path) -> None:
    (store / "migration").write_text("1")
    assert "opensesh doctor --migrate migrates it" in terminal.run("doctor")
    assert terminal.json("doctor", "--migrate")["steps"] == 1
    assert (store / "migration").read_text() == "2"
    terminal.run("doctor", "--fix", "--migrate")
    assert terminal.code == 2


def test_a_database_alone_is_looked_at_and_never_touched(terminal: Terminal) -> None:
    path = FIXTURES / "opencode-1.2" / "opencode.db"
    before = path.read_bytes()
    answer = terminal.json("doctor", "--fix", "--store", str(path))
    assert [(finding["kind"], finding["fixable"]) for finding in answer["findings"]] == [("folder", False)]
    assert answer["stores"][0]["sessions"] == 13
    assert path.read_bytes() == before


def test_an_empty_place_has_nothing_wrong_with_it(terminal: Terminal, tmp_path: Path) -> None:
    assert "No problems found." in terminal.run("doctor", "--store", str(tmp_path))


def test_a_remedy_stands_below_what_it_is_for(terminal: Terminal, sample: Sample) -> None:
    for folder in ("/gone/one", "/gone/other"):
        sample.talk(directory=folder)
    lines = terminal.run("doctor").splitlines()
    for folder in ("/gone/one", "/gone/other"):
        at = lines.index(f"folder      {folder}: the folder of 1 session does not exist any more")
        assert lines[at + 1].strip().startswith(f"opensesh session move --from {folder} ")


def test_stores_can_be_distinguished_on_a_narrow_screen(screen: Callable[..., Screen], store: Path) -> None:
    shutil.copy(FIXTURES / "opencode-1.2" / "opencode.db", store.parent)
    shown = screen("doctor", "--store", str(store.parent), columns=60)
    shown.end()
    assert [line[-11:] for line in shown.text.splitlines()[1:3]] == ["opencode.db", "ata/storage"]
    assert all("…" in line and len(line) == 60 for line in shown.text.splitlines()[1:3])
