"""CPU time and peak memory of list, search, stats and export at 150, 1,500 and 15,000 sessions.

Each store is made once and deleted after it was measured; the largest has 165,000 files. Memory is the peak of the
command itself (``VmHWM``), without its parent process.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Iterator
from functools import partial

from .memory import peak
from .peers import Home, race
from .report import line
from .search import NEEDLE
from .stores import Builder, plant

SIZES = (150, 1_500, 15_000)
COLD = {"stats, empty cache": ("stats",), "first search, with the index": ("search", NEEDLE)}
WARM = {
    "list": ("list",),
    "search": ("search", NEEDLE),
    "stats": ("stats",),
    "stats of a week": ("stats", "--since", "2026-09-20", "--until", "2026-09-27"),
    "export of all": ("export", "--format", "jsonl"),
}


def run() -> None:
    took: dict[str, list[float]] = {}
    memory: dict[str, list[float]] = {}
    for sessions in SIZES:
        with tempfile.TemporaryDirectory() as folder:
            home = Home(folder)
            _fill(home, sessions)
            for what, seconds, kilobytes in _measured(home):
                took.setdefault(what, []).append(seconds)
                memory.setdefault(what, []).append(kilobytes)
    sizes = " to ".join(f"{sessions:,}" for sessions in SIZES)
    print(f"  {sizes} sessions of 11 files each")
    for what, seconds in took.items():
        steps = ", ".join(f"{second:.2f}" for second in seconds)
        line(f"CPU of {what}", seconds[-1] / seconds[0], f"{steps} s; sessions 100x", SIZES[-1] / SIZES[0])
    for what, kilobytes in memory.items():
        steps = ", ".join(f"{size / 1000:.0f}" for size in kilobytes)
        budget = 2.0 if what in WARM else 4.0
        line(f"peak memory of {what}", kilobytes[-1] / kilobytes[0], f"{steps} MB; sessions 100x", budget)


def _fill(home: Home, sessions: int) -> None:
    builder = Builder(home.store)
    last = ""
    for _ in range(sessions):
        last = builder.session(4, 2, words=30)
    plant(home.store, last, NEEDLE)
    time.sleep(3.1)  # the cache does not rely on files that were changed just now


def _measured(home: Home) -> Iterator[tuple[str, float, float]]:
    for what, words in COLD.items():
        spent = race(partial(home.ours, *words), rounds=1)[0].cpu
        home.forget()
        yield what, spent, peak(*words, environment=home.environment)
        assert os.listdir(home.cache), "the cache is written"
    home.ours("stats")  # the last search removed the cache
    for what, words in WARM.items():
        yield what, race(partial(home.ours, *words), rounds=2)[0].cpu, peak(*words, environment=home.environment)
