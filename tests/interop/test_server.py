from __future__ import annotations

import asyncio
import json
import os
from pathlib import Path

import pytest

from ..server.serving import make_project, serving
from .opencode import DATABASE, JSON_FILES, opencode_binary

pytestmark = pytest.mark.interop


async def run_attached(version: str, url: str, folder: Path, prompt: str, *arguments: str) -> tuple[int, str, str]:
    """Run ``opencode run --attach`` with a home of its own; returns its exit code and what it printed."""
    home = folder.parent / f"home-{version}"
    home.mkdir(exist_ok=True)
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("XDG_", "OPENCODE_"))}
    environment |= {"HOME": str(home), "TERM": "dumb"}
    environment |= {f"OPENCODE_DISABLE_{name}": "1" for name in ("AUTOUPDATE", "MODELS_FETCH", "DEFAULT_PLUGINS")}
    process = await asyncio.create_subprocess_exec(
        opencode_binary(version),
        "run",
        "--attach",
        url,
        *arguments,
        cwd=folder,
        env=environment,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    async with asyncio.timeout(100):
        out, err = await process.communicate(prompt.encode())
    return process.returncode or 0, out.decode(), err.decode()


@pytest.mark.parametrize("version", [JSON_FILES, DATABASE])
async def test_opencode_runs_prompts_on_our_server(tmp_path: Path, isolated: Path, version: str) -> None:
    config = isolated / ".config/opencode/opencode.json"
    config.parent.mkdir(parents=True)
    config.write_text('{"model": "scripted/prompt", "small_model": "scripted/prompt"}')
    project = make_project(tmp_path / "p")
    async with serving(project) as client:
        code, out, err = await run_attached(version, client.url, project, "SAY hello from the server")
        assert (code, out.strip()) == (0, "hello from the server"), err
        code, out, err = await run_attached(version, client.url, project, "SAY and again", "-c", "--format", "json")
        texts = [event["part"]["text"] for event in map(json.loads, out.splitlines()) if event["type"] == "text"]
        assert (code, texts) == (0, ["and again"]), err
        (session,) = await client.get("/session")
        assert len(await client.get(f"/session/{session['id']}/message")) == 4
