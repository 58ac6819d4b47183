"""A real Chromium, spoken to over a pipe: what a page does, what it asks of the network, and how it looks."""

from __future__ import annotations

import base64
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from select import select
from typing import Any

import pytest

PROGRAM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
needs_browser = pytest.mark.skipif(PROGRAM is None, reason="no Chromium on this machine (apt-get install chromium)")
_QUIET = (
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-extensions",
    "--no-first-run",
    "--hide-scrollbars",
    "--remote-debugging-pipe",
)
_BEGIN = """import fcntl, os, sys
pipes = [fcntl.fcntl(int(number), fcntl.F_DUPFD, 10) for number in sys.argv[1:3]]
os.dup2(pipes[0], 3)  # where the browser listens, and where it speaks
os.dup2(pipes[1], 4)
os.execv(sys.argv[3], sys.argv[3:])
"""
_MIDDLE = """(element => {
  element.scrollIntoView({block: "center"});
  const box = element.getBoundingClientRect();
  return [box.x + box.width / 2, box.y + box.height / 2];
})"""


class Browser:
    """One window. Everything it asks for is noted, whether it gets it or not."""

    def __init__(self, profile: Path) -> None:
        assert PROGRAM
        theirs_in, self._out = os.pipe()
        self._in, theirs_out = os.pipe()
        pipes = (str(theirs_in), str(theirs_out))
        self._process = subprocess.Popen(
            [sys.executable, "-c", _BEGIN, *pipes, PROGRAM, *_QUIET, f"--user-data-dir={profile}", "about:blank"],
            pass_fds=(theirs_in, theirs_out),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(theirs_in)
        os.close(theirs_out)
        self._buffer = b""
        self._number = 0
        self.requests: list[str] = []
        """Every address that was asked for since the page was opened."""
        self.dialogs: list[str] = []
        self.complaints: list[str] = []
        """What the console says: errors, and what the page's policy forbade."""
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Network", "Runtime", "Log"):
            self.call(f"{domain}.enable")

    def open(self, page: Path) -> None:
        """Show a file, and wait for all of it."""
        self.requests, self.dialogs, self.complaints = [], [], []
        self.call("Page.navigate", url=page.as_uri())
        self.until("document.readyState === 'complete'")

    def look(self, *, width: int = 1200, height: int = 900, dark: bool = False) -> None:
        """Set the size of the window, and which colours its user prefers."""
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", features=[scheme])

    def ask(self, expression: str) -> Any:
        """The value of an expression in the page."""
        answer = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in answer, answer
        return answer["result"].get("value")

    def until(self, expression: str, seconds: float = 60) -> None:
        """Wait for an expression in the page to be true."""
        deadline = time.monotonic() + seconds
        while not self.ask(expression):
            assert time.monotonic() < deadline, f"{expression} never came true"
            time.sleep(0.02)

    def type(self, text: str) -> None:
        """As from a keyboard, to the element with the focus."""
        self.call("Input.insertText", text=text)

    def click(self, selector: str) -> None:
        """With the mouse, in the middle of an element."""
        box = self.ask(f"{_MIDDLE}(document.querySelector({selector!r}))")
        for kind in ("mousePressed", "mouseReleased"):
            self.call("Input.dispatchMouseEvent", type=kind, x=box[0], y=box[1], button="left", clickCount=1)

    def picture(self, file: Path, *, whole: bool = False) -> None:
        """A screenshot."""
        shot = self.call("Page.captureScreenshot", format="png", captureBeyondViewport=whole)
        file.write_bytes(base64.b64decode(shot["data"]))

    def close(self) -> None:
        """End it."""
        self._process.kill()
        self._process.wait()
        os.close(self._in)
        os.close(self._out)

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """One command of the debugging protocol, and its answer; what happens meanwhile is noted."""
        self._number += 1
        message: dict[str, Any] = {"id": self._number, "method": method, "params": parameters}
        if not method.startswith("Target."):
            message["sessionId"] = self._session
        os.write(self._out, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._receive()
            if answer.get("id") == self._number:
                if answer.get("error", {}).get("message") == "Inspected target navigated or closed":
                    return self.call(method, **parameters)  # a page that is left takes its answers with it
                assert "error" not in answer, answer
                return answer["result"]
            self._note(answer)

    def _receive(self) -> dict[str, Any]:
        while b"\0" not in self._buffer:
            ready, _, _ = select([self._in], [], [], 60)
            assert ready, "the browser does not answer"
            data = os.read(self._in, 1 << 20)
            assert data, "the browser is gone"
            self._buffer += data
        message, self._buffer = self._buffer.split(b"\0", 1)
        return json.loads(message)

    def _note(self, event: dict[str, Any]) -> None:
        text: dict[str, Any] = event.get("params", {})
        known: dict[str, Callable[[], None]] = {
            "Network.requestWillBeSent": lambda: self.requests.append(text["request"]["url"]),
            "Runtime.exceptionThrown": lambda: self.complaints.append(str(text["exceptionDetails"])),
            "Log.entryAdded": lambda: self.complaints.append(text["entry"]["text"]),
            "Page.javascriptDialogOpening": lambda: self._dismiss(text["message"]),
        }
        known.get(event.get("method", ""), lambda: None)()

    def _dismiss(self, message: str) -> None:
        self.dialogs.append(message)
        self._number += 1
        dismissal = {"id": self._number, "method": "Page.handleJavaScriptDialog", "params": {"accept": False}}
        os.write(self._out, json.dumps(dismissal | {"sessionId": self._session}).encode() + b"\0")
