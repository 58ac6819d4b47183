"""The last 50 messages of a session of 10,000, relative to those of a session of 100."""

from __future__ import annotations

import tempfile
import time

from opensesh.storage.json_tree.store import JsonTree

from .report import interleaved, line
from .stores import Builder


def run() -> None:
    with tempfile.TemporaryDirectory() as folder:
        builder = Builder(folder)
        short, long = builder.session(100), builder.session(10_000)
        time.sleep(2.1)  # the listing of an unchanged folder is cached
        tree = JsonTree(folder)
        first_small, first_large, small, large = interleaved(
            lambda: JsonTree(folder).messages(short, last=50),
            lambda: JsonTree(folder).messages(long, last=50),
            lambda: tree.messages(short, last=50),
            lambda: tree.messages(long, last=50),
            rounds=15,
        )
        line("last 50 of 10,000 messages, first read", first_large / first_small, "last 50 of 100", 2.0)
        line("last 50 of 10,000 messages, later read", large / small, "last 50 of 100", 2.0)
        whole = interleaved(lambda: tree.messages(long), rounds=1)[0]
        line("all 10,000 messages, for comparison", whole / small, "last 50 of 100")
