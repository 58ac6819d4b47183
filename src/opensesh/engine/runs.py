"""The sessions at work in this process, one run each: who may run a session, and how a run begins and ends."""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING
from weakref import WeakValueDictionary

from ..errors import BusyError, UsageError
from ..records import as_object
from ..storage.leases import HEARTBEAT_MS, leases_of
from ..tools.filetimes import FileLocks, FileTimes
from .budget import accounting
from .loop import Loop, Outcome
from .prompt import PromptWriter
from .reading import read_for_prompt
from .recovery import recover
from .session_history import History
from .titles import give_title, wants_title
from .window import visible

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Generator

    from ..storage.protocol import Lease, StoredMessage
    from ..workspace import Reverts
    from .components import Runtime

log = logging.getLogger("opensesh.engine")
_PATIENCE = 5.0
"""Seconds to wait for what will be over in an instant, or never: a title under way, the lease of a dead runner."""


class Run:
    """A session at work in this process."""

    def __init__(self, loop: Loop, lease: Lease, writer: PromptWriter) -> None:
        self.loop = loop
        self.lease = lease
        self.writer = writer
        self.task: asyncio.Task[None] | None = None
        self.outcome: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()
        self.first: Callable[[], Awaitable[Outcome]] = loop.run
        """What the run begins with."""
        self._begun = self._stopped = False

    @property
    def session_id(self) -> str:
        """Whose run it is."""
        return self.loop.session.id

    def abort(self) -> None:
        """Stop it. Once is enough: another time would cut off what brings it to an end."""
        if not self._stopped and self.task is not None:
            self._stopped = True
            if self._begun:
                self.task.cancel()

    async def drive(self) -> Outcome:
        """Run until no prompt is left; those too that come while a run is being brought to an end."""
        self._begun = True
        if self._stopped and self.task is not None:
            self.task.cancel()  # only now: a task that is cancelled before it begins has nobody to say so
        outcome = await self.first()
        while self.loop.has_mail:
            if self._stopped and self.task is not None:
                self._stopped = False
                self.task.uncancel()
            outcome = await self.loop.run()
        return outcome


