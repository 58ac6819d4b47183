from __future__ import annotations

import asyncio
import os
import sys
import time
from pathlib import Path

import pytest

from opensesh.tools.shell.execution import CommandRun
from opensesh.tools.shell.process_table import processes
from opensesh.tools.truncation import Outputs
from tests.harness.processes import ProcessGroup, Report

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="processes are listed as files on Linux only")

DETACHED = "import os, time; os.setsid(); open({path!r}, 'w').write(str(os.getpid())); time.sleep(600)"


def run_command(report: Report, folder: str, command: str, background: str) -> None:
    async def run() -> None:
        for line in filter(None, (background, command)):
            await CommandRun(Outputs(directory=folder)).run(["/bin/sh", "-c", line], folder, dict(os.environ))
            report("over")

    asyncio.run(run())


def written_ids(*paths: Path) -> list[int]:
    deadline = time.monotonic() + 60
    while not all(path.exists() and path.read_text().strip() for path in paths):
        assert time.monotonic() < deadline
        time.sleep(0.02)
    return [int(path.read_text()) for path in paths]


def wait_until_gone(ids: list[int]) -> None:
    deadline = time.monotonic() + 60
    while set(ids) & set(processes()):
        assert time.monotonic() < deadline, "they go on"
        time.sleep(0.05)


def test_promise_9_l10_a_command_ends_with_a_runner_that_is_killed(tmp_path: Path) -> None:
    shell, child, bare, detached = (tmp_path / name for name in ("shell", "child", "bare", "detached"))
    program = tmp_path / "detached.py"
    program.write_text(DETACHED.format(path=str(detached)))
    command = (
        f"trap '' TERM; echo $$ > {shell}; sleep 600 & echo $! > {child}; env -i sleep 600 & echo $! > {bare}; "
        f"{sys.executable} {program} & while true; do sleep 1; done"
    )
    with ProcessGroup() as group:
        process = group.start(run_command, str(tmp_path), command, "")
        ids = written_ids(shell, child, bare, detached)
        assert set(ids) <= set(processes())
        process.kill()
        wait_until_gone(ids)


def test_promise_9_a_process_left_in_the_background_keeps_running(tmp_path: Path) -> None:
    left, shell = tmp_path / "left", tmp_path / "shell"
    background = f"sleep 600 > /dev/null 2>&1 & echo $! > {left}"
    with ProcessGroup() as group:
        process = group.start(run_command, str(tmp_path), f"echo $$ > {shell}; sleep 600", background)
        (running,) = written_ids(shell)
        process.kill()
        wait_until_gone([running])
    (kept,) = written_ids(left)
    try:
        assert kept in processes()
    finally:
        os.kill(kept, 9)
