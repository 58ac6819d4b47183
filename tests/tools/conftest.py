from __future__ import annotations

from pathlib import Path

import pytest

from .bench import Bench


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    project = tmp_path / "project"
    project.mkdir()
    return Bench(project)
