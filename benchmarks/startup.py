"""What it costs to start, against a bare interpreter (CPU time)."""

from __future__ import annotations

import os
import tempfile

from .report import child_cpu, line, opensesh, python
from .stores import Builder


def run() -> None:
    with tempfile.TemporaryDirectory() as folder:
        store = os.path.join(folder, "storage")
        builder = Builder(store)
        for _ in range(100):
            builder.session(2)
        bare = child_cpu([python(), "-c", "pass"])
        cases = [
            ("opensesh --version", [*opensesh(), "--version"], 2.5),
            ("opensesh --help", [*opensesh(), "--help"], 5.0),
            ("opensesh list (100 sessions)", [*opensesh(), "list", "--limit", "0", "--store", store], 6.0),
        ]
        for what, words, budget in cases:
            line(what, child_cpu(words) / bare, "python -c pass", budget)
        line("import opensesh", child_cpu([python(), "-c", "import opensesh"]) / bare, "python -c pass")
