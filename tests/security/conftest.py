from __future__ import annotations

from tests.cli.conftest import sample, screen, store, terminal

__all__ = ["sample", "screen", "store", "terminal"]
