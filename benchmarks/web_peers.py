"""The pages beside those of OpenCode 1.18.33 and agentsview, on one database: until a list, a long session and a search
result show.

Each page is opened in a new tab of the same Chromium, in turns; the time is from the navigation, or from the word in
the search box, to the text that was looked for, and the least of a few counts. A program that cannot be had or does not
show it in time is left out, and why is said. OpenCode's pages search only titles, and agentsview finds no output of a
tool, so that the word is in a prompt.
"""

from __future__ import annotations

import asyncio
import os
import socket
import subprocess
import tempfile
import time
from base64 import urlsafe_b64encode
from collections.abc import Generator, Sequence
from contextlib import ExitStack, contextmanager
from itertools import product
from pathlib import Path
from typing import NamedTuple

from playwright.async_api import BrowserContext, Error, async_playwright
from tests.interop.opencode import DATABASE, opencode_binary
from tests.web.conftest import ARGUMENTS, PROGRAM
from tests.web.web_server import web_server

from .listing import isolated
from .peers import install
from .report import line
from .search import NEEDLE, vocabulary
from .stores import Builder, plant, to_database

SESSIONS, LONG = 400, 10_000
ROUNDS = 3
TIMEOUT_MS = 90_000
MEASURED = ("list", "session", "search")
LEFT_OUT = float("inf")
TITLE, LAST = "The long session", "These are the last words of it."
QUESTION = f"where is the {NEEDLE}?"


class PeerPages(NamedTuple):
    """Where a program shows the list, the long session, and what was searched for."""

    name: str
    list: str
    session: str
    click: bool = False
    """Whether the session has no address, and is opened from the list."""
    search: str = ""
    """The box of the search; empty if the program does not search texts."""
    results: str = ""
    keys: str = ""
    """What opens the box on the page of the list."""


def run() -> None:
    if PROGRAM is None:
        print("  no Chromium on this machine")
        return
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        home = Path(folder)
        session = database(home)
        ours = stack.enter_context(web_server(home))
        own = PeerPages("opensesh", f"{ours.url}/ui/", f"{ours.url}/ui/session/{session}")
        pages = [own._replace(search="#search-everything", results="#results")]
        opencode = [str(opencode_binary(DATABASE)), "serve", "--port", "{port}", "--hostname", "127.0.0.1"]
        url = stack.enter_context(served(opencode, home))
        directory = urlsafe_b64encode(str(ours.project).encode()).decode().rstrip("=")
        pages.append(PeerPages("OpenCode", f"{url}/{directory}/session", f"{url}/{directory}/session/{session}"))
        if program := install().get("agentsview", ""):
            url = stack.enter_context(served([program, "serve", "--port", "{port}", "--no-browser"], home))
            agentsview = PeerPages("agentsview", url, url, click=True, keys="Control+k")
            pages.append(agentsview._replace(search=".palette-input", results=".palette-results"))
        asyncio.run(compare(pages, ours.ticket()))


def database(home: Path) -> str:
    """Make a home with a database of many sessions, the newest of which is long; return its id."""
    project = home / "eastore"
    project.mkdir()
    builder = Builder(str(home / "tree"), vocabulary=vocabulary())
    others = [builder.session(4, 3, words=60, directory=str(project)) for _ in range(SESSIONS)]
    plant(builder.root, others[SESSIONS // 2], QUESTION)
    session = builder.session(LONG, 1, words=60, title=TITLE, directory=str(project))
    plant(builder.root, session, LAST, position=-1)
    data = home / ".local/share/opencode"
    data.mkdir(parents=True)
    to_database(builder.root, str(data / "opencode.db"))
    return session


@contextmanager
def served(words: Sequence[str], home: Path) -> Generator[str]:
    """Run another program's server on a free port, over the same database."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port = listener.getsockname()[1]
    data = home / ".local/share"
    environ = isolated(str(home)) | {"XDG_DATA_HOME": str(data), "AGENTSVIEW_DATA_DIR": str(home / "agentsview")}
    environ |= {"OPENCODE_DATA_DIR": str(data / "opencode"), "OPENCODE_DIR": str(data / "opencode")}
    command = [word.format(port=port) for word in words]
    process = subprocess.Popen(
        command, cwd=home / "eastore", env=environ, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        deadline = time.monotonic() + 60
        while socket.socket().connect_ex(("127.0.0.1", port)) and time.monotonic() < deadline:
            time.sleep(0.2)
        yield f"http://127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait(30)


async def compare(pages: Sequence[PeerPages], ticket: str) -> None:
    times: dict[tuple[str, str], float] = {}
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=PROGRAM, args=ARGUMENTS)
        context = await browser.new_context(viewport={"width": 1280, "height": 800})
        entry = await context.new_page()
        await entry.goto(pages[0].list + f"enter#{ticket}")
        await entry.get_by_text(TITLE).first.wait_for(timeout=TIMEOUT_MS)
        for _, one, what in product(range(ROUNDS), pages, MEASURED):
            if times.get((one.name, what)) != LEFT_OUT:
                taken = await measured(context, one, what)
                times[one.name, what] = min(taken, times.get((one.name, what), LEFT_OUT))
        await browser.close()
    print(f"  load {os.getloadavg()[0]:.0f}")
    for (name, what), value in times.items():
        print(f"  {name}, {what}: {value:.0f} ms")
    for one in pages[1:]:
        for what in MEASURED:
            if (theirs := times[one.name, what]) < LEFT_OUT:
                line(f"{what}: opensesh / {one.name}", times["opensesh", what] / theirs, one.name, 1.0)


async def measured(context: BrowserContext, one: PeerPages, what: str) -> float:
    """Return the milliseconds until one of the pages shows what it should."""
    try:
        if what == "search":
            return await found(context, one) if one.search else LEFT_OUT
        if what == "list":
            return await shown(context, one.list, TITLE, "")
        return await shown(context, one.session, LAST, TITLE if one.click else "")
    except Error as error:
        print(f"  {one.name}, {what}: left out, {str(error).splitlines()[0]}")
        return LEFT_OUT


async def found(context: BrowserContext, one: PeerPages) -> float:
    """Return the milliseconds from a word in the search box until its sentence is among the results."""
    page = await context.new_page()
    try:
        await page.goto(one.list if one.keys else f"{one.list}search", timeout=TIMEOUT_MS)
        if one.keys:
            await page.get_by_text(TITLE).first.wait_for(timeout=TIMEOUT_MS)
            await page.keyboard.press(one.keys)
        box = page.locator(one.search)
        await box.wait_for(timeout=TIMEOUT_MS)
        begun = time.perf_counter()
        await box.fill(NEEDLE)
        await page.locator(one.results).get_by_text("where is the").first.wait_for(timeout=TIMEOUT_MS)
        return (time.perf_counter() - begun) * 1000
    finally:
        await page.close()


async def shown(context: BrowserContext, address: str, text: str, click: str) -> float:
    """Return the milliseconds from a navigation, or from a click after it, until a text is visible."""
    page = await context.new_page()
    try:
        begun = time.perf_counter()
        await page.goto(address, timeout=TIMEOUT_MS, wait_until="commit")
        if click:
            title = page.get_by_text(click).first
            await title.wait_for(timeout=TIMEOUT_MS)
            begun = time.perf_counter()
            await title.click(timeout=TIMEOUT_MS)
        await page.get_by_text(text).first.wait_for(timeout=TIMEOUT_MS)
        return (time.perf_counter() - begun) * 1000
    finally:
        await page.close()
