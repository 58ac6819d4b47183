"""A server in a process of its own with its own home folder, and the sign-in of a browser."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

import httpx2
from playwright.async_api import Page, expect

from opensesh.server.web.server_file import request_ticket

from ..server.serving import SCRIPTED

_VARIABLES = ("XDG_DATA_HOME", "XDG_CONFIG_HOME", "XDG_STATE_HOME", "XDG_CACHE_HOME", "OPENSESH_STORE")


class WebServer:
    """A running server. Requests to its API are about ``project``."""

    def __init__(
        self, home: Path, url: str, project: Path, environ: dict[str, str], process: subprocess.Popen[str]
    ) -> None:
        self.process = process
        self.home = home
        self.url = url
        self.project = project
        self.environ = environ
        self.http = httpx2.Client(base_url=url, timeout=60, trust_env=False)
        self.http.headers["x-opencode-directory"] = str(project)

    def post(self, path: str, body: Any = None, **options: Any) -> Any:
        response = self.http.post(path, json={} if body is None else body, **options)
        assert response.status_code in (200, 204), response.text
        return response.json() if response.content else None

    def create(self, *scripts: str, directory: Path | None = None, **fields: Any) -> str:
        """Create a session, and send the scripted model what it says in each turn."""
        headers = {"x-opencode-directory": str(directory or self.project)}
        session_id = self.post("/session", fields, headers=headers)["id"]
        for script in scripts:
            body = {"model": SCRIPTED, "parts": [{"type": "text", "text": script}]}
            self.post(f"/session/{session_id}/message", body, headers=headers)
        return session_id

    def ticket(self) -> str:
        """Return a new ticket, as the command line gets one."""
        with patch.dict(os.environ, self.environ):
            issued = request_ticket(None)
        assert issued is not None
        assert issued[0] == self.url
        return issued[1]

    async def enter(self, page: Page, path: str = "/ui/") -> None:
        """Sign in a browser, and open a page."""
        await page.goto(f"{self.url}/ui/enter#{self.ticket()}")
        await expect(page).to_have_url(f"{self.url}/ui/")
        await expect(page.locator("#rows")).to_be_attached()  # the page before the first list loads itself again
        await page.wait_for_load_state("load")  # with its scripts
        if path != "/ui/":
            await page.goto(self.url + path)


@contextmanager
def web_server(home: Path, *arguments: str) -> Generator[WebServer]:
    """Start a server in a process of its own; it ends with the block."""
    project = home / "eastore"
    project.mkdir(parents=True, exist_ok=True)
    environ = {name: value for name, value in os.environ.items() if name not in _VARIABLES}
    environ |= {"HOME": str(home), "USERPROFILE": str(home)}
    with (home / "server.log").open("ab") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "opensesh", "serve", "--port", "0", *arguments],
            cwd=project,
            env=environ,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
        )
    assert process.stdout is not None
    try:
        line = process.stdout.readline()
        assert line.startswith("opencode server listening on "), (home / "server.log").read_text()
        server = WebServer(home, line.split()[-1], project, environ, process)
        try:
            yield server
        finally:
            server.http.close()
    finally:
        process.terminate()
        process.wait(60)
        process.stdout.close()
