"""The engine: runs sessions, one loop each, and answers for every prompt it took."""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any
from weakref import WeakValueDictionary

from msgspec.structs import replace

from .. import ids, project
from ..bus import Bus, Envelope
from ..errors import Busy, OpenseshError, UsageError
from ..events import CommandExecuted, Missed, SessionError
from ..plugins import Feed
from ..plugins import hooks as plugin_hooks
from ..records import as_object, write_failure
from ..sessions import Sessions
from ..storage import open_store
from ..storage.leases import HEARTBEAT_MS, Lease, Leases
from ..tools.filetimes import FileLocks, FileTimes
from .answering import Answering
from .budget import accounting
from .commands import fetch_command, prompt_of
from .compaction import request_compaction
from .costs import Costs, costs
from .failures import failure_of
from .history import History
from .loop import Loop, Outcome
from .prompt import Prompt, PromptWriter, mentioned_parts
from .reading import read_for_prompt
from .recovery import recover
from .runtime import Runtime, Settings
from .shell import BY_USER
from .titles import give_title, wants_title
from .unbroken import to_the_end
from .window import visible

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Generator, Mapping, Sequence
    from types import TracebackType

    from ..config import Config
    from ..models.request import Provider
    from ..plugins import Pluggable
    from ..records import Document, Rule, Session
    from ..storage.store import Store, StoredMessage
    from ..tools.tool import Tool
    from .answering import MayIt


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


