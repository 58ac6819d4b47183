"""Mutation testing: change one thing in a module at a time, and run the tests that reach it.

    python scripts/mutants.py src/opensesh/ids.py tests/test_ids.py tests/records
    python scripts/mutants.py src/opensesh/storage/merged.py tests/storage/test_merged.py --sample 80 --seed 7
    python scripts/mutants.py src/opensesh/ids.py tests/test_ids.py --again survivors.txt

Works on a copy of the tree. The tests run once without a mutation, to record which lines they reach; then the tests
that reach the line of a mutant (or all of them if none does, as with code that runs on import) run on it, the fastest
first, until one fails. A mutant that survives is printed as a diff of one statement. One process at a time, forked
with the libraries loaded; POSIX only. Not mutated: annotations, docstrings, messages of exceptions, options of a
class. The exit code is 1 if a mutant survived.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import shutil
import signal
import sys
import tempfile
import threading
import time
from collections import defaultdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from mutations import Mutant, mutants

if TYPE_CHECKING:
    from collections.abc import Generator
    from types import FrameType

ROOT = Path(__file__).parent.parent
COPIED = ("src", "tests", "scripts", "docs", "examples", "benchmarks", "pyproject.toml", "README.md", "CHANGELOG.md")
PLUGINS = ("pytest_asyncio.plugin", "pytest_timeout", "_hypothesis_pytestplugin")
OPTIONS = [*(f"-p{name}" for name in PLUGINS), "-Wignore::pytest.PytestAssertRewriteWarning"]


class Reach:
    """A pytest plugin that records which tests run which lines of one file, and how long they take."""

    def __init__(self, path: Path) -> None:
        self._path = str(path)
        self._test = ""
        self.lines: defaultdict[int, set[str]] = defaultdict(set)
        self.seconds: dict[str, float] = {}

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, object, object]:
        self._test = item.nodeid
        started = time.perf_counter()
        sys.settrace(self._enter)
        threading.settrace(self._enter)
        try:
            return (yield)
        finally:
            sys.settrace(None)
            threading.settrace(None)  # type: ignore[arg-type]
            self.seconds[item.nodeid] = time.perf_counter() - started

    def _enter(self, frame: FrameType, event: str, argument: object) -> Any:
        if frame.f_code.co_filename != self._path:
            return None
        self.lines[frame.f_lineno].add(self._test)
        return self._step

    def _step(self, frame: FrameType, event: str, argument: object) -> Any:
        self.lines[frame.f_lineno].add(self._test)
        return self._step


class ChosenTests:
    """A pytest plugin that runs some tests in a given order, and keeps Hypothesis from shrinking."""

    def __init__(self, tests: list[str]) -> None:
        self._rank = {test: rank for rank, test in enumerate(tests)}

    @pytest.hookimpl(trylast=True)
    def pytest_configure(self) -> None:
        from hypothesis import Phase, settings

        phases = (Phase.explicit, Phase.generate)
        settings.register_profile("mutants", settings(), phases=phases, database=None, derandomize=True)
        settings.load_profile("mutants")

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        items[:] = sorted(
            (item for item in items if item.nodeid in self._rank), key=lambda item: self._rank[item.nodeid]
        )


class Bench:
    """A copy of the tree with the module to mutate, and the tests to run."""

    def __init__(self, module: str, tests: list[str], folder: Path) -> None:
        self.module, self.tests, self.folder = module, tests, folder
        for name in COPIED:
            source = ROOT / name
            (shutil.copytree if source.is_dir() else shutil.copy2)(source, folder / name)
        self.path = folder / module
        self.lines: dict[int, set[str]] = {}
        self.seconds: dict[str, float] = {}

    def learn(self) -> None:
        """Run the tests without a mutation, and record the lines they reach."""
        report = self.folder / "reach.json"
        if self._fork(lambda: self._reach(report), 1200) != 0:
            raise SystemExit("the tests fail without any mutant:\n" + (self.folder / "output").read_text("utf-8"))
        recorded = json.loads(report.read_bytes())
        self.lines = {int(line): set(tests) for line, tests in recorded["lines"].items()}
        self.seconds = recorded["seconds"]

    def _reach(self, report: Path) -> int:
        reach = Reach(self.path)
        code = pytest.main([*OPTIONS, *self.tests], [reach])
        report.write_text(
            json.dumps({"lines": {k: sorted(v) for k, v in reach.lines.items()}, "seconds": reach.seconds})
        )
        return code

    def notices(self, mutant: Mutant) -> str:
        """Return ``killed``, ``time`` if a test did not end, or ``survived``."""
        chosen = sorted(self.lines.get(mutant.line) or self.seconds, key=self.seconds.__getitem__)
        files = sorted({test.partition("::")[0] for test in chosen})
        limit = 10 + 4 * sum(self.seconds[test] for test in chosen)
        for compiled in (self.path.parent / "__pycache__").glob(f"{self.path.stem}.*"):
            compiled.unlink()
        self.path.write_text(mutant.source, "utf-8")
        code = self._fork(lambda: pytest.main([*OPTIONS, "-x", "--tb=no", *files], [ChosenTests(chosen)]), limit)
        return "time" if code is None else "survived" if code == 0 else "killed"

    def _fork(self, work: Any, limit: float) -> int | None:
        child = os.fork()
        if child == 0:
            os.setsid()
            os.chdir(self.folder)
            sys.path.insert(0, str(self.folder / "src"))
            os.environ["PYTHONPATH"] = str(self.folder / "src")
            quiet = os.open(self.folder / "output", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
            os.dup2(quiet, 1)
            os.dup2(quiet, 2)
            os._exit(int(work()))
        try:
            return _waited(child, time.monotonic() + limit)
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(child, signal.SIGKILL)


def _waited(child: int, until: float) -> int | None:
    while time.monotonic() < until:
        ended, status = os.waitpid(child, os.WNOHANG)
        if ended:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.01)
    os.killpg(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return None


def main() -> int:
    """Mutate one module, and print the survivors."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("module")
    parser.add_argument("tests", nargs="+")
    parser.add_argument("--sample", type=int, help="run only this many mutants, chosen at random")
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--lines", help="only mutants between two lines: 20-44")
    parser.add_argument("--again", type=Path, help="only the survivors in this earlier output")
    options = parser.parse_args()
    selected = list(mutants((ROOT / options.module).read_text("utf-8")))
    if options.lines:
        first, last = map(int, options.lines.split("-"))
        selected = [mutant for mutant in selected if first <= mutant.line <= last]
    if options.again:
        survived = options.again.read_text("utf-8")
        selected = [mutant for mutant in selected if shown(mutant) in survived]
    if options.sample and options.sample < len(selected):
        sample = random.Random(options.seed).sample(selected, options.sample)
        selected = sorted(sample, key=lambda mutant: mutant.line)
    with tempfile.TemporaryDirectory(prefix="mutants-") as folder:
        return 1 if run_mutants(Bench(options.module, options.tests, Path(folder)), selected) else 0


