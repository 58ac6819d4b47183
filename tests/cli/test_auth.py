from __future__ import annotations

import io
import json
import stat
from pathlib import Path

import pytest

from opensesh.cli import main as app
from opensesh.storage import paths


def test_a_key_is_stored_listed_and_removed_without_being_printed(
    isolated: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("sk-secret-1\n"))
    assert app.run(["auth", "login", "acme"]) == 0
    file = Path(paths.data()) / "auth.json"
    assert json.loads(file.read_bytes()) == {"acme": {"type": "api", "key": "sk-secret-1"}}
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert app.run(["auth", "list", "--json"]) == 0
    assert app.run(["auth", "logout", "acme"]) == 0
    assert app.run(["auth", "logout", "acme"]) == 0
    assert json.loads(file.read_bytes()) == {}
    assert app.run(["auth", "list"]) == 0
    printed = capsys.readouterr()
    assert "acme" in printed.out
    assert "Nothing is stored for acme." in printed.out
    assert "sk-secret" not in printed.out + printed.err


def test_an_empty_key_is_refused(isolated: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("\n"))
    assert app.run(["auth", "login", "acme"]) == 2
    assert not (Path(paths.data()) / "auth.json").exists()
