"""CPU time to start commands that a user waits for, relative to a bare interpreter."""

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
            ("opensesh --version", ["--version"], 5.0),
            ("opensesh --help", ["--help"], 5.0),
            ("opensesh list (100 sessions)", ["list", "--limit", "0", "--store", store], 6.0),
            ("opensesh show", ["show", "last", "--store", store], None),
            ("opensesh search", ["search", "words", "--store", store], None),
            ("opensesh stats", ["stats", "--store", store], None),
        ]
        for name, arguments, budget in cases:
            line(name, child_cpu([*opensesh(), *arguments]) / bare, "python -c pass", budget)
        line("import opensesh", child_cpu([python(), "-c", "import opensesh"]) / bare, "python -c pass")
