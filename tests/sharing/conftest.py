from __future__ import annotations

from collections.abc import AsyncGenerator
from pathlib import Path

import pytest

from ..cli.conftest import sample, screen, terminal
from .faulty_server import FaultyServer, PublishingSetup, run_faulty_server

__all__ = ["faulty_server", "publishing", "sample", "screen", "terminal"]


@pytest.fixture
async def faulty_server(tmp_path: Path) -> AsyncGenerator[FaultyServer]:
    async with run_faulty_server(tmp_path / "shares") as result:
        yield result


@pytest.fixture
def publishing(tmp_path: Path, faulty_server: FaultyServer) -> PublishingSetup:
    return PublishingSetup(tmp_path / "storage", faulty_server.url)
