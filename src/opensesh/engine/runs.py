"""The sessions that this process runs: who may run a session, how a run begins and how it ends."""

from __future__ import annotations

import asyncio
import logging
import socket
import time
from contextlib import contextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING
from weakref import WeakValueDictionary

from msgspec.structs import replace

from .. import events
from ..errors import BusyError, UsageError
from ..records import object_at, write_failure
from ..storage.leases import HEARTBEAT_MS, is_alive, leases_of
from ..storage.protocol import SharedSessions
from ..tools.filetimes import FileLocks, FileTimes
from .cancellation import run_in_thread_uncancellable
from .context_window import visible
from .loop import Loop, Outcome
from .model_errors import failure_of
from .recovery import close_interrupted, recover
from .session_history import History
from .titles import needs_title

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Generator, Sequence

    from ..records import Document, Session
    from ..storage.protocol import Lease, StoredMessage
    from ..workspace.revert import Reverts
    from .budget import Budgets
    from .components import Environment
    from .prompt import Prompt, PromptComposer
    from .session_writer import AnswerWriter
    from .titles import TitleWriter

log = logging.getLogger("opensesh.engine")
_APPEND_HISTORY = 4
"""Messages. Enough to know the last prompt of most sessions, with the answer to it."""


class Statuses:
    """Whether each session is idle, busy, or waiting to retry; known in this process and published."""

    def __init__(self, publish: events.Publish) -> None:
        self._publish = publish
        self._known: dict[str, Document] = {}

    def all(self) -> dict[str, Document]:
        """Return the status of every session that is not idle."""
        return dict(self._known)

    def set(self, session_id: str, status: Document, *, is_published: bool = True) -> None:
        """Set a session's status, and publish it unless it is known only here. Idle sessions are forgotten."""
        is_idle = status["type"] == "idle"
        if is_idle:
            self._known.pop(session_id, None)
        else:
            self._known[session_id] = status
        if is_published:
            self._publish(events.SessionStatus(session_id=session_id, status=status))
        if is_idle:
            self._publish(events.SessionIdle(session_id=session_id))


class Run:
    """A session that this process runs."""

    def __init__(self, loop: Loop, lease: Lease, composer: PromptComposer) -> None:
        self.loop = loop
        self.lease = lease
        self.composer = composer
        self.task: asyncio.Task[None] | None = None
        self.ended: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()
        """The outcome, for the engine; callers get :meth:`outcome`."""
        self.session_id = loop.session.id
        self.has_begun = self.is_stopped = False

    def outcome(self) -> asyncio.Future[Outcome]:
        """Return a future of the outcome that belongs to the caller: cancelling it, also by a timeout, has no effect on
        the run or on others who wait."""
        return asyncio.shield(self.ended)

    def abort(self, *, announced: bool = True, at_once: bool = True) -> None:
        """Stop it. Only the first call has an effect: another would cancel the work that ends the run. ``at_once``: it
        is announced now, not when its calls have ended."""
        if not self.is_stopped and self.task is not None:
            self.is_stopped = True
            if self.has_begun:
                if at_once or not announced:
                    self.loop.publish_abort(announced=announced)
                self.task.cancel()