class Runs:
    """The runs of one engine. A session is opened by one caller at a time, who holds :meth:`session_lock` it."""

    def __init__(self, runtime: Runtime, group: asyncio.TaskGroup) -> None:
        """They work in tasks of ``group``."""
        self._runtime = runtime
        self._group = group
        self._leases = leases_of(runtime.sessions.store)
        self._runs: dict[str, Run] = {}
        self._opening: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self._files: dict[str, FileTimes] = {}
        self._file_locks = FileLocks()
        self._titles: set[asyncio.Task[None]] = set()
        self._heart: asyncio.Task[None] | None = None
        self._closing = False

    def begin(self) -> None:
        """Keep the leases of sessions alive from now on."""
        self._heart = self._group.create_task(self._beat())

    async def end(self, *, patiently: bool) -> None:
        """Abort what runs, and take nothing more. A title under way is waited for a while, if that is wanted."""
        self._closing = True
        for run in list(self._runs.values()):
            run.abort()
        try:
            if self._titles and patiently:
                await asyncio.wait(self._titles, timeout=_PATIENCE)
        finally:
            for task in (*self._titles, *([self._heart] if self._heart is not None else [])):
                task.cancel()

    def session_lock(self, session_id: str) -> asyncio.Lock:
        """What keeps two from opening a session at the same time."""
        return self._opening.setdefault(session_id, asyncio.Lock())

    def get(self, session_id: str) -> Run | None:
        """The run of a session, if it is at work."""
        return self._runs.get(session_id)

    async def open(self, session_id: str) -> Run:
        """The run of a session that is at work; or become its runner: take its lease, and bring to an end what a dead
        runner left."""
        if session_id in self._runs:
            return self._runs[session_id]
        if self._closing:
            raise UsageError("this engine is closed")
        if self._heart is None:
            raise UsageError("this engine is not open yet; write: async with opensesh.open(...) as engine")
        session = await self._runtime.session(session_id)
        await asyncio.to_thread(self._runtime.sessions.ensure_writable, session_id)
        lease = await asyncio.to_thread(self._acquire, session_id)
        try:
            messages = await asyncio.to_thread(self._load, session_id)
        except BaseException:
            lease.release()
            raise
        history, files = History(messages), self.files(session_id)
        writer = PromptWriter(self._runtime, session, history, read_for_prompt(self._runtime, session_id, files))
        return Run(Loop(self._runtime, session, history, files), lease, writer)

    async def settle(self, run: Run) -> None:
        """Make a revert final, if one stands, before anything is added behind it. Only now: a prompt that was refused
        must not cost what could still be brought back."""
        if run.task is None:
            reverts = self._reverts()
            await asyncio.to_thread(reverts.cleanup, run.session_id)

    async def join(self, run: Run, message: StoredMessage) -> asyncio.Future[Outcome]:
        """Hand a stored prompt to the run; to a new one if that ended while the prompt was being stored."""
        if run.task is not None and self._runs.get(run.session_id) is not run:
            run = await self.open(run.session_id)
        else:
            run.loop.queue(message)
        if run.task is None:
            self.start(run)
        return run.outcome

    def start(self, run: Run) -> None:
        """Set a run to work."""
        if self._closing:
            run.lease.release()
            raise UsageError("this engine is closed; the prompt is stored, and resume() will find it")
        self._runs[run.session_id] = run
        run.task = self._group.create_task(self._drive(run))
        run.task.add_done_callback(lambda _: self._end(run, Outcome("aborted")))

    def abort(self, session_id: str) -> bool:
        """Stop a session's run; whether there was one."""
        run = self._runs.get(session_id)
        if run is not None:
            run.abort()
        return run is not None

    def files(self, session_id: str) -> FileTimes:
        """What a session has read and written, for as long as the engine lives."""
        if session_id not in self._files:
            required = not self._runtime.config.flags.disable_filetime_check
            self._files[session_id] = FileTimes(locks=self._file_locks, required=required)
        return self._files[session_id]

    # -- inside --------------------------------------------------------------------------------------------------------

    def _acquire(self, session_id: str) -> Lease:
        """The lease. That of a runner which was killed while it started a command is held by the command, too, for the
        instant until that is a program of its own."""
        deadline = time.monotonic() + _PATIENCE
        while True:
            try:
                return self._leases.acquire(session_id, self._runtime.settings.owner)
            except BusyError as busy:
                if time.monotonic() > deadline or not _is_gone(busy):
                    raise
                time.sleep(0.05)

    def _reverts(self) -> Reverts:
        from ..workspace import Reverts

        return Reverts(self._runtime.sessions, self._runtime.snapshots)

    def _load(self, session_id: str) -> list[StoredMessage]:
        reverts = self._reverts()
        reverts.recover(session_id)
        return visible(recover(self._runtime.sessions, reverts.remaining(session_id)))

    async def _drive(self, run: Run) -> None:
        try:
            with accounting(self._runtime, run.session_id):
                self._begin_title(run)
                outcome = await run.drive()
            # Nothing may come between the end of the loop and this: a prompt that did would have nobody to take it in.
            self._end(run, outcome)
        except Exception:
            # Every other session runs in the same group, and must not end because this one did.
            log.exception("the run of %s broke off", run.session_id)
            self._end(run, Outcome("failed"))

    def _end(self, run: Run, outcome: Outcome) -> None:
        """A run is over: free the session, and then tell. Done once, however it ended."""
        if run.outcome.done():
            return
        if self._runs.get(run.session_id) is run:
            del self._runs[run.session_id]
        try:
            run.lease.release()
        except OSError as error:
            log.warning("the lease of %s could not be wiped: %s", run.session_id, error)
        self._runtime.statuses.of(run.session_id).idle()
        run.outcome.set_result(outcome)

    def _begin_title(self, run: Run) -> None:
        run.loop.has_work()
        prompt = run.loop.history.last_user()
        if prompt is not None and wants_title(run.loop.session, run.loop.history):
            task = self._group.create_task(give_title(self._runtime, run.loop.session, prompt))
            self._titles.add(task)
            task.add_done_callback(self._titles.discard)

    async def _beat(self) -> None:
        while True:
            await asyncio.sleep(HEARTBEAT_MS / 1000)
            for run in list(self._runs.values()):
                await asyncio.to_thread(run.lease.heartbeat)


def _is_gone(busy: BusyError) -> bool:
    """Whether the one who is said to run a session is dead."""
    holder = as_object(busy.data.get("holder")) or {}
    if os.name == "nt" or holder.get("host") != socket.gethostname():
        return False
    try:
        os.kill(int(holder["pid"]), 0)
    except ProcessLookupError:
        return True
    except PermissionError:
        pass
    return False


@contextmanager
def releasing_on_error(run: Run) -> Generator[None]:
    """Let go of a session that was opened for something that fails."""
    try:
        yield
    except BaseException:
        if run.task is None:
            run.lease.release()
        raise
