from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from tests.cli.running import Terminal
from tests.history.sample_tree import Sample, contents

FIXTURES = Path(__file__).parents[1] / "fixtures"


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "data"
    folder.mkdir()
    monkeypatch.setenv("OPENSESH_STORE", str(folder))
    return folder


def write_old_project(data: Path, tmp_path: Path) -> str:
    sample = Sample(tmp_path / "made")
    session = sample.talk("Ancient")
    target = data / "project" / "home-shop" / "storage" / "session"
    (target / "info").mkdir(parents=True)
    record = {name: session[name] for name in ("id", "title", "version", "time")}
    (target / "info" / f"{session['id']}.json").write_text(json.dumps(record))
    shutil.copytree(sample.root / "message", target / "message")
    for message in sample.messages(session):
        shutil.copytree(sample.root / "part" / message["id"], target / "part" / session["id"] / message["id"])
    return str(session["id"])


@pytest.mark.parametrize("fixture", ["opencode-1.2", "opencode-1.18.33"])
def test_promise_12_a_project_folder_hides_no_database(data: Path, terminal: Terminal, fixture: str) -> None:
    shutil.copy(FIXTURES / fixture / "opencode.db", data)
    before = terminal.json("list", "--limit", "0")["total"]
    assert before
    (data / "project").mkdir()
    assert terminal.json("list", "--limit", "0")["total"] == before
    assert "migrate" not in terminal.run("doctor")  # there is nothing in it


def test_promise_12_doctor_names_what_opencode_left_out_of_its_migration(
    data: Path, tmp_path: Path, terminal: Terminal
) -> None:
    session = write_old_project(data, tmp_path)
    sample = Sample(data / "storage")
    sample.write(("project", "proj"), {"id": "proj", "worktree": "/srv/dev/elsewhere"})
    sample.talk("Of the time after")
    assert "1 session of OpenCode before 0.6 not in the tree" in terminal.run("doctor")
    terminal.run("doctor", "--migrate")
    assert "Ancient" in terminal.run("list")
    assert "Answer 0" in terminal.run("show", session)
    assert "before 0.6" not in terminal.run("doctor")


@pytest.mark.parametrize("how", ["asked", "first write"])
@pytest.mark.parametrize("beside", ["nothing", "storage", "database"])
def test_promise_12_m14_history_of_before_0_6_is_read_and_migrated(
    data: Path, tmp_path: Path, terminal: Terminal, beside: str, how: str
) -> None:
    session = write_old_project(data, tmp_path)
    if beside == "storage":
        (data / "storage").mkdir()
    if beside == "database":
        shutil.copy(FIXTURES / "opencode-1.2" / "opencode.db", data)
    assert "Ancient" in terminal.run("list")
    assert "Answer 0" in terminal.run("show", session)
    assert session in terminal.run("search", "Answer")
    assert "Answer 1" in terminal.run("export", session, "--format", "jsonl")
    assert "migrate" in terminal.run("doctor")
    assert not (data / "storage" / "migration").exists()  # reading migrates nothing
    if how == "asked":
        terminal.run("doctor", "--migrate")
    terminal.run("session", "rename", session, "New")
    assert terminal.code == 0, terminal.error
    assert ("was migrated" in terminal.error) == (how == "first write")
    assert not (data / "migration").exists()
    assert (data / "storage" / "migration").read_text() == "2"
    assert terminal.run("list").count(session) == 1
    assert json.loads((data / "storage" / "session" / "global" / f"{session}.json").read_text())["title"] == "New"


def test_promise_13_a_tree_of_a_newer_layout_is_read_and_never_written(data: Path, terminal: Terminal) -> None:
    sample = Sample(data / "storage")
    session = sample.talk("Newer")["id"]
    (sample.root / "migration").write_text("5")
    before = contents(sample.root)
    assert "Newer" in terminal.run("list")
    shown = terminal.run("doctor")
    assert "layout 5" in shown
    assert "No new sessions" in shown
    for words in (
        ("session", "rename", session, "x"),
        ("session", "fork", session),
        ("session", "remove", session, "--yes"),
        ("session", "archive", session, "--yes"),
        ("run", "--quiet", "-m", "scripted/prompt", "SAY new"),
        ("doctor", "--migrate"),
    ):
        terminal.run(*words)
        assert terminal.code != 0, words
        assert "layout 5" in terminal.error
    assert contents(sample.root) == before


def test_promise_12_diffs_in_session_records_are_moved_on_the_first_write(data: Path, terminal: Terminal) -> None:
    sample = Sample(data / "storage")
    session = sample.talk("Older")
    path = sample.path("session", "proj", session["id"])
    diffs = [{"file": "a.py", "before": "", "after": "x", "additions": 3, "deletions": 1}]
    path.write_text(json.dumps(session | {"summary": {"diffs": diffs}}))
    (sample.root / "migration").unlink()
    assert "migrate" in terminal.run("doctor")
    assert terminal.json("list")["sessions"][0]["title"] == "Older"
    assert not (sample.root / "migration").exists()
    terminal.run("session", "rename", session["id"], "New")
    assert json.loads((sample.root / "session_diff" / f"{session['id']}.json").read_text()) == diffs
    assert json.loads(path.read_text())["summary"] == {"additions": 3, "deletions": 1, "files": 1}
    assert (sample.root / "migration").read_bytes() == b"2"


def test_promise_12_removing_a_session_of_before_0_6_leaves_no_copy(
    data: Path, tmp_path: Path, terminal: Terminal
) -> None:
    session = write_old_project(data, tmp_path)
    terminal.run("session", "remove", session, "--yes")
    assert terminal.code == 0, terminal.error
    assert "Ancient" not in terminal.run("list")
    terminal.run("session", "restore", "last")
    assert "Ancient" in terminal.run("list")


def test_promise_12_a_fork_of_a_session_of_before_0_6_is_filed_under_its_project(
    data: Path, tmp_path: Path, terminal: Terminal
) -> None:
    session = write_old_project(data, tmp_path)
    fork = terminal.json("session", "fork", session)
    assert (data / "storage" / "session" / "global" / f"{fork['id']}.json").exists()
    assert terminal.json("list")["total"] == 2


def test_promise_13_a_tree_that_opensesh_starts_has_the_migration_file_of_opencode(
    data: Path, terminal: Terminal
) -> None:
    terminal.run("list")
    assert not (data / "storage").exists()
    terminal.run("run", "--quiet", "-m", "scripted/prompt", "SAY one")
    assert (data / "storage" / "migration").read_bytes() == b"2"
    assert "migrate" not in terminal.run("doctor")
