from __future__ import annotations

import asyncio
import json
import shlex
import sys
from pathlib import Path
from typing import Any

import pytest

FOLDER = Path(__file__).parent / "acceptance"
JOURNEYS = sorted(path.stem for path in (FOLDER / "journeys").glob("*.json"))
SHORT = (
    "crud",
    "dispose",
    "flow-error-undo",
    "further-file",
    "further-parts",
    "further-session-list",
    "more-lists",
    "prompt-plain",
)


async def differences(folder: Path, journeys: str) -> list[dict[str, Any]]:
    """Play journeys to a server of ours, and return the rows that differ from OpenCode 1.1.65, and from 1.18.33 where
    there is a recording of it."""
    server = f"{shlex.quote(sys.executable)} -m opensesh serve --port {{port}} --hostname 127.0.0.1"
    rows = folder / "rows.json"
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        str(FOLDER / "apicheck.py"),
        "run",
        "--spawn",
        server,
        "--only",
        journeys,
        "--also",
        str(FOLDER / "golden" / "1.18.33"),
        "--json",
        str(rows),
        cwd=folder,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    printed, _ = await process.communicate()
    assert rows.exists(), printed.decode()
    listed: list[dict[str, Any]] = json.loads(rows.read_text())
    assert listed
    return [row for row in listed if row["verdict"] == "differs"]


async def test_the_server_answers_clients_as_opencode_does(tmp_path: Path) -> None:
    assert await differences(tmp_path, ",".join(SHORT)) == []


@pytest.mark.slow
@pytest.mark.timeout(1800)
async def test_the_server_answers_every_recorded_journey_as_opencode_does(tmp_path: Path) -> None:
    assert await differences(tmp_path, ",".join(JOURNEYS)) == []
