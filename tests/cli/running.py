from __future__ import annotations

import contextlib
import fcntl
import json
import os
import pty
import re
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Mapping
from pathlib import Path
from select import select
from typing import Any

import pytest

from opensesh.cli.main import run

# As from a shell at that terminal, also where the runner of the tests ignores interruptions.
_BEGIN = """import fcntl, signal, sys, termios
fcntl.ioctl(0, termios.TIOCSCTTY, 0)
signal.signal(signal.SIGINT, signal.default_int_handler)
from opensesh.__main__ import main
main()
"""
_TAKEN_BACK = re.compile(r"[^\n]*\r\x1b\[K")
_CONTROL = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")


class Terminal:
    def __init__(self, capfdbinary: pytest.CaptureFixture[bytes]) -> None:
        self._capture = capfdbinary
        self.code = 0
        self.error = ""

    def run(self, *words: str) -> str:
        self.code = run(words)
        sys.stdout.flush()
        out, error = self._capture.readouterr()
        self.error = error.decode()
        return out.decode()

    def json(self, *words: str) -> Any:
        return json.loads(self.run(*words, "--json"))


class Screen:
    def __init__(
        self, *words: str, columns: int = 80, environ: Mapping[str, str] | None = None, output: Path | None = None
    ) -> None:
        self._master, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 50, columns, 0, 0))
        settings = {name: value for name, value in os.environ.items() if name not in ("NO_COLOR", "TERM", "COLUMNS")}
        with contextlib.nullcontext(slave) if output is None else output.open("wb") as written:
            self._process = subprocess.Popen(
                [sys.executable, "-c", _BEGIN, *words],
                stdin=slave,
                stdout=written,
                stderr=slave,
                start_new_session=True,
                env={**settings, "TERM": "xterm", **(environ or {})},
            )
        os.close(slave)
        self.raw = ""

    @property
    def text(self) -> str:
        return _CONTROL.sub("", _TAKEN_BACK.sub("", self.raw)).replace("\r\n", "\n")

    def until(self, expected: str, seconds: float = 60) -> None:
        deadline = time.monotonic() + seconds
        while expected not in self.text:
            if not self._read(deadline):
                raise AssertionError(f"{expected!r} never came:\n{self.text}")

    def type(self, keys: str) -> None:
        os.write(self._master, keys.encode())

    def interrupt(self) -> None:
        """Ctrl-C, once the program waits: one in the instant before it does is noticed with the next key only."""
        status = Path(f"/proc/{self._process.pid}/stat")
        deadline = time.monotonic() + 60
        while status.exists() and status.read_text().rpartition(")")[2].split()[0] != "S":
            assert time.monotonic() < deadline, "it never waits"
            time.sleep(0.01)
        self.type("\x03")

    def end(self, seconds: float = 60) -> int:
        deadline = time.monotonic() + seconds
        while self._read(deadline):
            pass
        return self._process.wait(timeout=max(deadline - time.monotonic(), 1))

    def close(self) -> None:
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGKILL)
            self._process.wait()
        os.close(self._master)

    def _read(self, deadline: float) -> bool:
        ready, _, _ = select([self._master], [], [], max(deadline - time.monotonic(), 0))
        if not ready:
            return False
        data = b""
        with contextlib.suppress(OSError):
            data = os.read(self._master, 65536)
        self.raw += data.decode(errors="replace")
        return bool(data)


def write_script(text: str, name: str = "model.script") -> str:
    Path(name).write_text(text)
    return f"scripted/{name}"
