"""The pages beside those of OpenCode 1.18.33 and agentsview, on one database: until a list and a long session show.

Each page is opened in a new tab of the same Chromium, in turns; the time is from the navigation to the text that was
looked for, and the least of a few counts. A program that cannot be had or does not show it in time is left out, and why
is said. OpenCode's pages search only titles, so that there is no search to compare.
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
from pathlib import Path
from typing import NamedTuple

from playwright.async_api import BrowserContext, Error, async_playwright
from tests.interop.opencode import DATABASE, opencode_binary
from tests.web.conftest import ARGUMENTS, PROGRAM
from tests.web.web_server import web_server

from .listing import isolated
from .peers import install
from .report import line
from .search import vocabulary
from .stores import Builder, plant, to_database

SESSIONS, LONG = 400, 10_000
ROUNDS = 3
TIMEOUT_MS = 90_000
TITLE, LAST = "The long session", "These are the last words of it."


class PeerPages(NamedTuple):
    """Where a program shows the list, and the long session."""

    name: str
    list: str
    session: str
    click: bool = False
    """Whether the session has no address, and is opened from the list."""


def run() -> None:
    if PROGRAM is None:
        print("  no Chromium on this machine")
        return
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        home = Path(folder)
        session = database(home)
        ours = stack.enter_context(web_server(home))
        pages = [PeerPages("opensesh", f"{ours.url}/ui/", f"{ours.url}/ui/session/{session}")]
        opencode = [str(opencode_binary(DATABASE)), "serve", "--port", "{port}", "--hostname", "127.0.0.1"]
        url = stack.enter_context(served(opencode, home))
        directory = urlsafe_b64encode(str(ours.project).encode()).decode().rstrip("=")
        pages.append(PeerPages("OpenCode", f"{url}/{directory}/session", f"{url}/{directory}/session/{session}"))
        if program := install().get("agentsview", ""):
            url = stack.enter_context(served([program, "serve", "--port", "{port}", "--no-browser"], home))
            pages.append(PeerPages("agentsview", url, url, click=True))
        asyncio.run(compare(pages, ours.ticket()))


def database(home: Path) -> str:
    """Make a home with a database of many sessions, the newest of which is long; return its id."""
    project = home / "eastore"
    project.mkdir()
    builder = Builder(str(home / "tree"), vocabulary=vocabulary())
    for _ in range(SESSIONS):
        builder.session(4, 3, words=60, directory=str(project))
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
        for _ in range(ROUNDS):
            for one in pages:
                for what, address, text in (("list", one.list, TITLE), ("session", one.session, LAST)):
                    if times.get((one.name, what)) == float("inf"):
                        continue
                    try:
                        taken = await shown(context, address, text, TITLE if one.click and what == "session" else "")
                    except Error as error:
                        print(f"  {one.name}, {what}: left out, {str(error).splitlines()[0]}")
                        taken = float("inf")
                    times[one.name, what] = min(taken, times.get((one.name, what), float("inf")))
        await browser.close()
    print(f"  load {os.getloadavg()[0]:.0f}")
    for (name, what), value in times.items():
        print(f"  {name}, {what}: {value:.0f} ms")
    for one in pages[1:]:
        for what in ("list", "session"):
            if (theirs := times[one.name, what]) < float("inf"):
                line(f"{what}: opensesh / {one.name}", times["opensesh", what] / theirs, one.name, 1.0)


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
