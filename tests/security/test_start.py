from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

MODULES = ["msgspec", "argparse", "asyncio", "json", "logging", "sqlite3", "readline", "ctypes", "httpx", "yaml"]


@pytest.mark.parametrize("words", [["--version"], ["list"], ["run", "-m", "scripted/prompt", "SAY x"]])
def test_m15_python_m_opensesh_imports_nothing_of_the_current_folder(tmp_path: Path, words: list[str]) -> None:
    for name in MODULES:
        (tmp_path / f"{name}.py").write_text(f"open('{name}.ran', 'w')\nraise SystemExit(99)\n")
    home = tmp_path / "home"
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"} | {"HOME": str(home)}
    result = subprocess.run(
        [sys.executable, "-m", "opensesh", *words],
        cwd=tmp_path,
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=120,
        check=False,
    )
    assert list(tmp_path.glob("*.ran")) == []
    assert result.returncode != 99, result.stderr
