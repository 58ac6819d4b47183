"""A page of Chromium that follows an answer of 200 deltas a second: frames, long tasks, and the main thread's share."""

from __future__ import annotations

import asyncio
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from playwright.async_api import Page, async_playwright, expect
from tests.server.serving import SCRIPTED
from tests.web.conftest import ARGUMENTS, PROGRAM
from tests.web.web_server import WebServer, web_server

from .report import line

SECONDS = 15.0
DELTAS_A_SECOND = 200
_PIECE = 4
_BLOCK = """## Step {number}: what the parser does

The parser reads *one line* at a time, and keeps `state` between them. See [the notes](https://example.org/{number}).

- it skips blank lines
- it joins continued ones, **without** their line breaks
- it reports the first error with its position

```python
def parse(line: str, number: int = {number}) -> list[str]:
    return [word.strip() for word in line.split(",") if word.strip()]
```

| kind | count | share |
| --- | ---: | ---: |
| blank | {number} | 12 % |
| error | 3 | 1 % |

"""
_OBSERVE = """() => {
  window.measured = {gaps: [], long: []};
  new PerformanceObserver((list) => list.getEntries().forEach((entry) => measured.long.push(entry.duration)))
    .observe({type: "longtask"});
  let last = performance.now();
  const frame = (now) => { measured.gaps.push(now - last); last = now; requestAnimationFrame(frame); };
  requestAnimationFrame(frame);
}"""


class Figures:
    """What a stretch of time cost the page."""

    def __init__(self, gaps: list[float], long_tasks: list[float], busy: float) -> None:
        self.gaps = sorted(gaps)
        self.long_tasks = long_tasks
        self.busy = busy

    def gap(self, share: float) -> float:
        return self.gaps[min(int(len(self.gaps) * share), len(self.gaps) - 1)]


async def _task_seconds(session: Any) -> float:
    answer = await session.send("Performance.getMetrics")
    return next(one["value"] for one in answer["metrics"] if one["name"] == "TaskDuration")


async def _measure(page: Page, session: Any, seconds: float, server: WebServer, session_id: str = "") -> Figures:
    """Measure an idle page, or one that follows an answer in ``session_id``."""
    await page.evaluate(_OBSERVE)
    before, began = await _task_seconds(session), time.monotonic()
    if session_id:
        text = "".join(_BLOCK.format(number=number) for number in range(200))
        text = text[: int(seconds * DELTAS_A_SECOND * _PIECE)]
        indented = "".join(f"  {part}\n" for part in text.splitlines())
        script = f"SPLIT {_PIECE}\nDRIP {1 / DELTAS_A_SECOND - 0.0019:.4f}\nSAY\n{indented}"
        body = {"model": SCRIPTED, "parts": [{"type": "text", "text": script}]}
        server.post(f"/session/{session_id}/prompt_async", body)
        await expect(page.locator("html")).to_have_attribute("data-run", "busy", timeout=20_000)
        await page.evaluate("measured.gaps = []; measured.long = []")
        before, began = await _task_seconds(session), time.monotonic()
        await expect(page.locator("html")).to_have_attribute("data-run", "idle", timeout=120_000)
        elapsed = time.monotonic() - began
        print(f"{len(text) / _PIECE / elapsed:.0f} deltas a second for {elapsed:.1f} s")
    else:
        await asyncio.sleep(seconds)
    elapsed = time.monotonic() - began
    measured: Any = await page.evaluate("measured")
    return Figures(measured["gaps"], measured["long"], (await _task_seconds(session) - before) / elapsed)


async def _run(home: Path) -> None:
    with web_server(home) as server:
        session_id = server.create("SAY Ready.", title="Streams")
        async with async_playwright() as playwright:
            browser = await playwright.chromium.launch(executable_path=PROGRAM, args=ARGUMENTS)
            page = await browser.new_page(viewport={"width": 1280, "height": 800})
            await server.enter(page, f"/ui/session/{session_id}")
            await expect(page.locator("html")).to_have_attribute("data-run", "idle", timeout=20_000)
            session: Any = await page.context.new_cdp_session(page)
            await session.send("Performance.enable")
            idle = await _measure(page, session, 4.0, server)
            busy = await _measure(page, session, SECONDS, server, session_id)
            await browser.close()
    print(f"frame gap: p95 {busy.gap(0.95):.0f} ms, largest {busy.gaps[-1]:.0f} ms; idle p95 {idle.gap(0.95):.0f} ms")
    print(f"long tasks: {len(busy.long_tasks)}, {sum(busy.long_tasks):.0f} ms")
    line("the longest frame", busy.gaps[-1] / 50, "50 ms", 1.0)
    line("long tasks", float(len(busy.long_tasks)), "none", 0.0)
    line("the main thread's time", busy.busy, "the time that passed", 0.25)
    line("frame gap, 95 of 100", busy.gap(0.95) / idle.gap(0.95), "an idle page", 2.0)


def run() -> None:
    if PROGRAM is None:
        print("no Chromium on this machine", file=sys.stderr)
        return
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(_run(Path(folder)))