class Engine:
    """Use it as an async context manager; leaving it aborts what still runs, cleanly.

    Prompts of one session are answered one after the other; a prompt that comes while the session runs joins the run.
    Several sessions run at the same time. Another process that runs a session is named in
    :class:`~opensesh.errors.Busy`.
    """

    def __init__(self, runtime: Runtime, store: Store, *, permission: MayIt | None = None) -> None:
        self.runtime = runtime
        self.sessions = runtime.sessions
        self.bus = runtime.bus
        self._leases = Leases(store)
        self._runs: dict[str, Run] = {}
        self._opening: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self._files: dict[str, FileTimes] = {}
        self._file_locks = FileLocks()
        self._group = asyncio.TaskGroup()
        self._heart: asyncio.Task[None] | None = None
        self._titles: set[asyncio.Task[None]] = set()
        self._closing = False
        self._feed = Feed(runtime.hooks.plugins, runtime.bus)
        self._answering = Answering(runtime, permission, runtime.settings.question)
        runtime.run_child = self.run

    async def __aenter__(self) -> Engine:
        await self._feed.__aenter__()
        await self._group.__aenter__()
        self._heart = self._group.create_task(self._beat())
        self._answering.begin(self._group)
        self.runtime.mcp.begin(self._group)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._closing = True
        for run in list(self._runs.values()):
            run.abort()
        try:
            if self._titles and kind is None:
                await asyncio.wait(self._titles, timeout=_PATIENCE)
        finally:
            for task in (*self._titles, *([self._heart] if self._heart is not None else [])):
                task.cancel()
            self._answering.end()
            self.runtime.mcp.end()
            try:
                await self._group.__aexit__(None, None, None)
            finally:
                await self._close()

    async def _close(self) -> None:
        """Let plugins hear of what is left and of the end, and close what is open."""
        try:
            await self._feed.__aexit__(None, None, None)
            async with asyncio.timeout(_PATIENCE):
                await self.runtime.hooks.plugins.dispose(plugin_hooks.dispose)
        except TimeoutError:
            log.warning("a plugin took too long to come to an end")
        finally:
            await self.runtime.aclose()

    async def create(
        self, *, title: str | None = None, parent_id: str | None = None, permission: Sequence[Rule] | None = None
    ) -> Session:
        """A new session in this directory."""
        return await asyncio.to_thread(self.sessions.create, title=title, parent_id=parent_id, permission=permission)

    async def prompt(self, session_id: str, prompt: str | Prompt, **more: Any) -> AsyncIterator[Envelope]:
        """Ask, and yield every event of the session until the prompt has its outcome; whoever is too slow for them gets
        one that says which were missed.

        ``more`` are the fields of :class:`Prompt` (``agent``, ``model``, ...) where ``prompt`` is words. Leaving the
        iteration early leaves the session running; :meth:`abort` stops it.
        """
        async with self.bus.subscribe() as subscription:
            outcome = await self.submit(session_id, prompt, **more)
            outcome.add_done_callback(lambda _: subscription.close_after(self.bus.last))
            async for envelope in subscription:
                if concerns(envelope, session_id) or isinstance(envelope.event, Missed):
                    yield envelope
            outcome.result()

    async def run(self, session_id: str, prompt: str | Prompt, **more: Any) -> Outcome:
        """Ask, and wait for the outcome. Cancelling this aborts the session's run, and waits for its end."""
        try:
            outcome = await self.submit(session_id, prompt, **more)
            return await asyncio.shield(outcome)
        except asyncio.CancelledError:
            run = self._runs.get(session_id)
            if run is not None:
                run.abort()
                await to_the_end(run.outcome)
            raise

    async def submit(self, session_id: str, prompt: str | Prompt, **more: Any) -> asyncio.Future[Outcome]:
        """Store the prompt and see that it is answered; the future of its outcome. Once this returns, nothing is
        lost. Cancelled, it has stored and begun all of it, or nothing."""
        if isinstance(prompt, str):
            prompt = Prompt(parts=mentioned_parts(prompt, self.runtime), **more)
        return await to_the_end(self._submit(session_id, prompt))

    async def command(
        self, session_id: str, name: str, arguments: str = "", parts: Sequence[Document] = (), **more: Any
    ) -> asyncio.Future[Outcome]:
        """Give a command of the configuration, as if its prompt had been typed; the future of the outcome.

        ``more`` are the fields of :class:`Prompt`, and ``parts`` is what is attached. The shell commands of a template
        run first, in the session's directory; cancelled while they do, nothing is stored.
        """
        command = await fetch_command(self.runtime, name)
        try:
            prompt = await prompt_of(self.runtime, command, arguments, Prompt(parts=tuple(parts), **more))
            parts = await self.runtime.hooks.command(session_id, command.name, arguments, prompt.parts)
            prompt = replace(prompt, message_id=ids.ascending("msg", prompt.message_id), parts=tuple(parts))
            outcome = await self.submit(session_id, prompt)
        except OpenseshError as error:
            self.runtime.publish(SessionError(session_id=session_id, error=write_failure(failure_of(error, ""))))
            raise
        self.runtime.publish(
            CommandExecuted(
                name=command.name, session_id=session_id, arguments=arguments, message_id=str(prompt.message_id)
            )
        )
        return outcome

    async def shell(
        self, session_id: str, command: str, *, agent: str | None = None, model: str | None = None
    ) -> Outcome:
        """Run a command for the user, in the user's shell, and put it on record; the outcome's message has its output.

        A session that is at work raises :class:`~opensesh.errors.Busy`. Cancelling this, or :meth:`abort`, ends the
        command; what it printed until then is kept.
        """
        prompt = Prompt(parts=({"type": "text", "text": BY_USER, "synthetic": True},), agent=agent, model=model)
        outcome = await to_the_end(self._shell(session_id, command, prompt))
        try:
            return await asyncio.shield(outcome)
        except asyncio.CancelledError:
            self.abort(session_id)
            await to_the_end(outcome)
            raise

    async def resume(self, session_id: str) -> asyncio.Future[Outcome] | None:
        """Go on with a session whose run was cut off; ``None`` if its prompts all have their outcome."""
        return await to_the_end(self._resume(session_id))

    async def compact(self, session_id: str) -> asyncio.Future[Outcome]:
        """Sum a session up now; the future of the outcome."""
        return await to_the_end(self._compact(session_id))

    def abort(self, session_id: str) -> bool:
        """Stop a session's run; whether there was one. Its outcome says so, to everyone who waits for it."""
        run = self._runs.get(session_id)
        if run is not None:
            run.abort()
        return run is not None

    async def cost(self, session_id: str) -> Costs:
        """What a session has cost, of its own and with its subagents."""
        return await asyncio.to_thread(costs, self.runtime, session_id)

    def status(self) -> Mapping[str, dict[str, Any]]:
        """The sessions at work in this process."""
        return self.runtime.statuses.all()

    def files(self, session_id: str) -> FileTimes:
        """What a session has read and written, for as long as the engine lives."""
        if session_id not in self._files:
            required = not self.runtime.config.flags.disable_filetime_check
            self._files[session_id] = FileTimes(locks=self._file_locks, required=required)
        return self._files[session_id]

    # -- inside --------------------------------------------------------------------------------------------------------

    async def _submit(self, session_id: str, prompt: Prompt) -> asyncio.Future[Outcome]:
        async with self._alone_with(session_id):
            run = self._runs.get(session_id) or await self._open(session_id)
            with _let_go(run):
                message = await run.writer.write(self._as_steering(run, prompt))
                await asyncio.to_thread(self.sessions.touch, session_id)
            return await self._join(session_id, run, message)

    async def _resume(self, session_id: str) -> asyncio.Future[Outcome] | None:
        async with self._alone_with(session_id):
            if session_id in self._runs:
                return self._runs[session_id].outcome
            run = await self._open(session_id)
            if not run.loop.has_work():
                run.lease.release()
                return None
            self._start(session_id, run)
            return run.outcome

    async def _compact(self, session_id: str) -> asyncio.Future[Outcome]:
        async with self._alone_with(session_id):
            run = self._runs.get(session_id) or await self._open(session_id)
            with _let_go(run):
                last = run.loop.history.last_user()
                if last is None:
                    raise UsageError("there is nothing in this session to sum up")
                request = await request_compaction(self.runtime, run.loop.session, last.info, auto=False)
            return await self._join(session_id, run, request)

    async def _shell(self, session_id: str, command: str, prompt: Prompt) -> asyncio.Future[Outcome]:
        """The future of the command alone: prompts that come while it runs are answered behind it."""
        if "\0" in command:
            raise UsageError("the command holds a NUL character, which no shell can be given")
        async with self._alone_with(session_id):
            if session_id in self._runs:
                raise Busy(f"{session_id} is at work; stop it, or wait until it is done", session_id=session_id)
            run = await self._open(session_id)
            with _let_go(run):
                message = await run.writer.write(prompt)
                await asyncio.to_thread(self.sessions.touch, session_id)
            ended: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()

            async def first() -> Outcome:
                outcome = await run.loop.shell(message, command)
                ended.set_result(outcome)
                return outcome

            run.first = first
            run.outcome.add_done_callback(lambda done: None if ended.done() else ended.set_result(done.result()))
            self._start(session_id, run)
            return ended

    def _alone_with(self, session_id: str) -> asyncio.Lock:
        """What keeps two from opening a session at the same time."""
        return self._opening.setdefault(session_id, asyncio.Lock())

    async def _open(self, session_id: str) -> Run:
        """Become the session's runner: take its lease, and bring to an end what a dead runner left."""
        if self._closing:
            raise UsageError("this engine is closed")
        session = await self.runtime.session(session_id)
        lease = await asyncio.to_thread(self._acquire, session_id)
        try:
            messages = await asyncio.to_thread(self._load, session_id)
        except BaseException:
            lease.release()
            raise
        history = History(messages)
        reader = read_for_prompt(self.runtime, session_id, self.files(session_id))
        writer = PromptWriter(self.runtime, session, history, reader)
        return Run(Loop(self.runtime, session, history, self.files(session_id)), lease, writer)

    def _acquire(self, session_id: str) -> Lease:
        """The lease. That of a runner which was killed while it started a command is held by the command, too, for the
        instant until that is a program of its own."""
        deadline = time.monotonic() + _PATIENCE
        while True:
            try:
                return self._leases.acquire(session_id, self.runtime.settings.owner)
            except Busy as busy:
                if time.monotonic() > deadline or not _is_gone(busy):
                    raise
                time.sleep(0.05)

    def _load(self, session_id: str) -> list[StoredMessage]:
        from ..workspace import Reverts

        Reverts(self.sessions, self.runtime.snapshots).cleanup(session_id)
        return visible(recover(self.sessions, self.sessions.messages(session_id)))

    def _as_steering(self, run: Run, prompt: Prompt) -> Prompt:
        return replace(prompt, steering=True) if run.task is not None else prompt

    async def _join(self, session_id: str, run: Run, message: StoredMessage) -> asyncio.Future[Outcome]:
        """Hand a stored prompt to the run; to a new one if that ended while the prompt was being stored."""
        if run.task is not None and self._runs.get(session_id) is not run:
            run = await self._open(session_id)
        else:
            run.loop.queue(message)
        if run.task is None:
            self._start(session_id, run)
        return run.outcome

    def _start(self, session_id: str, run: Run) -> None:
        if self._closing:
            run.lease.release()
            raise UsageError("this engine is closed; the prompt is stored, and resume() will find it")
        self._runs[session_id] = run
        run.task = self._group.create_task(self._drive(session_id, run))
        run.task.add_done_callback(lambda _: self._end(session_id, run, Outcome("aborted")))

    async def _drive(self, session_id: str, run: Run) -> None:
        try:
            outcome = await self._paid(session_id, run)
            # Nothing may come between the end of the loop and this: a prompt that did would have nobody to take it in.
            self._end(session_id, run, outcome)
        except Exception:
            # Every other session runs in the same group, and must not end because this one did.
            log.exception("the run of %s broke off", session_id)
            self._end(session_id, run, Outcome("failed"))

    async def _paid(self, session_id: str, run: Run) -> Outcome:
        with accounting(self.runtime, session_id):
            self._begin_title(run)
            return await run.drive()

    def _end(self, session_id: str, run: Run, outcome: Outcome) -> None:
        """A run is over: free the session, and then tell. Done once, however it ended."""
        if run.outcome.done():
            return
        if self._runs.get(session_id) is run:
            del self._runs[session_id]
        try:
            run.lease.release()
        except OSError as error:
            log.warning("the lease of %s could not be wiped: %s", session_id, error)
        self.runtime.statuses.of(session_id).idle()
        run.outcome.set_result(outcome)

    def _begin_title(self, run: Run) -> None:
        run.loop.has_work()
        prompt = run.loop.history.last_user()
        if prompt is not None and wants_title(run.loop.session, run.loop.history):
            task = self._group.create_task(give_title(self.runtime, run.loop.session, prompt))
            self._titles.add(task)
            task.add_done_callback(self._titles.discard)

    async def _beat(self) -> None:
        while True:
            await asyncio.sleep(HEARTBEAT_MS / 1000)
            for run in list(self._runs.values()):
                await asyncio.to_thread(run.lease.beat)


