"""Measuring and printing, shared by the benchmarks."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import time
from collections.abc import Callable, Sequence

is_quick = False
"""Whether benchmarks that have a short form run in it."""


def line(what: str, ratio: float, against: str, budget: float | None = None, *, at_least: bool = False) -> None:
    """Print a row: what was measured, its ratio to a reference, and whether the ratio is within the budget."""
    verdict = ""
    if budget is not None:
        kept = ratio >= budget if at_least else ratio <= budget
        verdict = f"  {'pass' if kept else 'FALLS SHORT'} (budget {'at least ' if at_least else ''}{budget:g}x)"
    print(f"  {what:<56} {ratio:8.2f}x  {against}{verdict}")


def children_cpu() -> float:
    """Return the CPU seconds of all child processes that have ended."""
    spent = resource.getrusage(resource.RUSAGE_CHILDREN)
    return spent.ru_utime + spent.ru_stime


def child_cpu(words: Sequence[str], rounds: int = 9) -> float:
    """Return the minimum CPU seconds of a command, with warm byte code."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    best = float("inf")
    for _ in range(rounds + 1):
        before = children_cpu()
        subprocess.run(words, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False)
        best = min(best, children_cpu() - before)
    return best


def interleaved(*works: Callable[[], object], rounds: int = 7) -> list[float]:
    """Return the minimum wall seconds of each, measured alternately so that noise affects all of them."""
    best = [float("inf")] * len(works)
    for _ in range(rounds):
        for number, work in enumerate(works):
            start = time.perf_counter()
            work()
            best[number] = min(best[number], time.perf_counter() - start)
    return best


def python() -> str:
    """Return the reference interpreter."""
    return sys.executable


def opensesh() -> list[str]:
    """Return the installed command."""
    script = os.path.join(os.path.dirname(sys.executable), "opensesh")
    return [script] if os.path.exists(script) else [sys.executable, "-m", "opensesh"]
