from __future__ import annotations

import io
import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from ..history.sample_tree import Sample
from .running import Screen, Terminal

FIXTURES = Path(__file__).parents[1] / "fixtures"


@pytest.fixture
def terminal(capfdbinary: pytest.CaptureFixture[bytes], monkeypatch: pytest.MonkeyPatch) -> Terminal:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO()))
    return Terminal(capfdbinary)


@pytest.fixture
def screen() -> Iterator[Callable[..., Screen]]:
    """Start a command at a pseudo-terminal, for what is asked or drawn only there."""
    opened: list[Screen] = []

    def start(*words: str, columns: int = 80, output: Path | None = None, **environ: str) -> Screen:
        opened.append(Screen(*words, columns=columns, environ=environ, output=output))
        return opened[-1]

    yield start
    for item in opened:
        item.close()


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "data" / "storage"
    shutil.copytree(FIXTURES / "opencode-1.1.65" / "storage", folder)
    monkeypatch.setenv("OPENSESH_STORE", str(folder))
    return folder


@pytest.fixture
def sample(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Sample:
    root = tmp_path / "data" / "storage"
    root.mkdir(parents=True)
    monkeypatch.setenv("OPENSESH_STORE", str(root))
    return Sample(root)