def run_mutants(bench: Bench, selected: list[Mutant]) -> int:
    """Run the tests on each mutant, print the survivors, and return their number."""
    import_libraries()
    bench.learn()
    ends: defaultdict[str, int] = defaultdict(int)
    for mutant in selected:
        end = bench.notices(mutant)
        ends[end] += 1
        if end == "survived":
            print(f"{bench.module}:{mutant.line} {mutant.kind}\n{shown(mutant)}\n", flush=True)
    print(f"{bench.module}: {len(selected)} mutants, {dict(ends)}")
    return ends["survived"]


def shown(mutant: Mutant) -> str:
    """Return the lines of the statement that differ."""
    import difflib

    lines = difflib.ndiff(mutant.before.splitlines(), mutant.after.splitlines())
    return "\n".join(f"    {line}" for line in lines if line[:2] in ("- ", "+ "))


def import_libraries() -> None:
    """Import what every run needs and no mutant changes, so that forks share it."""
    import asyncio
    import gc
    import importlib
    import sqlite3

    import httpx2
    import hypothesis.strategies
    import msgspec

    _ = asyncio, sqlite3, httpx2, msgspec, hypothesis.strategies
    for name in PLUGINS:
        importlib.import_module(name)
    os.environ["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"
    gc.freeze()


if __name__ == "__main__":
    sys.exit(main())
