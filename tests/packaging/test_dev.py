from __future__ import annotations

import hashlib
import importlib.util
import re
import sys
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[2]


def _nothing(*words: str | Path, check: bool = False, capture: bool = False) -> int:
    return 0


@pytest.fixture
def runner(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    spec = importlib.util.spec_from_file_location("dev", ROOT / "dev.py")
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    monkeypatch.setattr(module, "VENV", tmp_path)
    monkeypatch.setattr(module, "BIN", tmp_path / "bin")
    (tmp_path / "bin").mkdir()
    return module


@pytest.fixture
def dev(runner: ModuleType, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.setattr(runner, "run", _nothing)
    return runner


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


def test_programs_keep_their_bytecode_whatever_the_environment_says(
    runner: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
    assert runner.run(sys.executable, "-c", "import sys; sys.exit(sys.dont_write_bytecode)") == 0


@pytest.mark.parametrize(("lint", "tests", "code"), [(0, 0, 0), (3, 0, 1), (0, 5, 5), (3, 5, 1)])
def test_checks_run_beside_the_tests_and_print_only_what_fails(
    runner: ModuleType, tmp_path: Path, capfd: pytest.CaptureFixture[str], lint: int, tests: int, code: int
) -> None:
    (tmp_path / "pins").write_text(hashlib.sha256(runner.PINS.read_bytes()).hexdigest())
    for name, end in {"ruff": 0, "deptry": lint, "lint-imports": 0, "pyright": 0, "python": tests}.items():
        program = tmp_path / "bin" / name
        program.write_text(f'#!/bin/sh\necho "{name} $1"\nexit {end}\n')
        program.chmod(0o755)
    assert runner.main(["test"]) == code
    printed, errors = capfd.readouterr()
    assert printed == "python -m\n"
    assert errors.split("\n") == (["", "deptry src", "", f"failed: {tmp_path}/bin/deptry src", ""] if lint else [""])


def test_no_text_installs_opensesh_from_an_index_where_it_is_not_published() -> None:
    texts = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md"), *(ROOT / "src").rglob("*.py")]
    named = re.compile(r"(pip|pipx|uv tool|uvx?)( install)? ['\"]?opensesh")
    assert [path for path in texts if named.search(path.read_text("utf-8"))] == []
