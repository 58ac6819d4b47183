"""Real processes for tests: many at once, and any of them killed at any moment.

A task is a function at the top of a module that can be imported, ``task(tell, *arguments)``. The arguments and what it
tells are JSON. What a process has told is kept even when it is killed in the middle of the next line.
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
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType

    Tell = Callable[[Any], None]

_BOOT = (
    "import sys, json; sys.path[:] = json.loads(sys.argv[1]);"
    "from opensesh.testing import processes; processes.{entry}(*sys.argv[2:])"
)
_FORKS = hasattr(os, "fork")


class Fate(NamedTuple):
    """How a process ended."""

    code: int
    """Its exit status; a negative number is the signal that ended it."""
    said: list[Any]
    """What it told, in order."""
    raised: str
    """The traceback of the exception that ended it, if one did."""


class Child:
    """A process that works on a task."""

    def __init__(self, pid: int, journal: str, wait: Callable[[float], int | None]) -> None:
        self.pid = pid
        self._journal = journal
        self._wait = wait
        self._code: int | None = None

    @property
    def said(self) -> list[Any]:
        """What it has told so far."""
        return [value for kind, value in self._lines() if kind == "said"]

    def hear(self, count: int = 1, *, seconds: float = 30) -> list[Any]:
        """Wait until it has told ``count`` things."""
        deadline = time.monotonic() + seconds
        while len(said := self.said) < count:
            if self._code is None:
                self._code = self._wait(0)
            if (self._code is not None and len(self.said) < count) or time.monotonic() > deadline:
                raise AssertionError(f"the process said {said!r}, then {self._last_words()}")
            time.sleep(0.002)
        return said

    def kill(self) -> Fate:
        """End it without a warning, as ``kill -9`` does."""
        if self._code is None:
            os.kill(self.pid, getattr(signal, "SIGKILL", signal.SIGTERM))
        return self.wait()

    def wait(self, *, seconds: float = 60) -> Fate:
        """Wait for its end."""
        if self._code is None:
            self._code = self._wait(seconds)
        if self._code is None:
            os.kill(self.pid, getattr(signal, "SIGKILL", signal.SIGTERM))
            self._code = self._wait(10)
            raise AssertionError(f"the process did not end within {seconds} s; it had said {self.said!r}")
        return Fate(self._code, self.said, "".join(value for kind, value in self._lines() if kind == "raised"))

    def _lines(self) -> list[tuple[str, Any]]:
        with open(self._journal, "rb") as file:
            whole = file.read().split(b"\n")[:-1]
        return [json.loads(line) for line in whole]

    def _last_words(self) -> str:
        if self._code is None:
            return "nothing more"
        return "".join(value for kind, value in self._lines() if kind == "raised") or f"ended with {self._code}"


class Nursery:
    """Where processes are started, and whose end is theirs too.

    Where the system can fork, they are forks of one process that has imported only what the tasks need and runs no
    threads: starting one takes a few milliseconds, and inherits nothing from the process that runs the tests.
    """

    def __init__(self) -> None:
        self._folder = tempfile.mkdtemp(prefix="opensesh-nursery-")
        self._parent = _start("serve", pipes=subprocess.PIPE) if _FORKS else None
        self._children: list[Child] = []

    def __enter__(self) -> Nursery:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            for child in self._children:
                child.kill()
        finally:
            if self._parent is not None:
                self._parent.communicate()
            shutil.rmtree(self._folder, ignore_errors=True)

    def prepare(self, task: Callable[..., Any]) -> None:
        """Import what a task needs once, rather than in every process that comes to need it."""
        if self._parent is not None:
            self._ask(self._parent, "prepare", [name_of(task)])

    def start(self, task: Callable[..., None], *arguments: Any) -> Child:
        """Start a process on a task."""
        journal = os.path.join(self._folder, f"{len(self._children)}.jsonl")
        open(journal, "xb").close()
        request = [name_of(task), list(arguments), journal]
        if self._parent is None:
            process = _start("live", json.dumps(request), pipes=subprocess.DEVNULL)
            child = Child(process.pid, journal, lambda seconds: _wait_for(process, seconds))
        else:
            pid = self._ask(self._parent, "start", request)
            parent = self._parent
            child = Child(pid, journal, lambda seconds: self._ask(parent, "wait", [pid, seconds]))
        self._children.append(child)
        return child

    def crowd(self, task: Callable[..., None], number: int, *arguments: Any, seconds: float = 60) -> list[Fate]:
        """Run a task in so many processes at once; each is told its number, from 0, before the other arguments."""
        children = [self.start(task, each, *arguments) for each in range(number)]
        fates = [child.wait(seconds=seconds) for child in children]
        failed = [fate.raised or f"ended with {fate.code}" for fate in fates if fate.code]
        if failed:
            raise AssertionError(f"{len(failed)} of {number} processes failed:\n" + "\n".join(failed))
        return fates

    def _ask(self, parent: subprocess.Popen[str], verb: str, request: list[Any]) -> Any:
        if parent.stdin is None or parent.stdout is None:
            raise AssertionError("the parent of all processes has no pipes")
        parent.stdin.write(json.dumps([verb, request]) + "\n")
        parent.stdin.flush()
        answer = parent.stdout.readline()
        if not answer:
            raise AssertionError("the parent of all processes is gone")
        return json.loads(answer)


def find(name: str) -> Any:
    """What ``module:name`` names."""
    module, _, path = name.partition(":")
    found: Any = importlib.import_module(module)
    for step in path.split("."):
        found = getattr(found, step)
    return found


def name_of(task: Callable[..., Any]) -> str:
    """The name by which another process finds a function."""
    return f"{task.__module__}:{task.__qualname__}"


def _start(entry: str, *arguments: str, pipes: int) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", _BOOT.format(entry=entry), json.dumps(sys.path), *arguments],
        stdin=pipes,
        stdout=pipes,
        encoding="utf-8",
    )


def _wait_for(process: subprocess.Popen[str], seconds: float) -> int | None:
    try:
        return process.wait(timeout=seconds)
    except subprocess.TimeoutExpired:
        return None


def serve() -> None:
    """The parent of all processes: starts them and waits for them, one request a line."""
    for line in sys.stdin:
        verb, request = json.loads(line)
        answer = {"prepare": _prepare, "start": _fork, "wait": _reap}[verb](*request)
        sys.stdout.write(json.dumps(answer) + "\n")
        sys.stdout.flush()


def _prepare(name: str) -> None:
    find(name)


def _fork(name: str, arguments: list[Any], journal: str) -> int:
    _prepare(name)
    pid = os.fork()
    if not pid:
        nothing = os.open(os.devnull, os.O_RDWR)
        os.dup2(nothing, 0)
        os.dup2(nothing, 1)
        live(json.dumps([name, arguments, journal]))
    return pid


def _reap(pid: int, seconds: float) -> int | None:
    deadline = time.monotonic() + seconds
    while True:
        found, status = os.waitpid(pid, os.WNOHANG)
        if found:
            return os.waitstatus_to_exitcode(status)
        if time.monotonic() >= deadline:
            return None
        time.sleep(0.001)


def live(request: str) -> None:
    """The whole life of a child."""
    name, arguments, journal = json.loads(request)
    descriptor = os.open(journal, os.O_WRONLY | os.O_APPEND)

    def tell(value: Any, kind: str = "said") -> None:
        os.write(descriptor, json.dumps([kind, value]).encode() + b"\n")

    code = 1
    try:
        find(name)(tell, *arguments)
        code = 0
    except BaseException:
        import traceback

        tell(traceback.format_exc(), "raised")
    finally:
        os._exit(code)
