from __future__ import annotations

from pathlib import Path

import pytest

from ..interop.conftest import new_opencode, wire
from .desk import Desk, new_repository

__all__ = ["desk", "new_opencode", "plain", "wire"]


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    return Desk(tmp_path / "home", new_repository(tmp_path / "work"))


@pytest.fixture
def plain(tmp_path: Path) -> Desk:
    """A desk in a folder that no version control knows."""
    folder = tmp_path / "plain"
    folder.mkdir()
    return Desk(tmp_path / "home", folder)