class Runs:
    """The runs of one engine. A session is opened by one caller at a time, who holds :meth:`session_lock`."""

    def __init__(
        self,
        group: asyncio.TaskGroup,
        environment: Environment,
        reverts: Reverts,
        statuses: Statuses,
        titles: TitleWriter,
        budgets: Budgets,
        new_loop: Callable[[Session, History, FileTimes], tuple[Loop, PromptComposer]],
    ) -> None:
        """The runs are tasks of ``group``, of which this also starts the one that keeps their leases alive."""
        self._group = group
        self._writer = environment.writer
        self._settings = environment.settings
        self._reverts = reverts
        self._statuses = statuses
        self._titles = titles
        self._budgets = budgets
        self._check_file_times = not environment.config.flags.disable_filetime_check
        self._new_loop = new_loop
        self._leases = leases_of(environment.writer.sessions.store)
        self._runs: dict[str, Run] = {}
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self._files: dict[str, FileTimes] = {}
        self._file_locks = FileLocks()
        self._title_tasks: set[asyncio.Task[None]] = set()
        self._heartbeat_task = group.create_task(self._heartbeat())
        self._is_closing = False

    async def close(self, *, wait_for_titles: bool) -> None:
        """Abort all runs, and accept no more."""
        self._is_closing = True
        for run in list(self._runs.values()):
            run.abort()
        try:
            if self._title_tasks and wait_for_titles:
                await asyncio.wait(self._title_tasks, timeout=self._settings.title_timeout_seconds)
        finally:
            for task in (*self._title_tasks, self._heartbeat_task):
                task.cancel()

    def session_lock(self, session_id: str) -> asyncio.Lock:
        """Return the lock that keeps two callers from opening a session at the same time."""
        return self._locks.setdefault(session_id, asyncio.Lock())

    def get(self, session_id: str) -> Run | None:
        """Return the run of a session, if it is running."""
        return self._runs.get(session_id)

    def __len__(self) -> int:
        return len(self._runs)

    async def open(self, session_id: str, *, to_append: bool = False) -> Run:
        """Return the run of a session; if there is none, take its lease and recover what a dead runner left. Must not
        be cancelled, which would leave the lease behind.

        A run that is only opened ``to_append`` a prompt, and not started, may know only the end of the history.
        """
        if session_id in self._runs:
            return self._runs[session_id]
        if self._is_closing:
            raise UsageError("this engine is closed")
        session, lease, messages = await run_in_thread_uncancellable(self._acquire, session_id, to_append)
        loop, composer = self._new_loop(session, History(messages), self.files(session_id))
        return Run(loop, lease, composer)

    def _acquire(self, session_id: str, to_append: bool) -> tuple[Session, Lease, list[StoredMessage]]:
        sessions, settings = self._writer.sessions, self._settings
        sessions.ensure_writable(session_id)
        # When a runner is killed while it starts a command, the command holds the lease too for an instant, until it
        # has become a program of its own.
        deadline = time.monotonic() + settings.lease_timeout_seconds
        while True:
            try:
                lease = self._leases.acquire(session_id, settings.owner)
                break
            except BusyError as busy:
                holder = object_at(busy.data, "holder")
                is_dead = holder.get("host") == socket.gethostname() and not is_alive(int(holder["pid"]))
                if time.monotonic() > deadline or not is_dead:
                    raise
                time.sleep(0.05)
        reverts = self._reverts
        try:
            store = sessions.store
            # With a previous lease, the unfinished answer is that of a runner of ours, which has died.
            if lease.previous is None and isinstance(store, SharedSessions) and not settings.ignore_other_programs:
                self._wait_for_other_program(store, session_id)
            reverts.recover(session_id)
            session = sessions.get(session_id)
            stored: Sequence[StoredMessage] | None = None
            if to_append and lease.previous is None and session.revert is None:
                # Reading a long history would take longer than the append.
                newest = sessions.messages(session_id, last=_APPEND_HISTORY)
                if any(message.info.get("role") == "user" for message in newest):
                    stored = newest
            if stored is None:
                stored = reverts.remaining(session)
            messages = recover(sessions, session_id, stored)
            if lease.previous is not None:
                self._recover_subagents(session_id)
            self._writer.note_newest(session_id, messages[-1] if messages else None)
            return session, lease, visible(messages)
        except BaseException:
            lease.release()
            raise

    def _recover_subagents(self, session_id: str) -> None:
        """Recover the subagents of a runner that died: most of their sessions are never run again."""
        sessions = self._writer.sessions
        for child in sessions.descendants(session_id):
            with suppress(BusyError):
                lease = self._leases.acquire(child.id, self._settings.owner)
                try:
                    if lease.previous is not None:
                        recover(sessions, child.id, sessions.messages(child.id))
                finally:
                    lease.release()

    def _wait_for_other_program(self, store: SharedSessions, session_id: str) -> None:
        """Wait for a program that runs the session without a lease, as OpenCode does, or raise :class:`BusyError`."""
        seconds = self._settings.other_program_timeout_seconds
        deadline = time.monotonic() + seconds
        is_waiting = False
        while other := store.foreign_run(session_id):
            if time.monotonic() > deadline:
                raise BusyError(
                    f"{session_id} seems to be run by another program: {other}. Wait until it has ended; to continue "
                    "regardless, set OPENSESH_IGNORE_OTHER_PROGRAMS=1",
                    session=session_id,
                )
            if not is_waiting:
                log.warning(
                    "%s seems to be run by another program: %s. Waiting for it, at most %g s",
                    session_id,
                    other,
                    seconds,
                )
                is_waiting = True
            time.sleep(0.25)

    async def commit_revert(self, run: Run) -> None:
        """Make a revert of the session final before anything is added after it. Only when a prompt is valid: one that
        is refused must not cost what could still be restored."""
        if run.task is None and run.loop.session.revert is not None:
            await run_in_thread_uncancellable(self._reverts.cleanup, run.session_id)

    def prepare_for_prompt(self, run: Run) -> None:
        """Do what comes before a valid prompt is stored, in a thread: :meth:`commit_revert`, and the outcome of a
        prompt whose runner died."""
        if run.task is None:
            if run.loop.session.revert is not None:
                self._reverts.cleanup(run.session_id)
            close_interrupted(self._writer.sessions, run.loop.history)

    async def add_prompt(self, run: Run, prompt: Prompt) -> StoredMessage:
        """Store a prompt in a session that is open, if it is valid."""
        message = await run.composer.compose(prompt)
        prepare = partial(self.prepare_for_prompt, run)
        return await self._writer.add_message(message, first=prepare, touch=True)

    async def add_context(self, run: Run, prompt: Prompt) -> StoredMessage:
        """Store a prompt that asks for no answer. In OpenCode, the next step of a run answers it all the same."""
        if run.task is None or not self._settings.opencode_events:
            return await self.add_prompt(run, prompt)
        message = await self.add_prompt(run, replace(prompt, steering=True))
        run.loop.add_context(message)
        return message

    async def join(self, run: Run, message: StoredMessage) -> asyncio.Future[Outcome]:
        """Add a stored prompt to the run; to a new one if it ended while the prompt was being stored."""
        if run.task is not None and self._runs.get(run.session_id) is not run:
            run = await self.open(run.session_id)
        else:
            run.loop.inbox.append(message)
        if run.task is None:
            self.start(run)
        return run.outcome()

    def start(self, run: Run, first: Callable[[], Awaitable[Outcome]] | None = None) -> None:
        """Start a run, with ``first`` before its prompts are answered."""
        if self._is_closing:
            run.lease.release()
            raise UsageError("this engine is closed; the prompt is stored, and resume() will continue it")
        self._runs[run.session_id] = run
        run.task = task = self._group.create_task(self._drive(run, first or run.loop.run))
        task.add_done_callback(lambda _: self._end(run, Outcome("aborted")))

    async def start_shell(
        self, session_id: str, prompt: Prompt, execute: Callable[[AnswerWriter], Awaitable[bool]]
    ) -> asyncio.Future[Outcome]:
        """Start a run with a command of the user's shell, or raise :class:`BusyError` if the session runs. Return the
        command's own future, since prompts that arrive meanwhile are answered after it."""
        async with self.session_lock(session_id):
            if session_id in self._runs:
                raise BusyError(f"{session_id} is running; stop it, or wait until it is done", session_id=session_id)
            run = await self.open(session_id)
            with releasing_on_error(run):
                message = await self.add_prompt(run, prompt)
            ended: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()

            async def first() -> Outcome:
                outcome = await run.loop.run_shell(message, execute)
                ended.set_result(outcome)
                return outcome

            run.outcome().add_done_callback(lambda done: None if ended.done() else ended.set_result(done.result()))
            self.start(run, first)
            return ended

    def abort(self, session_id: str, *, announced: bool) -> bool:
        """Stop a session's run; whether there was one."""
        subagents = [run.session_id for run in self._runs.values() if run.loop.session.parent_id == session_id]
        if announced and self._settings.opencode_events:
            for stopped in (*subagents, session_id):  # OpenCode announces the ends of subagents first
                self._writer.publish_idle(stopped)
        run = self._runs.get(session_id)
        if run is not None:
            run.abort(announced=announced, at_once=not subagents)
        return run is not None

    async def withdraw(self, session_id: str, message_id: str) -> bool:
        """Remove a prompt that waits for the next step of its session's run; whether it still waited."""
        run = self._runs.get(session_id)
        if run is None or not run.loop.withdraw(message_id):
            return False
        await run_in_thread_uncancellable(self._writer.sessions.remove_message, session_id, message_id)
        return True

    def files(self, session_id: str) -> FileTimes:
        """Return the files that a session has read and written while the engine is open."""
        if session_id not in self._files:
            self._files[session_id] = FileTimes(locks=self._file_locks, required=self._check_file_times)
        return self._files[session_id]

    async def _drive(self, run: Run, first: Callable[[], Awaitable[Outcome]]) -> None:
        """Run ``first``, then until no prompt is left, including those that arrive while a run is being ended."""
        loop, session, history = run.loop, run.loop.session, run.loop.history
        try:
            with self._budgets.run(run.session_id) as account:
                loop.drain_inbox()
                prompt = history.last_prompt
                if prompt is not None and needs_title(session, history):
                    task = self._group.create_task(self._titles.write(session, prompt))
                    self._title_tasks.add(task)
                    task.add_done_callback(self._title_tasks.discard)
                run.has_begun = True
                if run.is_stopped and run.task is not None:
                    run.task.cancel()  # only now: a task that is cancelled before it begins cannot record it
                outcome = await first()
                while loop.has_prompts:
                    if run.is_stopped and run.task is not None:
                        run.is_stopped = False
                        run.task.uncancel()
                    outcome = await loop.run()
            if account is not None and account.exceeded is not None and outcome.kind == "answered":
                error = write_failure(failure_of(account.exceeded, ""))
                outcome = outcome._replace(kind="failed", error=error)
            # Nothing may be awaited between the end of the loop and this, or a prompt that arrives then would be lost.
            self._end(run, outcome)
        except Exception:
            # The other sessions run in the same group, and must not end because this one did.
            log.exception("the run of %s failed", run.session_id)
            self._end(run, Outcome("failed"))

    def _end(self, run: Run, outcome: Outcome) -> None:
        """Release the session, then publish its end. Done once, however the run ended."""
        if run.ended.done():
            return
        if self._runs.get(run.session_id) is run:
            del self._runs[run.session_id]
        try:
            run.lease.release()
        except OSError as error:
            log.warning("the lease of %s could not be cleared: %s", run.session_id, error)
        self._statuses.set(run.session_id, {"type": "idle"})
        run.ended.set_result(outcome)

    async def _heartbeat(self) -> None:
        while True:
            await asyncio.sleep(HEARTBEAT_MS / 1000)
            for run in list(self._runs.values()):
                await run_in_thread_uncancellable(run.lease.heartbeat)


@contextmanager
def releasing_on_error(run: Run) -> Generator[None]:
    """Release the lease of a run that was opened but not started if the body raises."""
    try:
        yield
    except BaseException:
        if run.task is None:
            run.lease.release()
        raise
