"""Wall time from ``run`` to the first request, compared with OpenCode 1.1.65 and the same model."""

from __future__ import annotations

import subprocess
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

from opensesh.testing.wire import WireServer

from .report import line, opensesh

if TYPE_CHECKING:
    from tests.interop.opencode import OpenCode

ROUNDS = 5
MODEL = "fake/scripted"


def run() -> None:
    from tests.interop.opencode import OpenCode

    with tempfile.TemporaryDirectory() as folder, WireServer() as wire:
        theirs = OpenCode(Path(folder), wire)
        words = ["run", "-m", MODEL, "--title", "Waiting", "Say hello."]
        sides = {"ours": [*opensesh(), *words], "theirs": [str(theirs.binary), *words]}
        best = dict.fromkeys(sides, float("inf"))
        for _ in range(ROUNDS):
            for side, command in sides.items():
                best[side] = min(best[side], seconds_to_first_request(command, wire, theirs))
        print(f"  opensesh {best['ours'] * 1000:,.0f} ms, OpenCode {best['theirs'] * 1000:,.0f} ms")
        line(
            "from run to the first request: OpenCode / opensesh",
            best["theirs"] / best["ours"],
            "opencode run",
            1.0,
            at_least=True,
        )


def seconds_to_first_request(command: list[str], wire: WireServer, where: OpenCode) -> float:
    """Return the seconds until the first request arrived; the program then runs to its end."""
    before = len(wire.conversation)
    start = time.perf_counter()
    with subprocess.Popen(
        command,
        cwd=where.directory,
        env=where.environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    ) as process:
        wire.wait_for(before + 1)
        took = time.perf_counter() - start
        process.wait()
    return took
