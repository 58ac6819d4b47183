from __future__ import annotations

import importlib.util
import re
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[2]


def _nothing(*words: str | Path, check: bool = False) -> int:
    return 0


@pytest.fixture
def dev(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    spec = importlib.util.spec_from_file_location("dev", ROOT / "dev.py")
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    monkeypatch.setattr(module, "VENV", tmp_path)
    monkeypatch.setattr(module, "BIN", tmp_path / "bin")
    (tmp_path / "bin").mkdir()
    monkeypatch.setattr(module, "run", _nothing)
    return module


@pytest.mark.parametrize("command", ["demo", "test", "bench"])
def test_an_installation_is_reported_before_and_after(
    dev: ModuleType, command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert dev.main([command]) == 0
    before, after = capsys.readouterr().err.splitlines()
    assert re.fullmatch(rf"installing .* in {re.escape(str(tmp_path))} \(about a minute\) \.\.\.", before)
    assert re.fullmatch(r"installed, in \d+ s", after)


def test_nothing_is_reported_where_nothing_is_installed(
    dev: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "bin" / "opensesh").touch()
    assert dev.main(["demo"]) == 0
    assert dev.main(["bench"]) == 0
    capsys.readouterr()
    assert dev.main(["bench"]) == 0
    assert capsys.readouterr().err == ""
