"""How long a snapshot takes, beside ``git add . && git write-tree`` in a repository of its own, which OpenCode does.

``python -m tests.workspace.bench [FILES]`` makes a project with so many files (50,000) and prints milliseconds. Of
seven rounds the best counts.
"""

from __future__ import annotations

import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from opensesh.project import resolve
from opensesh.workspace import Snapshots

from .desk import git

ROUNDS = 7


def make(folder: Path, count: int) -> None:
    words = [f"w{number:05}" for number in range(20_000)]
    chance = random.Random(1)
    for number in range(count):
        place = folder / f"pkg{number % 100:03}" / f"mod{number // 100 % 20:02}"
        place.mkdir(parents=True, exist_ok=True)
        lines = (" ".join(chance.choices(words, k=8)) for _ in range(chance.randint(5, 120)))
        (place / f"file{number:06}.py").write_text("\n".join(lines) + "\n")
    git(folder, "init", "-q")
    git(folder, "config", "gc.auto", "0")
    git(folder, "add", "-A")
    git(folder, "commit", "-qm", "first")
    git(folder, "repack", "-a", "-d", "-q", "--window=0")


class Bare:
    """What OpenCode 1.1.65 runs."""

    def __init__(self, store: Path, folder: Path) -> None:
        self._folder = folder
        self._environment = os.environ | {"GIT_DIR": str(store), "GIT_WORK_TREE": str(folder)}
        self._run("init", "-q")
        self._run("config", "core.autocrlf", "false")

    def track(self) -> None:
        self._run("add", ".")
        self._run("write-tree")

    def _run(self, *words: str) -> None:
        subprocess.run(("git", *words), cwd=self._folder, env=self._environment, check=True, capture_output=True)


def took(act: Callable[[], object]) -> float:
    start = time.perf_counter()
    act()
    return (time.perf_counter() - start) * 1000


def change(folder: Path, number: int) -> None:
    for each in range(5):
        path = next((folder / f"pkg{number * 5 + each:03}").rglob("*.py"))
        path.write_text(path.read_text() + f"changed {number}\n")


def main() -> None:
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 50_000
    root = Path(tempfile.mkdtemp(prefix="opensesh-bench-"))
    try:
        folder = root / "work"
        folder.mkdir()
        make(folder, count)
        ours = Snapshots(resolve(folder), data=str(root / "data"), state=str(root / "state"))
        bare = Bare(root / "bare", folder)
        measure(folder, ours, bare)
        sizes = [
            sum(path.stat().st_size for path in (root / name).rglob("*") if path.is_file()) for name in ("data", "bare")
        ]
        print(f"{'on disk, MB':<22}{sizes[0] / 1e6:>10.1f}{sizes[1] / 1e6:>10.1f}")
    finally:
        shutil.rmtree(root)


def measure(folder: Path, ours: Snapshots, bare: Bare) -> None:
    print(f"{'milliseconds':<22}{'ours':>10}{'bare git':>10}")
    start = time.perf_counter()
    taking = ours.begin()
    begun = (time.perf_counter() - start) * 1000
    taking.result()
    first = (time.perf_counter() - start) * 1000
    print(f"{'begin() returns':<22}{begun:>10.1f}{'':>10}")
    row("first", [first], [took(bare.track)])
    row("unchanged", *pairs(ours.track, bare.track, lambda number: None))
    row("5 files changed", *pairs(ours.track, bare.track, lambda number: change(folder, number)))


def pairs(
    one: Callable[[], object], other: Callable[[], object], prepare: Callable[[int], None]
) -> tuple[list[float], list[float]]:
    """Both by turns, so that both have the same weather."""
    times: tuple[list[float], list[float]] = ([], [])
    for number in range(ROUNDS):
        prepare(number)
        times[0].append(took(one))
        times[1].append(took(other))
    return times


def row(name: str, ours: list[float], bare: list[float]) -> None:
    print(f"{name:<22}{min(ours):>10.0f}{min(bare):>10.0f}")


if __name__ == "__main__":
    main()
