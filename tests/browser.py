"""A real Chromium for tests: where it is, and one that shows pages from files."""

from __future__ import annotations

import shutil
import time
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import ConsoleMessage, Dialog, sync_playwright

PROGRAM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
NO_PROGRAM = "no Chromium on this machine (apt-get install chromium)"
ARGUMENTS = ["--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"]
needs_browser = pytest.mark.skipif(PROGRAM is None, reason=NO_PROGRAM)


class Browser:
    """One page in a browser of its own, which records the requests, dialogs and console errors of the page."""

    def __init__(self) -> None:
        self._playwright = sync_playwright().start()
        self._chromium = self._playwright.chromium.launch(executable_path=PROGRAM, args=ARGUMENTS)
        self._page = self._chromium.new_page()
        self.requests: list[str] = []
        """The address of every request since the page was opened, whether it was answered or not."""
        self.dialogs: list[str] = []
        self.complaints: list[str] = []
        """The errors in the console and the exceptions since the page was opened."""
        self._page.on("request", lambda request: self.requests.append(request.url))
        self._page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self._page.on("console", self._on_console)
        self._page.on("dialog", self._on_dialog)

    def open(self, page: Path) -> None:
        """Show a file, and wait until it is loaded."""
        self.requests, self.dialogs, self.complaints = [], [], []
        self._page.goto(page.as_uri())

    def look(self, *, width: int = 1200, height: int = 900, dark: bool = False) -> None:
        """Set the size of the page, and the colour scheme that the user prefers."""
        self._page.set_viewport_size({"width": width, "height": height})
        self._page.emulate_media(color_scheme="dark" if dark else "light")

    def ask(self, expression: str) -> Any:
        """Return the value of a JavaScript expression in the page."""
        return self._page.evaluate(expression)

    def until(self, expression: str, seconds: float = 60) -> None:
        """Wait until a JavaScript expression in the page is true."""
        deadline = time.monotonic() + seconds
        while not self.ask(expression):
            assert time.monotonic() < deadline, f"{expression} never became true"
            self._page.wait_for_timeout(20)

    def type(self, text: str) -> None:
        """Type text into the element that has the focus."""
        self._page.keyboard.insert_text(text)

    def click(self, selector: str) -> None:
        """Click the first element that matches a CSS selector."""
        self._page.locator(selector).first.click()

    def close(self) -> None:
        """End the browser."""
        self._chromium.close()
        self._playwright.stop()

    def _on_console(self, message: ConsoleMessage) -> None:
        if message.type == "error":
            self.complaints.append(message.text)

    def _on_dialog(self, dialog: Dialog) -> None:
        self.dialogs.append(dialog.message)
        dialog.dismiss()
