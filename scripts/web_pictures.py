"""Make the pictures of the web pages for the documentation: light, dark, and as on a phone.

    python -m scripts.web_pictures [PAGE...]

A server is started over a home of its own, with sessions of the scripted model. Needs Chromium.
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
from pathlib import Path

from playwright.async_api import Browser, async_playwright
from tests.web.conftest import ARGUMENTS, PROGRAM
from tests.web.web_server import WebServer, web_server

PICTURES = Path(__file__).parent.parent / "docs" / "pictures"
FORMS = {
    "light": {"viewport": {"width": 1280, "height": 760}, "color_scheme": "light"},
    "dark": {"viewport": {"width": 1280, "height": 760}, "color_scheme": "dark"},
    "phone": {"viewport": {"width": 390, "height": 760}, "color_scheme": "light", "has_touch": True},
}
MOST = 200_000
"""The largest size of a picture in bytes."""
PARSER = """def parse(line):
    if not line:
        return None
    name, _, value = line.partition("=")
    return name.strip(), value.strip()
"""
FIX = """CALL read {"filePath": "FOLDER/parser.py"}
---
CALL edit {"filePath": "FOLDER/parser.py", "oldString": "        return None", "newString": "        return ()"}
---
CALL bash {"command": "python3 -c 'import parser' && echo 3 passed", "description": "Run the tests"}
---
SAY
  An empty line made `parse` return `None`, which the caller unpacks. It returns an **empty tuple** now:

  ```python
  if not line:
      return ()
  ```

  The three tests pass."""
SESSIONS = (
    ("notes", "Notes on retries", "How often is a request sent again?", "SAY Five times, each after twice the time."),
    (
        "website",
        "Slow start page",
        "Why does the start page take four seconds?",
        "SAY It waits for a font of another host.",
    ),
    (
        "website",
        "Contrast of the buttons",
        "Do the buttons have enough contrast?",
        "SAY The border had 1.3; it has 3.9 now.",
    ),
    (
        "eastore",
        "Migrate the store to the new layout",
        "Migrate the store to the new layout.",
        'CALL bash {"command": "ls", "description": "List"}\n---\nSAY Done.',
    ),
    ("eastore", "Old keys", "Which sessions use the old keys?", "SAY None of the last month."),
)
FIX_PROMPT = "The settings page fails on an empty line. Find the cause and fix it."


def main(names: list[str]) -> int:
    """Make the pictures of all pages, or of those that are named."""
    PICTURES.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder, web_server(Path(folder)) as server:
        pages = sample(server)
        asyncio.run(photograph(server, {name: pages[name] for name in names or pages}))
    sizes = {path.name: path.stat().st_size for path in sorted(PICTURES.glob("web-*.png"))}
    print(sizes)
    return 1 if max(sizes.values()) > MOST else 0


def sample(server: WebServer) -> dict[str, str]:
    """Create the sessions; return the address of each page."""
    for folder, title, prompt, script in SESSIONS:
        directory = server.home / folder
        directory.mkdir(exist_ok=True)
        send(server, server.create(title=title, directory=directory), directory, prompt, script)
    (server.project / "parser.py").write_text(PARSER)
    script = FIX.replace("FOLDER", str(server.project))
    fixed = server.create(title="Fix the parser")
    send(server, fixed, server.project, FIX_PROMPT, script)
    send(server, fixed, server.project, "Where else is it called?", "SAY It is called in `settings.py` only.")
    server.post(f"/session/{fixed}/fork")
    removed = server.create(title="Try the other parser")
    send(server, removed, server.project, "Does the other parser fail too?", "SAY No, it skips empty lines.")
    server.http.delete(f"/session/{removed}").raise_for_status()
    return {
        "sessions": "/ui/",
        "session": f"/ui/session/{fixed}",
        "changes": f"/ui/session/{fixed}/changes",
        "context": f"/ui/session/{fixed}/context",
        "search": "/ui/search?q=the",
        "live": "/ui/live",
        "new": "/ui/new",
        "projects": "/ui/projects",
        "costs": "/ui/costs",
        "doctor": "/ui/doctor",
        "disk": "/ui/disk",
        "trash": "/ui/trash",
        "settings": "/ui/settings",
        "keys": "/ui/keys",
        "enter": "/ui/enter",
    }


def send(server: WebServer, session_id: str, directory: Path, prompt: str, script: str) -> None:
    """Send a prompt to a model that plays a script, in a file of the folder in which the server runs."""
    # Each prompt has a file of its own: a server plays a script once.
    answers = server.project / f"model-{len(list(server.project.glob('*.script'))) + 1}.script"
    answers.write_text(script)
    body = {
        "model": {"providerID": "scripted", "modelID": answers.name},
        "parts": [{"type": "text", "text": prompt}],
    }
    server.post(f"/session/{session_id}/message", body, headers={"x-opencode-directory": str(directory)})


async def photograph(server: WebServer, pages: dict[str, str]) -> None:
    """Write one file a page and form."""
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=PROGRAM, args=ARGUMENTS)
        for form in FORMS:
            await one_form(browser, server, pages, form)
        await browser.close()


async def one_form(browser: Browser, server: WebServer, pages: dict[str, str], form: str) -> None:
    """Take the pictures of all pages in one form."""
    options = FORMS[form]
    context = await browser.new_context(reduced_motion="reduce", locale="en-GB", **options)  # pyright: ignore[reportArgumentType]
    page = await context.new_page()
    await server.enter(page)
    for name, address in pages.items():
        await page.goto(server.url + address)
        await page.wait_for_load_state("load")
        await page.wait_for_timeout(500)  # for what scripts add
        await page.screenshot(path=PICTURES / f"web-{name}-{form}.png")
    await context.close()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
