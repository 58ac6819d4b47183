from __future__ import annotations

from pathlib import Path

import pytest

from .sample_tree import Sample


@pytest.fixture
def sample(tmp_path: Path) -> Sample:
    root = tmp_path / "data" / "storage"
    root.mkdir(parents=True)
    return Sample(root)
