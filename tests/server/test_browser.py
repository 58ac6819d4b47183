from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from .kit_server import program
from .serving import Client, serving

ATTACK = """async ([url, session]) => {
  const outcomes = {};
  const attempt = async (name, work) => {
    try { outcomes[name] = await work(); } catch (error) { outcomes[name] = "failed"; }
  };
  const shell = `${url}/session/${session}/shell`;
  const body = JSON.stringify({ agent: "build", command: "touch pwned" });
  await attempt("read", async () => (await fetch(`${url}/session`)).text());
  const json = { method: "POST", body, headers: { "content-type": "application/json" } };
  const plain = { method: "POST", body, mode: "no-cors", headers: { "content-type": "text/plain" } };
  await attempt("json", async () => (await fetch(shell, json)).status);
  await attempt("plain", async () => (await fetch(shell, plain)).type);
  const blob = new Blob([body], { type: "text/plain" });
  await attempt("beacon", async () => navigator.sendBeacon(`${url}/session`, blob));
  await attempt("events", () => new Promise((resolve, reject) => {
    const stream = new EventSource(`${url}/event`);
    stream.onmessage = () => resolve("received");
    stream.onerror = () => reject();
  }));
  return outcomes;
}"""
PAGE = b"HTTP/1.1 200 OK\r\ncontent-type: text/html\r\ncontent-length: 8\r\nconnection: close\r\n\r\n<p>x</p>"


async def attack(client: Client, page_url: str, target: str) -> dict[str, Any]:
    """Open a page of ``evil.example``, whose name leads to this machine, and return what its scripts achieved."""
    from playwright.async_api import async_playwright

    session_id = await client.create(title="The user's own")
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(
            executable_path=program("chromium"),
            args=["--host-resolver-rules=MAP evil.example 127.0.0.1", "--no-sandbox"],
        )
        page = await browser.new_page()
        await page.goto(page_url)
        outcomes: dict[str, Any] = await page.evaluate(ATTACK, [target, session_id])
        await browser.close()
    return outcomes


async def serve_page(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await reader.readuntil(b"\r\n\r\n")
    writer.write(PAGE)
    await writer.drain()
    writer.close()


@pytest.mark.timeout(180)
async def test_cve_2026_22812_a_page_in_a_browser_neither_reads_nor_runs_anything(tmp_path: Path) -> None:
    attacker = await asyncio.start_server(serve_page, "127.0.0.1", 0)
    port = attacker.sockets[0].getsockname()[1]
    async with attacker, serving(tmp_path / "p") as client:
        outcomes = await attack(client, f"http://evil.example:{port}/", client.url)
        assert (outcomes["read"], outcomes["json"], outcomes["events"]) == ("failed", "failed", "failed")
        assert not (tmp_path / "p/pwned").exists()
        assert [session["title"] for session in await client.get("/session")] == ["The user's own"]


@pytest.mark.timeout(180)
async def test_dns_rebinding_in_a_browser_neither_reads_nor_runs_anything(tmp_path: Path) -> None:
    async with serving(tmp_path / "p") as client:
        rebound = client.url.replace("127.0.0.1", "evil.example")
        outcomes = await attack(client, f"{rebound}/session", rebound)  # the page and the server are one origin
        assert "The user's own" not in str(outcomes["read"])
        assert outcomes["json"] == 403
        assert outcomes["events"] == "failed"
        assert not (tmp_path / "p/pwned").exists()
        assert [session["title"] for session in await client.get("/session")] == ["The user's own"]
