from __future__ import annotations

import os
from collections.abc import AsyncGenerator, Generator
from pathlib import Path

import pytest
import pytest_asyncio
from playwright.async_api import Browser, BrowserContext, ConsoleMessage, Error, Page, Request, async_playwright, expect

from ..browser import ARGUMENTS, NO_PROGRAM, PROGRAM
from .web_server import WebServer, web_server

_ONLY_LOOPBACK = "--host-resolver-rules=MAP * ~NOTFOUND , EXCLUDE 127.0.0.1"

expect.set_options(timeout=20_000)  # the machine may be busy


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Generator[WebServer]:
    """A server with a few sessions in two projects. Tests share it: they add what they need, and change only that."""
    home = tmp_path_factory.mktemp("web")
    notes = home / "notes"
    notes.mkdir()
    with web_server(home) as running:
        running.create("SAY It returns None for an empty line.", title="Fix the parser")
        running.create("SAY Retries are **bounded**.", title="Notes on retries", directory=notes)
        running.create(
            'CALL bash {"command": "echo xylophone", "description": "Say a word"}\n---\nSAY Done.',
            title="Migrate the store",
        )
        yield running


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def chromium() -> AsyncGenerator[Browser]:
    if PROGRAM is None:
        pytest.skip(NO_PROGRAM)
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=PROGRAM, args=[*ARGUMENTS, _ONLY_LOOPBACK])
        yield browser
        await browser.close()


@pytest_asyncio.fixture(loop_scope="module")
async def context(chromium: Browser) -> AsyncGenerator[BrowserContext]:
    """A browser profile. A console message, a complaint about the policy, or a request that leaves the machine in any
    of its pages fails the test."""
    context = await chromium.new_context(
        viewport={"width": 1280, "height": 800}, reduced_motion="reduce", locale="en-GB", timezone_id="UTC"
    )
    complaints: list[str] = []

    def on_console(message: ConsoleMessage) -> None:
        if message.type in ("error", "warning"):
            complaints.append(message.text)

    def on_page_error(error: Error) -> None:
        complaints.append(str(error))

    def on_request(request: Request) -> None:
        if not request.url.startswith(("http://127.0.0.1", "data:", "about:", "blob:")):
            complaints.append(request.url)

    def on_page(page: Page) -> None:
        page.on("console", on_console)
        page.on("pageerror", on_page_error)

    context.on("page", on_page)
    context.on("request", on_request)
    context.set_default_timeout(30_000)
    yield context
    await context.close()
    assert not complaints


@pytest_asyncio.fixture(loop_scope="module")
async def page(context: BrowserContext, server: WebServer) -> Page:
    """A page of a browser that is signed in to the server, on the list of sessions."""
    page = await context.new_page()
    await server.enter(page)
    return page


@pytest.fixture(scope="session")
def axe() -> str:
    """The script of axe-core, for ``page.evaluate``."""
    return (Path(__file__).parent / "vendor/axe.min.js").read_text("utf-8")


@pytest.fixture(autouse=True)
def keep_timezone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(os.environ, "TZ", "UTC")
