from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import httpx2
import pytest

from ..server.serving import serving
from ..server.test_provider_login import PLUGIN
from .opencode import JSON_FILES, OpenCode

pytestmark = [pytest.mark.interop, pytest.mark.slow]

JAVASCRIPT = """
export const Acme = async () => ({ auth: { provider: "acme", methods: [
  { type: "oauth", label: "Acme account", authorize: async () => ({
      url: "https://acme.example/login", instructions: "Log in.", method: "code",
      callback: async (code) => code === "right"
        ? { type: "success", refresh: "r", access: "a", expires: 5, accountId: "ada" } : { type: "failed" } }) },
  { type: "oauth", label: "Acme device", authorize: async () => ({
      url: "https://acme.example/device", instructions: "Enter code: 1", method: "auto",
      callback: async () => ({ type: "success", key: "k" }) }) },
  { type: "api", label: "API key" },
] } })
"""
"""What the plugin in Python does, for OpenCode."""


async def journey(client: httpx2.AsyncClient, stored: Path) -> list[Any]:
    methods = (await client.get("/provider/auth")).json()["acme"]
    seen: list[Any] = [{"type": method["type"], "label": method["label"]} for method in methods]
    for action, body in (
        ("authorize", {"method": 0, "inputs": {"account": "ada"}}),
        ("callback", {"method": 0}),
        ("callback", {"method": 0, "code": "wrong"}),
        ("callback", {"method": 0, "code": "right"}),
        ("authorize", {"method": 1}),
        ("callback", {"method": 1}),
        ("authorize", {"method": 2}),
    ):
        answer = await client.post(f"/provider/acme/oauth/{action}", json=body)
        # This version answers 500 to what its documentation calls a bad request.
        seen.append(answer.text if answer.is_success else answer.json()["name"])
        seen.append(stored.read_text() if stored.exists() else None)
    return seen


async def test_logging_in_to_a_provider_is_answered_and_stored_as_by_opencode(tmp_path: Path, isolated: Path) -> None:
    theirs = OpenCode(tmp_path / "real", "http://127.0.0.1:9/", version=JSON_FILES)
    for folder, name, text in (
        (isolated / ".config/opencode/plugin", "acme.py", PLUGIN),
        (tmp_path / "real/config/opencode/plugin", "acme.js", JAVASCRIPT),
    ):
        folder.mkdir(parents=True)
        (folder / name).write_text(text)
    await asyncio.to_thread(theirs.start)
    try:
        headers = {"x-opencode-directory": str(theirs.directory)}
        async with httpx2.AsyncClient(base_url=theirs.url, headers=headers, timeout=60) as client:
            expected = await journey(client, theirs.data / "auth.json")
    finally:
        await asyncio.to_thread(theirs.stop)
    async with serving(tmp_path / "p") as ours:
        assert await journey(ours.http, isolated / ".local/share/opencode/auth.json") == expected
