from __future__ import annotations

from tests.cli.conftest import sample, screen, store, terminal
from tests.sharing.conftest import desk, stand

__all__ = ["desk", "sample", "screen", "stand", "store", "terminal"]
