#!/usr/bin/env python3
"""Set up and run everything on a machine that has only Python and git.

python3 dev.py demo      install opensesh in .venv and run its demo
python3 dev.py test      install the pinned development environment; lint, dependencies, import contract, types, tests
python3 dev.py test -k X the same environment, but run only the tests that these pytest arguments select
python3 dev.py docs      build the documentation in site/
python3 dev.py bench     print the ratios of the benchmarks
python3 dev.py pin       rewrite requirements-dev.txt from pyproject.toml
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import time
import venv
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Generator

HERE = Path(__file__).resolve().parent
VENV = HERE / ".venv"
BIN = VENV / ("Scripts" if os.name == "nt" else "bin")
PINS = HERE / "requirements-dev.txt"


def main(words: list[str]) -> int:
    match words:
        case ["demo", *rest]:
            return demo(rest)
        case ["test", *rest]:
            return test(rest)
        case ["docs", *rest]:
            return docs(rest)
        case ["bench", *rest]:
            prepare()
            return run(BIN / "python", "-m", "benchmarks", *rest)
        case ["pin"]:
            return pin()
        case _:
            print(__doc__)
            return 2


def demo(rest: list[str]) -> int:
    if not (BIN / "opensesh").exists():
        with installing("opensesh"):
            create()
            run(BIN / "python", "-m", "pip", "install", "--quiet", "--editable", ".", check=True)
    return run(BIN / "opensesh", "demo", *rest)


def test(rest: list[str]) -> int:
    prepare()
    checks = [
        (BIN / "ruff", "check", "--quiet", "."),
        (BIN / "ruff", "format", "--quiet", "--check", "."),
        (BIN / "deptry", "src"),
        (BIN / "lint-imports", "--no-cache"),
        (BIN / "pyright", "--pythonpath", BIN / "python"),
    ]
    with ThreadPoolExecutor(1) as thread:  # pyright uses one processor, and the tests wait now and then
        failed = thread.submit(lambda: [check for check in checks if not rest and run(*check, capture=True)])
        tests = run(BIN / "python", "-m", "pytest", *(rest or ("-n", "auto")))
        for check in failed.result():
            print(f"failed: {' '.join(map(str, check))}", file=sys.stderr)
        return 1 if failed.result() else tests


def docs(rest: list[str]) -> int:
    prepare()
    os.environ["NO_MKDOCS_2_WARNING"] = "1"  # a notice of the theme about its successor
    return run(BIN / "python", "scripts/reference.py") or run(BIN / "mkdocs", "build", "--strict", *rest)


def prepare() -> None:
    """Install the pinned environment, unless the pins are unchanged."""
    stamp, digest = VENV / "pins", hashlib.sha256(PINS.read_bytes()).hexdigest()
    if stamp.exists() and stamp.read_text() == digest:
        return
    with installing("the development environment"):
        create()
        pip = (BIN / "python", "-m", "pip", "install", "--quiet")
        run(*pip, "--require-hashes", "--requirement", PINS, check=True)
        run(*pip, "--no-deps", "--no-build-isolation", "--editable", ".", check=True)
    stamp.write_text(digest)


@contextmanager
def installing(what: str) -> Generator[None]:
    """Print what is being installed and how long it took; pip itself is quiet unless it fails."""
    started = time.monotonic()
    print(f"installing {what} in {VENV} (about a minute) ...", file=sys.stderr, flush=True)
    yield
    print(f"installed, in {time.monotonic() - started:.0f} s", file=sys.stderr, flush=True)


def create() -> None:
    if not BIN.exists():
        venv.create(VENV, with_pip=True)


def pin() -> int:
    prepare()
    return run(
        BIN / "python", "-m", "uv", "pip", "compile", "pyproject.toml", "--group", "dev", "--group", "docs",
        "--all-extras", "--universal", "--python-version", "3.11", "--generate-hashes", "--no-emit-index-url",
        "--no-header", "--quiet", "--output-file", PINS,
    )  # fmt: skip


def run(*words: str | Path, check: bool = False, capture: bool = False) -> int:
    """Run a program of the environment. ``capture`` prints its output at its end, and only if it fails."""
    environment = os.environ | {"PATH": f"{BIN}{os.pathsep}{os.environ.get('PATH', '')}"}
    # The tests start hundreds of programs; without bytecode on disk each of them compiles all modules again.
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    done = subprocess.run(
        [str(word) for word in words],
        cwd=HERE,
        env=environment,
        check=check,
        text=True,
        stdout=subprocess.PIPE if capture else None,
        stderr=subprocess.STDOUT if capture else None,
    )
    if capture and done.returncode:
        print(f"\n{done.stdout}", file=sys.stderr)
    return done.returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
