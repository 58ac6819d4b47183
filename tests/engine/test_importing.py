from __future__ import annotations

import subprocess
import sys

WHEN_A_SESSION_RUNS = set(
    """
    bisect bz2 hashlib json lzma pathlib shlex shutil tempfile urllib.parse zipfile
    opensesh.config.layers opensesh.config.merged opensesh.config.schema opensesh.config.source
    opensesh.config.validation
    opensesh.models.auth opensesh.models.catalogue opensesh.models.entries opensesh.models.sse
    opensesh.plugins.collecting opensesh.plugins.finding opensesh.plugins.loading opensesh.plugins.trust
    opensesh.storage.merged
    opensesh.tools.custom opensesh.tools.read opensesh.tools.shell.choice opensesh.tools.shell.running
    opensesh.workspace
    """.split()
)
WHEN_IT_IS_WANTED = set(
    """
    csv dataclasses httpx2 importlib.metadata rapidfuzz rich sqlite3
    opensesh.config.frontmatter opensesh.config.jsonc opensesh.config.replacing opensesh.config.substitution
    opensesh.config.yaml
    opensesh.engine.commands opensesh.engine.compaction opensesh.engine.costs opensesh.engine.media
    opensesh.engine.summary
    opensesh.models.bedrock_regions opensesh.models.choice
    opensesh.plugins.vocabulary opensesh.storage.revocations
    opensesh.tools.mcp.answers opensesh.tools.mcp.server opensesh.tools.mcp.wires
    """.split()
)
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


def test_importing_the_engine_loads_nothing_that_is_needed_later_or_never() -> None:
    ours = loaded_by("import opensesh.engine.engine") - loaded_by("import asyncio, logging, msgspec")
    assert not ours & (WHEN_A_SESSION_RUNS | WHEN_IT_IS_WANTED)


def test_a_run_that_wants_nothing_special_loads_nothing_special() -> None:
    loaded = loaded_by(RUN)
    assert "opensesh.workspace" in loaded
    assert not loaded & WHEN_IT_IS_WANTED
