"""Real processes for tests: many at once, and any of them killed at any moment.

A task is a module-level function ``task(report, *arguments)`` of a module that can be imported. Arguments and reports
are JSON. Reports survive even if the process is killed in the middle of the next one.
"""

from __future__ import annotations

import importlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from types import TracebackType

Report = Callable[[Any], None]

_BOOT = (
    "import sys, json; sys.path[:] = json.loads(sys.argv[1]);"
    f"from {__name__} import {{entry}}; {{entry}}(*sys.argv[2:])"
)
_CAN_FORK = hasattr(os, "fork")


class ProcessResult(NamedTuple):
    """How a process ended."""

    code: int
    """Its exit status; negative: the signal that ended it."""
    reports: list[Any]
    """What it reported, in order."""
    traceback: str
    """The traceback of the exception that ended it, or ""."""


class ChildProcess:
    """A process that runs a task."""

    def __init__(self, pid: int, journal: str, wait: Callable[[float], int | None]) -> None:
        self.pid = pid
        self._journal = journal
        self._wait = wait
        self._code: int | None = None

    @property
    def reports(self) -> list[Any]:
        """What it has reported so far."""
        return [value for kind, value in self._lines() if kind == "report"]

    def wait_for(self, count: int = 1, *, seconds: float = 60) -> list[Any]:
        """Wait until it has reported ``count`` values."""
        deadline = time.monotonic() + seconds
        while len(reports := self.reports) < count:
            if self._code is None:
                self._code = self._wait(0)
            if (self._code is not None and len(self.reports) < count) or time.monotonic() > deadline:
                ended = "nothing more" if self._code is None else self._traceback() or f"ended with {self._code}"
                raise AssertionError(f"the process reported {reports!r}, then {ended}")
            time.sleep(0.002)
        return reports

    def kill(self) -> ProcessResult:
        """Kill it as ``kill -9`` does."""
        if self._code is None:
            os.kill(self.pid, getattr(signal, "SIGKILL", signal.SIGTERM))
        return self.wait()

    def wait(self, *, seconds: float = 60) -> ProcessResult:
        """Wait for its end."""
        if self._code is None:
            self._code = self._wait(seconds)
        if self._code is None:
            os.kill(self.pid, getattr(signal, "SIGKILL", signal.SIGTERM))
            self._code = self._wait(10)
            raise AssertionError(f"the process did not end within {seconds} s; it had reported {self.reports!r}")
        return ProcessResult(self._code, self.reports, self._traceback())

    def _traceback(self) -> str:
        return "".join(value for kind, value in self._lines() if kind == "traceback")

    def _lines(self) -> list[tuple[str, Any]]:
        with open(self._journal, "rb") as file:
            complete = file.read().split(b"\n")[:-1]
        return [json.loads(line) for line in complete]


