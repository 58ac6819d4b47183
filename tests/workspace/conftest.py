from __future__ import annotations

from pathlib import Path

import pytest

from ..interop.conftest import new_opencode, wire
from .project_setup import Workspace, new_repository

__all__ = ["new_opencode", "plain", "wire", "workspace"]


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    return Workspace(tmp_path / "home", new_repository(tmp_path / "work"))


@pytest.fixture
def plain(tmp_path: Path) -> Workspace:
    """A workspace in a folder that no version control knows."""
    folder = tmp_path / "plain"
    folder.mkdir()
    return Workspace(tmp_path / "home", folder)
