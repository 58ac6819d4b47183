from __future__ import annotations

from tests.cli.conftest import sample, screen, store, terminal
from tests.sharing.conftest import faulty_server, publishing

__all__ = ["faulty_server", "publishing", "sample", "screen", "store", "terminal"]
