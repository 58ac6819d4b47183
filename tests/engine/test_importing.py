from __future__ import annotations

import importlib.util
import subprocess
import sys

import pytest

HEAVY = ("csv", "httpx2", "importlib.metadata", "jinja2", "markdown_it", "mcp", "rapidfuzz", "rich", "sqlite3", "yaml")
"""Libraries that take long to import and that only some sessions need."""
RUN = """
import asyncio
import opensesh
from opensesh.storage.memory import Memory

async def main():
    async with opensesh.open(store=Memory()) as engine:
        session = await engine.create(title="A session")
        outcome = await engine.run(session.id, "say Hello.", model="scripted/prompt")
        assert outcome.kind == "answered"

asyncio.run(main())
"""


def loaded_by(code: str) -> set[str]:
    code = f"{code}\nimport sys; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return set(done.stdout.split())


@pytest.mark.parametrize("library", HEAVY)
def test_the_libraries_that_are_guarded_against_exist(library: str) -> None:
    assert importlib.util.find_spec(library) is not None


@pytest.mark.parametrize("code", ["import opensesh.engine.engine", RUN], ids=["import", "run"])
def test_neither_the_import_nor_a_plain_run_loads_a_heavy_library(code: str) -> None:
    loaded = loaded_by(code)
    assert "opensesh.engine.engine" in loaded
    assert not loaded & {*HEAVY}
