from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.cli.running import Terminal


@pytest.fixture
def exported(terminal: Terminal, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    work = tmp_path / "work"
    work.mkdir()
    monkeypatch.chdir(work)
    script = 'CALL write {"filePath": "z.txt", "content": "z"}\n---\nSAY done'
    terminal.run("run", "--quiet", "--title", "T", "-m", "scripted/prompt", script)
    terminal.run("export", "last", "--format", "json", "-o", str(tmp_path / "session.json"))
    return tmp_path / "session.json"


def test_l2_an_imported_session_deletes_no_file_that_it_did_not_write_here(
    terminal: Terminal, exported: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = Path("z.txt")
    file.unlink()
    file.write_text("z")
    monkeypatch.setenv("OPENSESH_STORE", str(exported.parent / "elsewhere"))
    os.utime(file, (1_700_000_000, 1_700_000_000))
    terminal.run("import", str(exported))
    terminal.run("session", "revert", "last", "--yes")
    assert "the session was imported" in terminal.error
    assert file.exists()


def test_an_imported_session_that_wrote_its_files_here_is_reverted(
    terminal: Terminal, exported: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENSESH_STORE", str(exported.parent / "elsewhere"))
    terminal.run("import", str(exported))
    terminal.run("session", "revert", "last", "--yes")
    assert not Path("z.txt").exists()
