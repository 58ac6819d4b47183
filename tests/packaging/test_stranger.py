from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
CORPUS = ROOT / "tests" / "fixtures" / "opencode-1.1.65" / "storage"
SCRIPT = """SAY I will write it.
CALL write {"filePath": "greeting.txt", "content": "hello stranger\\n"}
---
SAY Written.
---
TITLE A greeting for strangers
"""
_OUTSIDE = dict(os.environ)
"""As it is before the tests hide the home folder: installing needs the package index and the cache of the machine."""


def _run(*words: str | Path, **options: Any) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(list(map(str, words)), capture_output=True, text=True, check=False, timeout=300, **options)
    assert done.returncode == 0, f"{words}: {done.stdout}{done.stderr}"
    return done


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    words = ("-m", "hatchling", "build", "--target", "wheel", "--directory", str(folder))
    _run(sys.executable, *words, cwd=ROOT, env=_OUTSIDE)
    (built,) = folder.glob("*.whl")
    return built


def interpreters() -> list[str]:
    """The Pythons of this machine that the package is for, the newest patch of each."""
    result = {f"3.{minor}": shutil.which(f"python3.{minor}") or "" for minor in range(11, 15)}
    pyenv = Path(_OUTSIDE.get("PYENV_ROOT") or Path.home() / ".pyenv", "versions")
    for path in sorted(pyenv.glob("3.*/bin/python3")):
        result[".".join(path.parts[-3].split(".")[:2])] = str(path)
    return [path for version, path in result.items() if path and version in ("3.11", "3.12", "3.13", "3.14")]


def pip(python: str | Path) -> Sequence[str | Path]:
    return (sys.executable, "-m", "uv", "pip", "install", "--quiet", "--python", python)


def installed(wheel: Path, folder: Path, python: str = sys.executable) -> Path:
    """An empty environment with nothing but the wheel and what it needs; its folder of programs."""
    _run(sys.executable, "-m", "uv", "venv", "--quiet", "--python", python, folder, env=_OUTSIDE)
    programs = folder / ("Scripts" if os.name == "nt" else "bin")
    _run(*pip(programs / "python"), wheel, env=_OUTSIDE)
    return programs


@pytest.fixture
def new_user(isolated: Path) -> Callable[..., str]:
    """Run a command as a user who has only OpenCode's data, and return what it printed."""
    data = isolated / ".local" / "share" / "opencode" / "storage"
    shutil.copytree(CORPUS, data)

    def run(*words: str | Path) -> str:
        return _run(*words, stdin=subprocess.DEVNULL).stdout

    return run


def journey(opensesh: Path, run: Callable[..., str]) -> None:
    """From an empty environment to a session that was run, found, exported, priced, checked and taken back."""
    assert json.loads(run(opensesh, "demo", "--json"))["outcome"] == "answered"
    old = json.loads(run(opensesh, "list", "--limit", "0", "--json"))["total"]
    assert old > 5, "what OpenCode wrote is there"
    _run("git", "init", "-q")
    Path("model.script").write_text(SCRIPT)
    reported = run(opensesh, "run", "--yes", "-m", "scripted/model.script", "Greet whoever comes.")
    assert reported == "I will write it.\nWritten.\n"
    assert Path("greeting.txt").read_text() == "hello stranger\n"
    listed = json.loads(run(opensesh, "list", "--json"))
    assert listed["total"] == old + 1
    session = listed["sessions"][0]["id"]
    hits = json.loads(run(opensesh, "search", "stranger", "--json"))["hits"]
    assert session in {hit["sessionID"] for hit in hits}
    assert "Greet whoever comes." in run(opensesh, "show", "last")
    page = run(opensesh, "export", "last", "--format", "html")
    assert "Greet whoever comes." in page
    assert len(run(opensesh, "export", "--format", "jsonl").splitlines()) >= old
    assert json.loads(run(opensesh, "stats", "--by", "session", "--json"))["rows"]
    run(opensesh, "doctor", "--json")
    assert "greeting.txt" in run(opensesh, "session", "diff", "last")
    run(opensesh, "session", "revert", "last", "--yes")
    assert not Path("greeting.txt").exists()
    run(opensesh, "session", "unrevert", "last", "--yes")
    assert Path("greeting.txt").read_text() == "hello stranger\n"


@pytest.mark.timeout(600)
def test_a_stranger_gets_from_the_wheel_to_a_session_that_was_taken_back(
    wheel: Path, tmp_path: Path, new_user: Callable[..., str]
) -> None:
    journey(installed(wheel, tmp_path / "empty") / "opensesh", new_user)


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("python", interpreters())
def test_every_python_can_do_it(wheel: Path, tmp_path: Path, new_user: Callable[..., str], python: str) -> None:
    journey(installed(wheel, tmp_path / "empty", python) / "opensesh", new_user)


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("how", ["pip", "uv tool", "pipx"])
def test_every_installer_can_do_it(wheel: Path, tmp_path: Path, new_user: Callable[..., str], how: str) -> None:
    programs = tmp_path / "bin"
    match how:
        case "pip":
            _run(sys.executable, "-m", "venv", tmp_path / "venv", env=_OUTSIDE)
            programs = tmp_path / "venv" / "bin"
            _run(programs / "python", "-m", "pip", "install", "--quiet", wheel, env=_OUTSIDE)
        case "uv tool":
            folders = {"UV_TOOL_DIR": str(tmp_path / "tools"), "UV_TOOL_BIN_DIR": str(programs)}
            _run(sys.executable, "-m", "uv", "tool", "install", "--quiet", wheel, env=_OUTSIDE | folders)
        case _:
            _run(sys.executable, "-m", "uv", "venv", "--quiet", tmp_path / "pipx", env=_OUTSIDE)
            _run(*pip(tmp_path / "pipx" / "bin" / "python"), "pipx", env=_OUTSIDE)
            folders = {"PIPX_HOME": str(tmp_path / "home"), "PIPX_BIN_DIR": str(programs)}
            _run(tmp_path / "pipx" / "bin" / "pipx", "install", "--quiet", wheel, env=_OUTSIDE | folders)
    journey(programs / "opensesh", new_user)


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_with_every_extra_it_still_installs(wheel: Path, tmp_path: Path) -> None:
    programs = installed(wheel, tmp_path / "empty")
    _run(*pip(programs / "python"), f"{wheel}[analytics,bedrock,mcp,ripgrep]", env=_OUTSIDE)
    _run(programs / "opensesh", "tools", "--json")


def test_the_wheel_is_small_and_holds_what_it_needs_and_nothing_else(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
    assert wheel.stat().st_size < 3_000_000
    assert any(name.endswith("share/man/man1/opensesh.1") for name in names)
    assert "opensesh/py.typed" in names
    assert "opensesh/tools/bash.md" in names
    assert not [name for name in names if name.startswith(("tests", "docs", "benchmarks"))]
    assert not [name for name in names if name.endswith(".pyc")]


def test_what_it_needs_is_within_the_budget_of_the_design() -> None:
    words = ("uv", "pip", "compile", "--quiet", "--no-header", "--no-annotate", ROOT / "pyproject.toml")
    listed = _run(sys.executable, "-m", *words, env=_OUTSIDE).stdout
    assert 5 <= len(listed.split()) <= 20, listed
