"""OpenCode's database: steps, writes, following, and history of 100,000 parts, against the tree and OpenCode."""

from __future__ import annotations

import asyncio
import os
import shutil
import sqlite3
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import closing
from functools import partial
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

from tests.interop.opencode import DATABASE, opencode_binary
from tests.storage.opencode_databases import PROJECT, empty_database, new_message, new_session, new_text

from opensesh import ids
from opensesh.history.import_export.import_sources import read_sessions
from opensesh.history.import_export.importing import Importer
from opensesh.storage.json_tree.store import JsonTree
from opensesh.storage.opencode_db.store import OpencodeDB

from . import engine
from .listing import isolated
from .report import interleaved, line, opensesh
from .stores import Builder

if TYPE_CHECKING:
    from collections.abc import Sequence

    from opensesh.storage.protocol import RecordChange, Store

_WRITES = 300
_STEPS = 60
_COMMITS = 40
_WRITER = """
import sys, time
from opensesh import ids
from opensesh.storage.opencode_db.store import OpencodeDB
from tests.storage.opencode_databases import new_message
store = OpencodeDB(sys.argv[1])
for number in range(int(sys.argv[2])):
    time.sleep(0.1)
    store.write(("message", "ses_1", f"msg_{number:03}"), new_message(message=f"msg_{number:03}", at=number + 1))
    print(time.monotonic(), flush=True)
"""


def run() -> None:
    with tempfile.TemporaryDirectory() as folder:
        os.environ["XDG_STATE_HOME"] = os.path.join(folder, "state")
        _step(Path(folder))
        _writes(Path(folder))
        _following(Path(folder))
    with tempfile.TemporaryDirectory() as folder:
        _history(folder)


def _step(folder: Path) -> None:
    """Compare the wall time of a step on the database with one on the tree."""
    took: dict[str, float] = {}
    engine.STEPS = _STEPS
    for number in range(3):
        stores: dict[str, Store] = {
            "tree": JsonTree(str(folder / f"tree{number}")),
            "database": OpencodeDB(empty_database(folder / f"database{number}")),
        }
        for name, store in stores.items():
            model = WallStepping()
            asyncio.run(engine.session(str(folder), store, model, 1))
            steps = [after - before for before, after in pairwise(model.clock)]
            took[name] = min(took.get(name, 1e9), median(steps[5:]))
            store.close()
    line("wall time of a step on the database", took["database"] / took["tree"], "on the tree, durable too", 1.0)


class WallStepping(engine.Stepping):
    """Records wall time: a database and a tree differ in how they wait for the disk."""

    async def stream(self, request: engine.Request) -> engine.AsyncIterator[engine.events.StreamEvent]:
        async for event in super().stream(request):
            yield event
        self.clock[-1] = time.perf_counter()


def _writes(folder: Path) -> None:
    """Compare messages with a part and their events, a commit each, with bare commits of the same durability."""
    path = empty_database(folder / "writes")
    with OpencodeDB(path) as store, closing(sqlite3.connect(folder / "bare.db", isolation_level=None)) as bare:
        store.write(("session", PROJECT, "ses_1"), new_session())
        bare.execute("PRAGMA journal_mode = WAL")
        bare.execute("PRAGMA synchronous = FULL")
        bare.execute("CREATE TABLE t (id INTEGER PRIMARY KEY, data TEXT)")

        def ours() -> None:
            for _ in range(_WRITES):
                message, part = ids.ascending("msg"), ids.ascending("prt")
                with store.batch() as batch:
                    batch.write(("message", "ses_1", message), new_message(message=message, at=ids.now_ms()))
                    batch.write(("part", message, part), new_text(message, part, "x" * 500))

        def commits() -> None:
            for _ in range(_WRITES):
                bare.execute("INSERT INTO t (data) VALUES (?)", ["x" * 1_000])

        writes, limit = interleaved(ours, commits, rounds=3)
    print(f"  {_WRITES / writes:,.0f} writes a second, {_WRITES / limit:,.0f} bare commits a second")
    line("a write of a message and a part", writes / limit, "a bare commit")


def _following(folder: Path) -> None:
    """Measure how long after a commit of another process it is reported."""
    path = empty_database(folder / "following")
    arrived: dict[str, float] = {}
    with OpencodeDB(path) as store:
        store.write(("session", PROJECT, "ses_1"), new_session())
        done = threading.Event()

        def receive(changes: Sequence[RecordChange]) -> None:
            for key in (change.key for change in changes if not change.own):
                arrived.setdefault(key[-1], time.monotonic())
            if f"msg_{_COMMITS - 1:03}" in arrived:
                done.set()

        store.subscribe(receive)
        environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
        command = [sys.executable, "-c", _WRITER, str(path), str(_COMMITS)]
        printed = subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout
        done.wait(10)
    committed = [float(text) for text in printed.split()]
    late = sorted(arrived[f"msg_{number:03}"] - moment for number, moment in enumerate(committed))
    print(f"  reported after a median of {median(late) * 1000:.0f} ms, at most {late[-1] * 1000:.0f} ms")
    line("the latest report of a commit of another process", late[-1] / 0.2, "200 ms", 1.0)


def _history(folder: str) -> None:
    """Compare stats, search and export of a database with OpenCode on it, and with the tree of the same sessions."""
    binary = str(opencode_binary(DATABASE))
    tree = os.path.join(folder, "tree")
    builder = Builder(tree)
    for _ in range(1_000):
        builder.session(20, 9, words=30)
    environment = isolated(folder)
    work = os.path.join(folder, "work")
    os.makedirs(work, exist_ok=True)
    database = empty_database(Path(folder) / "data" / "opencode")
    began = time.perf_counter()
    with OpencodeDB(database) as store:
        Importer(store).take(read_sessions(tree))
        parts = len(store.list(("part",)))
    print(f"  {parts:,} parts, imported in {time.perf_counter() - began:.0f} s")
    cache = os.path.join(environment["XDG_CACHE_HOME"], "opensesh")

    def ours(place: str, *words: str) -> None:
        command = [*opensesh(), *words, "--store", place]
        subprocess.run(command, cwd=work, env=environment, stdout=subprocess.DEVNULL, check=True)

    def theirs() -> None:
        subprocess.run([binary, "stats"], cwd=work, env=environment, capture_output=True, check=True)

    def cold() -> None:
        shutil.rmtree(cache, ignore_errors=True)
        ours(str(database), "stats")

    time.sleep(2.1)  # what was written just now is not relied on
    theirs()
    ours(str(database), "stats")
    opencode, nothing_known, known = interleaved(theirs, cold, lambda: ours(str(database), "stats"), rounds=2)
    line("stats, warm: OpenCode / opensesh", opencode / known, f"opencode {DATABASE} stats", 1.0, at_least=True)
    line("stats, cold: OpenCode / opensesh", opencode / nothing_known, f"opencode {DATABASE} stats", 1.0, at_least=True)
    for words in (("stats",), ("search", "parser token"), ("export", "--format", "jsonl", "-o", "/dev/null")):
        ours(str(database), *words)
        ours(tree, *words)
        here, there = interleaved(partial(ours, str(database), *words), partial(ours, tree, *words), rounds=2)
        line(f"{words[0]}, warm", here / there, "on the tree of the same sessions")
