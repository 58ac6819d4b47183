"""Peak memory of list and show as the store grows."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile

from .report import line, python
from .stores import Builder

_PEAK = """import os, sys
from opensesh.cli.main import run
out = os.dup(1)
os.dup2(os.open(os.devnull, 1), 1)
run(sys.argv[1:])
sys.stdout.flush()
os.dup2(out, 1)
# Not getrusage, which includes the parent process.
print(next(line.split()[1] for line in open("/proc/self/status") if line.startswith("VmHWM")))
"""


def run() -> None:
    with tempfile.TemporaryDirectory() as folder:
        stores = {count: _store(os.path.join(folder, str(count)), count) for count in (100, 3_000)}
        small, large = (peak("list", "--store", store) for store in stores.values())
        line("peak memory of list, 3,000 sessions", large / small, "list, 100 sessions", 1.3)


def _store(root: str, sessions: int) -> str:
    builder = Builder(root)
    for _ in range(sessions):
        builder.session(2, 1, words=20)
    return root


def peak(*words: str, environment: dict[str, str] | None = None) -> float:
    """Return the peak resident size of a command in kilobytes."""
    done = subprocess.run([python(), "-c", _PEAK, *words], env=environment, capture_output=True, text=True, check=True)
    if not done.stdout.strip().isdigit():
        sys.exit(f"no figure from {words}: {done.stdout!r} {done.stderr!r}")
    return float(done.stdout)
