"""Tokens and cost of 1,000 sessions and 100,000 parts, against real OpenCode 1.1.65 on the same tree (wall time)."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
import time

from .listing import isolated
from .report import interleaved, line, opensesh
from .stores import Builder

_SIZES = (150, 1_500)


def run() -> None:
    from tests.interop.opencode import opencode_binary

    binary = str(opencode_binary("1.1.65"))
    with tempfile.TemporaryDirectory() as folder:
        root = os.path.join(folder, "data", "opencode", "storage")
        builder = Builder(root)
        for _ in range(1_000):
            builder.session(20, 9, words=60)
        environment = isolated(folder)
        work = os.path.join(folder, "work")
        os.mkdir(work)
        cache = os.path.join(environment["XDG_CACHE_HOME"], "opensesh")

        def theirs() -> None:
            subprocess.run([binary, "stats"], cwd=work, env=environment, capture_output=True, check=True)

        def ours(*words: str) -> None:
            subprocess.run([*opensesh(), "stats", *words], env=environment, capture_output=True, check=True)

        def cold() -> None:
            shutil.rmtree(cache, ignore_errors=True)
            ours()

        print(f"  a tree of {builder.files:,} files")
        time.sleep(2.1)  # what was written just now is not relied on
        theirs()
        ours()
        opencode, nothing_known, known = interleaved(theirs, cold, ours, rounds=3)
        line("warm: OpenCode / opensesh", opencode / known, "opencode stats", 100.0, at_least=True)
        line("cold: OpenCode / opensesh", opencode / nothing_known, "opencode stats", 10.0, at_least=True)
        first, again = interleaved(lambda: ours("--by", "tool", "--fresh"), lambda: ours("--by", "tool"), rounds=2)
        line("by tool, everything read: OpenCode / opensesh", opencode / first, "opencode stats")
        line("by tool, again: OpenCode / opensesh", opencode / again, "opencode stats")
    _growth()


def _growth() -> None:
    """How the second question grows with the store."""
    took: list[float] = []
    for sessions in _SIZES:
        with tempfile.TemporaryDirectory() as folder:
            builder = Builder(os.path.join(folder, "data", "opencode", "storage"))
            for _ in range(sessions):
                builder.session(6, 2, words=5)
            environment = isolated(folder)
            time.sleep(2.1)

            def again(environment: dict[str, str] = environment) -> None:
                subprocess.run([*opensesh(), "stats"], env=environment, capture_output=True, check=True)

            again()
            took += interleaved(again, rounds=5)
    line(f"warm, {_SIZES[1]:,} sessions", took[1] / took[0], f"warm, {_SIZES[0]:,} sessions", _SIZES[1] / _SIZES[0])
