"""The list and the search page in Chromium: 15,000 sessions compared with 150, from a key stroke to the paint.

``OPENSESH_WEB_STORE`` names a folder in which the stores are kept for the next run.
"""

from __future__ import annotations

import asyncio
import os
import tempfile
import time
from pathlib import Path

from playwright.async_api import Browser, Page, async_playwright, expect
from tests.web.conftest import ARGUMENTS, PROGRAM
from tests.web.web_server import WebServer, web_server

from .report import line
from .search import NEEDLE, vocabulary
from .stores import Builder, plant
from .web_session import verdict

MANY, FEW = 15_000, 150
ROUNDS = 7
LIST_MS, SEARCH_MS = 300, 200
_READY = """() => {
  const [page] = performance.getEntriesByType("navigation");
  return page.domContentLoadedEventEnd;
}"""
_TYPE = """async ([box, area, text]) => {
  const input = document.querySelector(box), shown = document.querySelector(area), times = [];
  input.focus();
  for (const letter of text) {
    const start = performance.now();
    const painted = new Promise((done) => {
      const observer = new MutationObserver(() => {
        observer.disconnect();
        requestAnimationFrame(() => setTimeout(() => done(performance.now() - start)));
      });
      observer.observe(shown, {childList: true});
    });
    input.value += letter;
    input.dispatchEvent(new Event("input", {bubbles: true}));
    times.push(await painted);
  }
  return times;
}"""


def run() -> None:
    if PROGRAM is None:
        print("  no Chromium on this machine")
        return
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(os.environ.get("OPENSESH_WEB_STORE", temporary))
        few, many = (store(folder / str(sessions), sessions) for sessions in (FEW, MANY))
        small = asyncio.run(measured(few))
        large = asyncio.run(measured(many))
        for name, budget in (("list", LIST_MS), ("filter", LIST_MS), ("search", SEARCH_MS), ("prefix", SEARCH_MS)):
            line(f"{name}: 15,000 / 150 sessions", large[name] / small[name], "150 sessions", 2.0)
            verdict(f"{name}, 15,000 sessions", large[name], budget, "ms")


def store(home: Path, sessions: int) -> Path:
    """Make a home with so many sessions in forty folders, unless it exists."""
    root = home / ".local/share/opencode/storage"
    if root.exists():
        return home
    builder = Builder(str(root), vocabulary=vocabulary())
    last = ""
    for number in range(sessions):
        builder.clock += builder.random.randrange(30 * 60_000)
        title = " ".join(builder.random.choices(builder.vocabulary, k=5)).capitalize()
        last = builder.session(4, 3, words=60, title=title, directory=f"/srv/dev/project-{number * 7 % 40:02}")
    plant(str(root), last, f"where is the {NEEDLE}?")
    print(f"  {sessions:,} sessions, {builder.files:,} files")
    return home


async def measured(home: Path) -> dict[str, float]:
    """Return the middle of several measurements of each, in milliseconds."""
    with web_server(home) as server:
        async with async_playwright() as playwright:
            browser = await playwright.chromium.launch(executable_path=PROGRAM, args=ARGUMENTS)
            try:
                return await _measured(browser, server)
            finally:
                await browser.close()


async def _measured(browser: Browser, server: WebServer) -> dict[str, float]:
    page = await (await browser.new_context(viewport={"width": 1280, "height": 800})).new_page()
    begun = time.perf_counter()
    await server.enter(page)
    await expect(page.locator("ul.sessions").first).to_be_visible(timeout=600_000)
    print(f"  first list after the start of the server: {time.perf_counter() - begun:.1f} s")
    while not server.http.get(f"/history/search?q={NEEDLE}", timeout=600).json()["index"]["ready"]:
        await asyncio.sleep(1)
    print(f"  and the search index: {time.perf_counter() - begun:.1f} s")
    opened: list[float] = []
    for _ in range(ROUNDS):
        await page.goto("about:blank")
        await page.goto(f"{server.url}/ui/")
        opened.append(await page.evaluate(_READY))
    filtered = await typed(page, f"{server.url}/ui/", "#filters input[name=q]", "#rows", "parser12")
    searched = await typed(page, f"{server.url}/ui/search", "#search-everything", "#results", NEEDLE)
    prefix = await typed(page, f"{server.url}/ui/search", "#search-everything", "#results", "parser token")
    figures = {"list": opened, "filter": filtered, "search": searched, "prefix": prefix}
    for name, times in figures.items():
        shown = ", ".join(f"{value:.0f}" for value in times)
        print(f"  {name}: {shown} ms")
    return {name: sorted(times)[len(times) // 2] for name, times in figures.items()}


async def typed(page: Page, address: str, box: str, area: str, text: str) -> list[float]:
    """Return the time from each key stroke to the paint of its results, with the 80 ms that the page waits."""
    await page.goto(address)
    return await page.evaluate(_TYPE, [box, area, text])
