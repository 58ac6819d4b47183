from __future__ import annotations

from collections.abc import AsyncGenerator
from pathlib import Path

import pytest

from ..cli.conftest import sample, screen, terminal
from .stand import Desk, Stand, standing

__all__ = ["desk", "sample", "screen", "stand", "terminal"]


@pytest.fixture
async def stand(tmp_path: Path) -> AsyncGenerator[Stand]:
    async with standing(tmp_path / "shares") as found:
        yield found


@pytest.fixture
def desk(tmp_path: Path, stand: Stand) -> Desk:
    return Desk(tmp_path / "storage", stand.url)