def open_engine(  # noqa: PLR0913 - the front door: each is a name that a caller may give
    directory: str = ".",
    *,
    store: Store | str | None = None,
    config: Config | None = None,
    settings: Settings | None = None,
    tools: Sequence[Tool] = (),
    scripts: Mapping[str, Provider] | None = None,
    permission: MayIt | None = None,
    plugins: Sequence[Pluggable] = (),
) -> Engine:
    """An engine for the sessions of a directory, to be entered with ``async with``.

    ``tools`` are added to the built-in ones. ``permission`` is asked where the rules say so: an async function that is
    given the request and answers ``"once"``, ``"always"`` or ``"reject"``, or raises
    :class:`~opensesh.errors.PermissionCorrected` with what to do instead. Without it a request waits, as an event on
    the bus, until someone calls ``engine.runtime.permissions.reply``. ``plugins`` come after those that are found.
    """
    place = project.resolve(directory)
    opened = open_store(store) if store is None or isinstance(store, str) else store
    bus = Bus(keep=16_384)
    sessions = Sessions(opened, place, bus=bus)
    project.register(opened, place)
    runtime = Runtime(
        sessions, bus, settings=settings, config=config, scripts=scripts, tools=tuple(tools), plugins=plugins
    )
    return Engine(runtime, opened, permission=permission)


def _is_gone(busy: Busy) -> bool:
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
def _let_go(run: Run) -> Generator[None]:
    """Let go of a session that was opened for something that fails."""
    try:
        yield
    except BaseException:
        if run.task is None:
            run.lease.release()
        raise


def concerns(envelope: Envelope, session_id: str) -> bool:
    """Whether an event is about this session."""
    properties = envelope.event.properties
    inner = (properties, as_object(properties.get("info")) or {}, as_object(properties.get("part")) or {})
    return any(session_id in (each.get("sessionID"), each.get("id")) for each in inner)
