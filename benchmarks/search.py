"""Searching 1,000 sessions and 100,000 parts, against grep (and ripgrep) over the same tree (wall time)."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable

from opensesh.history.cache.derived_cache import DerivedCache
from opensesh.history.search.text_layer import TEXT
from opensesh.history.search.text_search import Query, search
from opensesh.storage.locations import find_stores

from .memory import peak
from .report import interleaved, line, opensesh
from .stores import WORDS, Builder, plant

SESSIONS = 1_000
NEEDLE = "xylophone"


def run() -> None:
    with tempfile.TemporaryDirectory() as folder:
        for kind in ("CACHE", "STATE"):
            os.environ[f"XDG_{kind}_HOME"] = os.path.join(folder, kind.lower())
        root = os.path.join(folder, "data", "storage")
        small = os.path.join(folder, "small", "storage")
        files = store(root, SESSIONS)
        store(small, SESSIONS // 10)
        print(f"  a tree of {files:,} files")
        index = DerivedCache(find_stores(os.path.dirname(root)))
        _build(index, root)
        _confirm(index, root)
        _query(index, root)
        index.close()
        _command(root)
        _memory(small, root)


def vocabulary() -> list[str]:
    """Some thousand words, few of them common, as in anything that people or programs write."""
    rare = [f"{WORDS[number % len(WORDS)]}{number:x}" for number in range(20_000)]
    return [*WORDS * 2_000, *rare]


def store(root: str, sessions: int) -> int:
    """A tree of so many sessions of a hundred parts each, one of which holds the needle; how many files it has."""
    builder = Builder(root, vocabulary=vocabulary())
    last = ""
    for _ in range(sessions):
        last = builder.session(40)
    plant(root, last, f"where is the {NEEDLE}?")
    return builder.files


def _build(index: DerivedCache, root: str) -> None:
    read = _cpu(lambda: _text(root))
    built = _cpu(lambda: index.refresh(TEXT))
    line("the first index (CPU)", built / read, "reading and decoding every part")
    line("its size", os.path.getsize(index.path) / _text(root), "the text in it")
    print(f"  ({SESSIONS * 100 / built:,.0f} parts a second of CPU on this machine)")


def _confirm(index: DerivedCache, root: str) -> None:
    index.refresh(TEXT)
    confirmed, looked = interleaved(lambda: index.refresh(TEXT), lambda: _look(root), rounds=3)
    line(
        "a look at every file / confirming that nothing changed",
        looked / confirmed,
        "os.stat of all",
        5.0,
        at_least=True,
    )
    thorough = _timed(lambda: index.refresh(TEXT, full=True))
    line("comparing every file, when asked to", thorough / looked, "os.stat of all")


def _query(index: DerivedCache, root: str) -> None:
    def asked(text: str) -> Callable[[], object]:
        return lambda: search(index, Query(text))

    assert search(index, Query(NEEDLE)).total == 1
    cases = [("one hit", NEEDLE), ("a hit in nearly every part", "parser"), ("a part of a word", f"*{NEEDLE[2:7]}*")]
    for what, text in cases:
        plain = text.strip("*")
        for tool, words in greps(plain, root).items():
            theirs, ours = interleaved(lambda words=words: _call(words), asked(text), rounds=3)
            line(f"{tool} / search, warm, in process: {what}", theirs / ours, " ".join(words[:2]), 20.0, at_least=True)


def _command(root: str) -> None:
    words = [*opensesh(), "search", NEEDLE, "--store", os.path.dirname(root)]
    for tool, others in greps(NEEDLE, root).items():
        theirs, ours = interleaved(lambda others=others: _call(others), lambda: _call(words), rounds=5)
        line(f"{tool} / opensesh search, the whole command", theirs / ours, " ".join(others[:2]), 5.0, at_least=True)


def _memory(small: str, large: str) -> None:
    _peak(small)
    warm = [_peak(root) for root in (small, large)]
    line("peak memory of search, 1,000 sessions", warm[1] / warm[0], "100 sessions", 1.3)
    shutil.rmtree(os.environ["XDG_CACHE_HOME"])
    cold = [_peak(root) for root in (small, large)]
    line("peak memory of the first search, index and all", cold[1] / cold[0], "100 sessions", 1.5)


def _peak(root: str) -> float:
    return peak("search", NEEDLE, "--store", os.path.dirname(root))


def greps(text: str, root: str) -> dict[str, list[str]]:
    """Return the commands of other programs for the same search."""
    commands = {"grep": ["grep", "-rl", text, root]}
    if shutil.which("rg"):
        commands["ripgrep"] = ["rg", "-l", text, root]
    return commands


def _call(words: list[str]) -> None:
    subprocess.run(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False)


def _timed(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def _cpu(work: Callable[[], object]) -> float:
    start = time.process_time()
    work()
    return time.process_time() - start


def _look(root: str) -> int:
    """Every file's time and size, in as few calls as that takes."""
    total = 0
    for folder, _, names in os.walk(root):
        for name in names:
            total += os.stat(os.path.join(folder, name)).st_size
    return total


def _text(root: str) -> int:
    """Read every part with the standard library; how many bytes of text there are."""
    total = 0
    for folder, _, names in os.walk(os.path.join(root, "part")):
        for name in names:
            with open(os.path.join(folder, name), "rb") as file:
                part = json.load(file)
            total += len(part.get("text") or part["state"]["output"])
    return total