class ProcessGroup:
    """Starts processes and ends them all on exit.

    Where the system can fork, they are forks of one server process that has imported only what the tasks need and runs
    no threads: starting one takes a few milliseconds and inherits nothing from the process that runs the tests.
    """

    def __init__(self) -> None:
        self._folder = tempfile.mkdtemp(prefix="opensesh-processes-")
        self._server = _start("serve", pipes=subprocess.PIPE) if _CAN_FORK else None
        self._children: list[ChildProcess] = []

    def __enter__(self) -> ProcessGroup:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            for child in self._children:
                child.kill()
        finally:
            if self._server is not None:
                self._server.communicate()
            shutil.rmtree(self._folder, ignore_errors=True)

    def prepare(self, task: Callable[..., Any]) -> None:
        """Import what a task needs once instead of in every process that runs it."""
        if self._server is not None:
            self._request(self._server, "prepare", [name_of(task)])

    def start(self, task: Callable[..., None], *arguments: Any) -> ChildProcess:
        """Start a process that runs ``task``."""
        journal = os.path.join(self._folder, f"{len(self._children)}.jsonl")
        open(journal, "xb").close()
        request = [name_of(task), list(arguments), journal]
        if self._server is None:
            process = _start("run_task", json.dumps(request), pipes=subprocess.DEVNULL)
            child = ChildProcess(process.pid, journal, lambda seconds: _wait(process, seconds))
        else:
            server = self._server
            pid = self._request(server, "start", request)
            child = ChildProcess(pid, journal, lambda seconds: self._request(server, "wait", [pid, seconds]))
        self._children.append(child)
        return child

    def run_many(
        self, task: Callable[..., None], number: int, *arguments: Any, seconds: float = 60
    ) -> list[ProcessResult]:
        """Run a task in ``number`` processes at once; the index of each, from 0, comes before the other arguments."""
        children = [self.start(task, index, *arguments) for index in range(number)]
        results = [child.wait(seconds=seconds) for child in children]
        failed = [result.traceback or f"ended with {result.code}" for result in results if result.code]
        if failed:
            raise AssertionError(f"{len(failed)} of {number} processes failed:\n" + "\n".join(failed))
        return results

    def _request(self, server: subprocess.Popen[str], verb: str, arguments: list[Any]) -> Any:
        if server.stdin is None or server.stdout is None:
            raise AssertionError("the server process has no pipes")
        server.stdin.write(json.dumps([verb, arguments]) + "\n")
        server.stdin.flush()
        answer = server.stdout.readline()
        if not answer:
            raise AssertionError("the server process has ended")
        return json.loads(answer)


def find(name: str) -> Any:
    """Return the object that ``module:name`` names."""
    module, _, path = name.partition(":")
    value: Any = importlib.import_module(module)
    for attribute in path.split("."):
        value = getattr(value, attribute)
    return value


def name_of(task: Callable[..., Any]) -> str:
    """Return the name by which another process finds a function."""
    return f"{task.__module__}:{task.__qualname__}"


def _start(entry: str, *arguments: str, pipes: int) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", _BOOT.format(entry=entry), json.dumps(sys.path), *arguments],
        stdin=pipes,
        stdout=pipes,
        encoding="utf-8",
    )


def _wait(process: subprocess.Popen[str], seconds: float) -> int | None:
    try:
        return process.wait(timeout=seconds)
    except subprocess.TimeoutExpired:
        return None


def serve() -> None:
    """Run the server process: start children and wait for them, one request a line."""
    for line in sys.stdin:
        verb, request = json.loads(line)
        answer = {"prepare": _prepare, "start": _fork, "wait": _reap}[verb](*request)
        sys.stdout.write(json.dumps(answer) + "\n")
        sys.stdout.flush()


def _prepare(name: str) -> None:
    find(name)


def _fork(name: str, arguments: list[Any], journal: str) -> int:
    find(name)
    pid = os.fork()
    if not pid:
        null = os.open(os.devnull, os.O_RDWR)
        os.dup2(null, 0)
        os.dup2(null, 1)
        run_task(json.dumps([name, arguments, journal]))
    return pid


def _reap(pid: int, seconds: float) -> int | None:
    deadline = time.monotonic() + seconds
    while True:
        ended_pid, status = os.waitpid(pid, os.WNOHANG)
        if ended_pid:
            return os.waitstatus_to_exitcode(status)
        if time.monotonic() >= deadline:
            return None
        time.sleep(0.001)


def run_task(request: str) -> None:
    """Run a task in a child process and exit."""
    name, arguments, journal = json.loads(request)
    descriptor = os.open(journal, os.O_WRONLY | os.O_APPEND)

    def write(value: Any, kind: str = "report") -> None:
        os.write(descriptor, json.dumps([kind, value]).encode() + b"\n")

    code = 1
    try:
        find(name)(write, *arguments)
        code = 0
    except BaseException:
        write(traceback.format_exc(), "traceback")
    finally:
        os._exit(code)
