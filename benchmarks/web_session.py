"""The session page in Chromium: a session of 10,000 messages compared with one of 100, and scrolling through it."""

from __future__ import annotations

import asyncio
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from playwright.async_api import async_playwright
from tests.history.sample_tree import Sample
from tests.web.conftest import ARGUMENTS, PROGRAM
from tests.web.web_server import WebServer, web_server

from .report import line

if TYPE_CHECKING:
    from playwright.async_api import Browser, Page

LONG, SHORT = 10_000, 100
ROUNDS = 5
WHEEL_STEPS = 60
_OBSERVE = """
window.longTasks = [];
new PerformanceObserver(list => longTasks.push(...list.getEntries().map(entry => entry.duration)))
  .observe({type: "longtask", buffered: true});
"""
_TIMES = """() => {
  const [page] = performance.getEntriesByType("navigation");
  const paint = performance.getEntriesByName("first-contentful-paint")[0];
  const heap = performance.memory ? performance.memory.usedJSHeapSize : 0;
  return {paint: paint ? paint.startTime : 0, parsed: page.domContentLoadedEventEnd, response: page.responseEnd,
    bytes: page.decodedBodySize, tasks: longTasks.length, blocked: longTasks.reduce((sum, time) => sum + time, 0), heap,
    nodes: document.querySelectorAll("*").length};
}"""


class Opening(NamedTuple):
    """One opening of a session; times in milliseconds since the navigation began."""

    response: float
    paint: float
    parsed: float
    bytes: int
    tasks: int
    blocked: float
    heap: int
    nodes: int


def run() -> None:
    if PROGRAM is None:
        print("  no Chromium on this machine")
        return
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder) / ".local/share/opencode/storage"
        root.mkdir(parents=True)
        sample = Sample(root)
        sessions = {count: write_session(sample, count) for count in (SHORT, LONG)}
        with web_server(Path(folder)) as server:
            asyncio.run(measure(server, sessions))


def write_session(sample: Sample, messages: int) -> str:
    """Store a session of prompts and answers with code, lists and tool calls; return its id."""
    session = sample.session(f"{messages} messages")
    for number in range(messages // 2):
        sample.prompt(session, f"Prompt {number}: please change module {number % 37}.")
        code = f"```python\ndef f{number}(x: int) -> int:\n    return x + {number}  # why\n```"
        answer = sample.answer(session, f"Answer {number}.\n\n{code}\n\n- one\n- two\n\n" + "Words. " * (number % 60))
        sample.tool(answer, "bash", input={"command": f"pytest -k {number}"}, output="ok\n" * 40, metadata={"exit": 0})
        if number % 3 == 0:
            diff = f"--- a\n+++ a\n@@ -1,1 +1,1 @@\n-x = {number}\n+x = {number + 1}\n"
            sample.tool(answer, "edit", input={"filePath": f"/srv/a{number % 50}.py"}, metadata={"diff": diff})
    return session["id"]


async def measure(server: WebServer, sessions: dict[int, str]) -> None:
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=PROGRAM, args=ARGUMENTS)
        openings = {count: await open_often(server, browser, session) for count, session in sessions.items()}
        for count, opening in openings.items():
            print(
                f"  {count:>6,} messages: response {opening.response:.0f} ms, first paint {opening.paint:.0f} ms, "
                f"{opening.bytes / 1000:.0f} kB, {opening.nodes:,} elements, heap {opening.heap / 1e6:.1f} MB, "
                f"{opening.tasks} long tasks ({opening.blocked:.0f} ms)"
            )
        short, long = openings[SHORT], openings[LONG]
        line("first paint: 10,000 / 100 messages", long.paint / short.paint, "100 messages", 1.5)
        verdict("first response", long.bytes / 1000, 100, "kB")
        line("bytes: 10,000 / 100 messages", long.bytes / short.bytes, "100 messages", 2.0)
        verdict("first paint of 10,000 messages", long.paint, 500, "ms")
        await scroll(server, browser, sessions[LONG])
        await browser.close()


def verdict(what: str, value: float, budget: float, unit: str) -> None:
    """Print a row for a value with a unit, and whether it is within the budget."""
    kept = "pass" if value <= budget else "FALLS SHORT"
    print(f"  {what:<56} {value:8.0f} {unit}  {kept} (budget {budget:g} {unit})")


async def signed_in(server: WebServer, browser: Browser) -> Page:
    context = await browser.new_context(viewport={"width": 1280, "height": 800}, reduced_motion="reduce")
    await context.add_init_script(_OBSERVE)
    page = await context.new_page()
    await server.enter(page)
    return page


async def open_often(server: WebServer, browser: Browser, session: str) -> Opening:
    """Return the best opening of several, each in a new profile but for the scripts and styles."""
    openings: list[Opening] = []
    page = await signed_in(server, browser)
    for _ in range(ROUNDS):
        await page.goto("about:blank")
        await page.goto(f"{server.url}/ui/session/{session}")
        await page.locator("#panel .figures").first.wait_for()
        await page.locator("#map .window").wait_for(state="attached")
        openings.append(Opening(**await page.evaluate(_TIMES)))
    await page.context.close()
    return min(openings, key=lambda opening: opening.paint)


async def scroll(server: WebServer, browser: Browser, session: str) -> None:
    """Scroll up by the wheel, jump to the first turn, and visit twenty places."""
    page = await signed_in(server, browser)
    await page.goto(f"{server.url}/ui/session/{session}")
    await page.locator("#map .window").wait_for(state="attached")
    before = Opening(**await page.evaluate(_TIMES))
    await page.mouse.move(500, 400)
    await page.evaluate("longTasks.length = 0")
    for _ in range(WHEEL_STEPS):
        await page.mouse.wheel(0, -700)
        await page.wait_for_timeout(30)
    await page.wait_for_timeout(500)
    after = Opening(**await page.evaluate(_TIMES))
    print(f"  {WHEEL_STEPS} wheel steps: {after.tasks} long tasks ({after.blocked:.0f} ms), {after.nodes:,} elements")
    verdict("long tasks while scrolling", after.tasks, 0, "")
    start = await page.evaluate("performance.now()")
    await page.keyboard.press("g")
    await page.get_by_text("Prompt 0:").first.wait_for()
    print(f"  to the first prompt: {await page.evaluate('performance.now()') - start:.0f} ms, 600 of them for the key")
    place = await page.locator("#map").bounding_box()
    assert place is not None
    for number in range(20):
        await page.mouse.click(place["x"] + 5, place["y"] + place["height"] * (number + 0.5) / 20)
        await page.wait_for_timeout(300)
    nodes = Opening(**await page.evaluate(_TIMES)).nodes
    line("elements: after visiting 20 places / after opening", nodes / before.nodes, "after opening", 6.0)
    await page.context.close()
