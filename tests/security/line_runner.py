"""Run command lines, one after the other, and report what each changed. A script of its own: see shell_fuzzer."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from contextlib import suppress

TIMEOUT_SECONDS = 1.0


def prepare(folder: str) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    os.makedirs(os.path.join(folder, "sub"))
    os.makedirs(os.path.join(folder, "options"))
    for name in ("victim", "a.txt", "options/-exec", "options/-execdir"):
        with open(os.path.join(folder, name), "w", encoding="utf-8") as file:
            file.write("a[$(touch pwned)]\n")
    for name in ("0", "5"):  # what a variable such as PATH may become
        os.makedirs(os.path.join(folder, name))
        for program in ("ls", "cat"):
            path = os.path.join(folder, name, program)
            with open(path, "w", encoding="utf-8") as file:
                file.write("#!/bin/sh\n: >pwned\n")
            os.chmod(path, 0o755)


def state(folder: str) -> dict[str, tuple[int, int, int]]:
    """Return the inode, size and modification time of every file."""
    files: dict[str, tuple[int, int, int]] = {}
    for root, folders, names in os.walk(folder):
        for name in (*folders, *names):
            path = os.path.join(root, name)
            stat = os.lstat(path)
            files[os.path.relpath(path, folder)] = (stat.st_ino, stat.st_size, stat.st_mtime_ns)
    return files


def run(shell: str, line: str, folder: str) -> None:
    quiet = subprocess.DEVNULL
    process = subprocess.Popen(
        [shell, "-c", line], cwd=folder, stdin=quiet, stdout=quiet, stderr=quiet, start_new_session=True
    )
    with suppress(subprocess.TimeoutExpired):
        process.wait(TIMEOUT_SECONDS)
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def main() -> None:
    folder = sys.argv[1]
    prepare(folder)
    before = state(folder)
    for request in sys.stdin:
        shell, line = json.loads(request)
        run(shell, line, folder)
        after = state(folder)
        changed = sorted(name for name in {*before, *after} if before.get(name) != after.get(name))
        print(json.dumps(", ".join(changed)), flush=True)
        if changed:
            prepare(folder)
            before = state(folder)


if __name__ == "__main__":
    main()
