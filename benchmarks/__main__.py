"""``python -m benchmarks [--quick] [NAME...]``: run all benchmarks, or those named, and print a table each."""

from __future__ import annotations

import platform
import sys
from importlib import import_module

from . import report

NAMES = (
    "startup",
    "codec",
    "tail",
    "listing",
    "memory",
    "search",
    "stats",
    "engine",
    "context",
    "workspace",
    "waiting",
    "growth",
    "server",
    "web_session",
    "database",
    "streaming",
    "web_pages",
    "web_peers",
    "peers",
)


def main(words: list[str]) -> int:
    report.is_quick = "--quick" in words
    words = [word for word in words if word != "--quick"]
    unknown = [word for word in words if word not in NAMES]
    if unknown:
        print(f"no benchmark called {unknown[0]!r}; there are: {', '.join(NAMES)}", file=sys.stderr)
        return 2
    print(f"CPython {platform.python_version()} on {platform.system()} {platform.machine()}\n")
    for name in words or NAMES:
        module = import_module(f"benchmarks.{name}")
        print(f"## {name}: {(module.__doc__ or '').strip().splitlines()[0]}\n", flush=True)
        module.run()
        print(flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
