from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from .running import Terminal

FIXTURES = Path(__file__).parents[1] / "fixtures"


@pytest.fixture
def terminal(capfdbinary: pytest.CaptureFixture[bytes]) -> Terminal:
    return Terminal(capfdbinary)


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "data" / "storage"
    shutil.copytree(FIXTURES / "opencode-1.1.65" / "storage", folder)
    monkeypatch.setenv("OPENSESH_STORE", str(folder))
    return folder
