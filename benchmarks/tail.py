"""The last 50 messages of a session of 10,000, against the same of a session of 100."""

from __future__ import annotations

import tempfile

from opensesh.storage.json_tree import JsonTree

from .report import interleaved, line
from .stores import Builder


def run() -> None:
    with tempfile.TemporaryDirectory() as folder:
        builder = Builder(folder)
        short, long = builder.session(100), builder.session(10_000)
        tree = JsonTree(folder)
        small, large = interleaved(
            lambda: tree.messages(short, last=50), lambda: tree.messages(long, last=50), rounds=15
        )
        line("last 50 of 10,000 messages", large / small, "last 50 of 100", 2.0)
        whole = interleaved(lambda: tree.messages(long), rounds=1)[0]
        line("all 10,000 messages, for comparison", whole / small, "last 50 of 100")
