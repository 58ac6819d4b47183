from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path


class Server:
    """``opensesh serve-share`` as a process of its own."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._process: subprocess.Popen[str] | None = None
        self.port = 0
        self.url = ""

    def start(self, *before: str) -> None:
        words = ("serve-share", "--port", str(self.port), "--data", str(self._folder), "--json")
        self._process = subprocess.Popen(
            [*before, sys.executable, "-m", "opensesh", *words],
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        assert self._process.stdout is not None
        output = ""
        while not output.rstrip().endswith("}"):
            line = self._process.stdout.readline()
            assert line, "the server ended"
            output += line
        self.url = json.loads(output)["url"]
        self.port = int(self.url.rsplit(":", 1)[1])

    def stop(self, number: int = signal.SIGTERM) -> int | None:
        process, self._process = self._process, None
        if process is None:
            return None
        process.send_signal(number)
        code = process.wait(timeout=60)
        if process.stdout is not None:
            process.stdout.close()
        return code
