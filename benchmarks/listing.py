"""Listing 1,000 sessions and loading the largest, against real OpenCode 1.1.65 on the same tree (wall time)."""

from __future__ import annotations

import os
import subprocess
import tempfile
from pathlib import Path

from .report import interleaved, line, opensesh
from .stores import Builder


def run() -> None:
    from tests.interop.opencode import opencode_binary

    with tempfile.TemporaryDirectory() as folder:
        root = os.path.join(folder, "data", "opencode", "storage")
        builder = Builder(root)
        for _ in range(999):
            builder.session(10)
        largest = builder.session(1_000)
        binary = opencode_binary("1.1.65")
        environment = isolated(folder)
        work = os.path.join(folder, "work")
        os.mkdir(work)

        def theirs(*words: str) -> None:
            subprocess.run([binary, *words], cwd=work, env=environment, capture_output=True, check=True)

        def ours(*words: str) -> None:
            subprocess.run([*opensesh(), *words, "--store", root], env=environment, capture_output=True, check=True)

        print(f"  a tree of {builder.files:,} files")
        theirs("session", "list")
        listed, list_ours = interleaved(
            lambda: theirs("session", "list", "--format", "json"), lambda: ours("list", "--limit", "0"), rounds=3
        )
        line(
            "list 1,000 sessions: OpenCode / opensesh", listed / list_ours, "opencode session list", 1.0, at_least=True
        )
        loaded, load_ours = interleaved(
            lambda: theirs("export", largest), lambda: ours("show", largest, "--json"), rounds=3
        )
        line(
            "load a session of 1,000 messages: OpenCode / opensesh",
            loaded / load_ours,
            "opencode export",
            1.0,
            at_least=True,
        )


def isolated(folder: str) -> dict[str, str]:
    """An environment in which OpenCode sees nothing but ``folder``."""
    homes = {f"XDG_{kind}_HOME": str(Path(folder, kind.lower())) for kind in ("DATA", "CONFIG", "CACHE", "STATE")}
    switches = ("AUTOUPDATE", "MODELS_FETCH", "LSP_DOWNLOAD", "DEFAULT_PLUGINS")
    off = {f"OPENCODE_DISABLE_{name}": "1" for name in switches}
    return {"PATH": os.environ["PATH"], "HOME": folder} | homes | off
