"""The engine: runs sessions, one loop each, and answers for every prompt it took."""

from __future__ import annotations

import asyncio
import logging
import os
from typing import TYPE_CHECKING, Any, Unpack

from msgspec.structs import replace

from .. import project
from ..bus import Bus, Envelope
from ..errors import BusyError, OpenseshError, UsageError
from ..events import CommandExecuted, Missed, SessionError
from ..plugins import hooks as plugin_hooks
from ..plugins.calling import EventFeed
from ..records import as_object, write_failure
from ..sessions import Sessions
from ..storage import open_store
from ..tools.tool import missing_attributes
from .answering import Answering
from .cancellation import run_in_thread_uncancellable, run_uncancellable
from .components import Runtime, Settings
from .failures import failure_of
from .prompt import Prompt, PromptOptions, mentioned_parts
from .runs import Runs, releasing_on_error
from .shell import BY_USER

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping, Sequence
    from types import TracebackType

    from ..config import Agent, Config
    from ..models.model import Model
    from ..models.request import Provider
    from ..permissions import Answer as Reply
    from ..plugins import Pluggable
    from ..project import ProjectLocation
    from ..records import Document, Rule, Session
    from ..storage.protocol import Store
    from ..tools.filetimes import FileTimes
    from ..tools.tool import Tool
    from ..workspace import RevertResult
    from .answering import PermissionCallback
    from .budget import Costs
    from .inspector import Inspection
    from .loop import Outcome


log = logging.getLogger("opensesh.engine")
_PATIENCE = 5.0
"""Seconds that plugins have to come to an end."""


class Engine:
    """Use it as an async context manager; leaving it aborts what still runs, cleanly.

    Prompts of one session are answered one after the other; a prompt that comes while the session runs joins the run.
    Several sessions run at the same time. Another process that runs a session is named in
    :class:`~opensesh.errors.BusyError`.
    """

    def __init__(self, runtime: Runtime, *, permission: PermissionCallback | None = None) -> None:
        self.runtime = runtime
        self.sessions = runtime.sessions
        self.bus = runtime.bus
        self._group = asyncio.TaskGroup()
        self._runs = Runs(runtime, self._group)
        self._feed = EventFeed(runtime.hooks.plugins, runtime.bus)
        self._answering = Answering(runtime, permission, runtime.settings.question)
        runtime.run_child = self.run

    async def __aenter__(self) -> Engine:
        await self._feed.__aenter__()
        await self._group.__aenter__()
        self._runs.begin()
        self._answering.begin(self._group)
        self.runtime.mcp.begin(self._group)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            await self._runs.end(patiently=kind is None)
        finally:
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

    async def prompt(
        self, session_id: str, prompt: str | Prompt, **more: Unpack[PromptOptions]
    ) -> AsyncIterator[Envelope]:
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

    async def run(self, session_id: str, prompt: str | Prompt, **more: Unpack[PromptOptions]) -> Outcome:
        """Ask, and wait for the outcome. Cancelling this aborts the session's run, and waits for its end."""
        try:
            outcome = await self.submit(session_id, prompt, **more)
            return await asyncio.shield(outcome)
        except asyncio.CancelledError:
            run = self._runs.get(session_id)
            if run is not None:
                run.abort()
                await run_uncancellable(run.outcome)
            raise

    async def submit(
        self, session_id: str, prompt: str | Prompt, **more: Unpack[PromptOptions]
    ) -> asyncio.Future[Outcome]:
        """Store the prompt and see that it is answered; the future of its outcome. Once this returns, nothing is
        lost. Cancelled, it has stored and begun all of it, or nothing."""
        if isinstance(prompt, str):
            prompt = Prompt(parts=mentioned_parts(prompt, self.runtime), **more)
        return await run_uncancellable(self._submit(session_id, prompt))

    async def command(
        self,
        session_id: str,
        name: str,
        arguments: str = "",
        parts: Sequence[Document] = (),
        **more: Unpack[PromptOptions],
    ) -> asyncio.Future[Outcome]:
        """Give a command of the configuration, as if its prompt had been typed; the future of the outcome.

        ``more`` are the fields of :class:`Prompt`, and ``parts`` is what is attached. The shell commands of a template
        run first, in the session's directory; cancelled while they do, nothing is stored.
        """
        from .user_commands import fetch_command, prompt_of

        command = await fetch_command(self.runtime, name)
        try:
            prompt = await prompt_of(self.runtime, command, arguments, Prompt(parts=tuple(parts), **more))
            parts = await self.runtime.hooks.command(session_id, command.name, arguments, prompt.parts)
            outcome = await self.submit(session_id, replace(prompt, parts=tuple(parts)))
        except OpenseshError as error:
            self.runtime.publish(SessionError(session_id=session_id, error=write_failure(failure_of(error, ""))))
            raise

        def executed(done: asyncio.Future[Outcome]) -> None:
            answer = None if done.cancelled() or done.exception() else done.result().message
            if answer is None:
                return
            message_id = str(answer.info["id"])
            self.runtime.publish(
                CommandExecuted(name=command.name, session_id=session_id, arguments=arguments, message_id=message_id)
            )
            if command.name == "init":
                project.initialized(self.sessions.store, self.runtime.place)

        outcome.add_done_callback(executed)
        return outcome

    async def shell(
        self, session_id: str, command: str, *, agent: str | None = None, model: str | None = None
    ) -> Outcome:
        """Run a command for the user, in the user's shell, and put it on record; the outcome's message has its output.

        A session that is at work raises :class:`~opensesh.errors.BusyError`. Cancelling this, or :meth:`abort`, ends
        the
        command; what it printed until then is kept.
        """
        prompt = Prompt(parts=({"type": "text", "text": BY_USER, "synthetic": True},), agent=agent, model=model)
        outcome = await run_uncancellable(self._shell(session_id, command, prompt))
        try:
            return await asyncio.shield(outcome)
        except asyncio.CancelledError:
            self.abort(session_id)
            await run_uncancellable(outcome)
            raise

    async def resume(self, session_id: str) -> asyncio.Future[Outcome] | None:
        """Go on with a session whose run was cut off; ``None`` if its prompts all have their outcome."""
        return await run_uncancellable(self._resume(session_id))

    async def compact(self, session_id: str) -> asyncio.Future[Outcome]:
        """Sum a session up now; the future of the outcome."""
        return await run_uncancellable(self._compact(session_id))

    def abort(self, session_id: str) -> bool:
        """Stop a session's run; whether there was one. Its outcome says so, to everyone who waits for it."""
        return self._runs.abort(session_id)

    async def cost(self, session_id: str) -> Costs:
        """What a session has cost, of its own and with its subagents."""
        from .budget import costs

        return await asyncio.to_thread(costs, self.runtime, session_id)

    def status(self) -> Mapping[str, dict[str, Any]]:
        """Return the status of every session that this process runs, by session id."""
        return self.runtime.statuses.all()

    @property
    def config(self) -> Config:
        """Configuration of the directory, with what plugins added."""
        return self.runtime.config

    @property
    def location(self) -> ProjectLocation:
        """Directory, worktree and project of this engine."""
        return self.runtime.place

    def agent(self, name: str | None = None) -> Agent:
        """Return an agent by name, or the default one."""
        return self.runtime.agent(name)

    def model(self, name: str | None = None) -> Model:
        """Return a model by its name ``provider/model``, or the default one."""
        return self.runtime.find_model(name) if name is not None else self.runtime.default_model()

    def check_model(self, model: Model) -> None:
        """Raise what a request to ``model`` would raise before it is sent: no credentials, no adapter."""
        if not self.runtime.hooks.plugins.has_hook(plugin_hooks.auth):
            self.runtime.connections.provider(model)

    def check_command(self, name: str) -> None:
        """Raise :class:`~opensesh.errors.NotFoundError` if there is no command ``name``. The prompts of MCP servers are
        known only once a server is connected, so a name that belongs to one passes."""
        if not self.runtime.mcp.owns(name):
            from .user_commands import find_command

            find_command(self.runtime, name)

    def prompt_parts(self, text: str, *, typed: str | None = None) -> tuple[Document, ...]:
        """Return ``text`` and the files and agents that it mentions with ``@`` as parts of a prompt. ``typed`` limits
        mentions to what the user wrote, where ``text`` holds more (output of a program, standard input)."""
        return mentioned_parts(text, self.runtime, said=typed)

    # -- permissions and questions -------------------------------------------------------------------------------------

    def permissions(self) -> list[Document]:
        """Return the permission requests that wait for a reply, oldest first."""
        return self.runtime.permissions.pending

    def reply_permission(self, request_id: str, reply: Reply, message: str | None = None) -> None:
        """Answer a permission request. A ``message`` with a rejection tells the model what to do instead."""
        self.runtime.permissions.reply(request_id, reply, message)

    def refuse_permission(self, request_id: str, reason: str) -> None:
        """Refuse a permission request that could not be put to a user; the model is given ``reason``."""
        self.runtime.permissions.refuse(request_id, reason)

    def questions(self) -> list[Document]:
        """Return the questions of models that wait for a reply, oldest first."""
        return self.runtime.questions.pending

    def reply_question(self, request_id: str, answers: list[list[str]]) -> None:
        """Answer a question request: for each of its questions, the labels that the user chose."""
        self.runtime.questions.reply(request_id, answers)

    def reject_question(self, request_id: str) -> None:
        """Dismiss a question request: the tool call that asked fails."""
        self.runtime.questions.reject(request_id)

    # -- files, todos, context, shares ---------------------------------------------------------------------------------

    async def revert(
        self, session_id: str, message_id: str, part_id: str | None = None, *, force: bool = False, files: bool = True
    ) -> RevertResult:
        """Revert messages and files to before a message or part. See :meth:`opensesh.workspace.Reverts.revert`."""
        return await self._reverting(session_id, "revert", session_id, message_id, part_id, force=force, files=files)

    async def unrevert(self, session_id: str, *, force: bool = False) -> RevertResult:
        """Undo a revert. See :meth:`opensesh.workspace.Reverts.unrevert`."""
        return await self._reverting(session_id, "unrevert", session_id, force=force)

    async def _reverting(self, session_id: str, method: str, *args: Any, **options: Any) -> RevertResult:
        from ..storage.leases import leases_of
        from ..workspace import Reverts

        def change() -> RevertResult:
            leases = leases_of(self.sessions.store)
            reverts = Reverts(self.sessions, self.runtime.snapshots, publish=self.runtime.publish, leases=leases)
            return getattr(reverts, method)(*args, **options)

        async with self._runs.session_lock(session_id):
            return await run_in_thread_uncancellable(change)

    async def diff(self, session_id: str, message_id: str | None = None) -> list[Document]:
        """Return the file changes of a session, or of one prompt and its answers."""
        from ..workspace import Originals, history_diffs, turn_messages

        def read() -> list[Document]:
            messages = self.sessions.messages(session_id)
            stretch = turn_messages(messages, message_id) if message_id is not None else messages
            return history_diffs(stretch, self.runtime.snapshots, Originals(self.sessions.store))

        return await run_in_thread_uncancellable(read)

    async def todo(self, session_id: str) -> list[Document]:
        """Return the todo list of a session."""
        return list(await run_in_thread_uncancellable(self.sessions.todos, session_id))

    async def context(self, session_id: str, step: str | None = None) -> Inspection:
        """Return what the next request of a session holds, or the one of ``step``: a number from 1 or a message id."""
        from .inspector import inspect

        session = await self.runtime.session(session_id)
        return await run_in_thread_uncancellable(inspect, self.runtime, session, step)

    def files(self, session_id: str) -> FileTimes:
        """What a session has read and written, for as long as the engine lives."""
        return self._runs.files(session_id)

    # -- inside --------------------------------------------------------------------------------------------------------

    async def _submit(self, session_id: str, prompt: Prompt) -> asyncio.Future[Outcome]:
        async with self._runs.session_lock(session_id):
            run = await self._runs.open(session_id)
            with releasing_on_error(run):
                steered = replace(prompt, steering=True) if run.task is not None else prompt
                message = await run.writer.compose(steered)
                await self._runs.settle(run)
                await self.runtime.add_message(message)
                await asyncio.to_thread(self.sessions.touch, session_id)
            return await self._runs.join(run, message)

    async def _resume(self, session_id: str) -> asyncio.Future[Outcome] | None:
        async with self._runs.session_lock(session_id):
            if (running := self._runs.get(session_id)) is not None:
                return running.outcome
            run = await self._runs.open(session_id)
            if not run.loop.has_work():
                run.lease.release()
                return None
            with releasing_on_error(run):
                await self._runs.settle(run)
            self._runs.start(run)
            return run.outcome

    async def _compact(self, session_id: str) -> asyncio.Future[Outcome]:
        from .compaction import request_compaction

        async with self._runs.session_lock(session_id):
            run = await self._runs.open(session_id)
            with releasing_on_error(run):
                last = run.loop.history.last_user()
                if last is None:
                    raise UsageError("there is nothing in this session to sum up")
                await self._runs.settle(run)
                request = await request_compaction(self.runtime, run.loop.session, last.info, auto=False)
            return await self._runs.join(run, request)

    async def _shell(self, session_id: str, command: str, prompt: Prompt) -> asyncio.Future[Outcome]:
        """The future of the command alone: prompts that come while it runs are answered behind it."""
        if "\0" in command:
            raise UsageError("the command holds a NUL character, which no shell can be given")
        async with self._runs.session_lock(session_id):
            if self._runs.get(session_id) is not None:
                raise BusyError(f"{session_id} is at work; stop it, or wait until it is done", session_id=session_id)
            run = await self._runs.open(session_id)
            with releasing_on_error(run):
                message = await run.writer.compose(prompt)
                await self._runs.settle(run)
                await self.runtime.add_message(message)
                await asyncio.to_thread(self.sessions.touch, session_id)
            ended: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()

            async def first() -> Outcome:
                outcome = await run.loop.shell(message, command)
                ended.set_result(outcome)
                return outcome

            run.first = first
            run.outcome.add_done_callback(lambda done: None if ended.done() else ended.set_result(done.result()))
            self._runs.start(run)
            return ended


def open_engine(  # noqa: PLR0913 - the front door: each is a name that a caller may give
    directory: str | os.PathLike[str] = ".",
    *,
    store: Store | str | None = None,
    config: Config | None = None,
    settings: Settings | None = None,
    tools: Sequence[Tool] = (),
    scripts: Mapping[str, Provider] | None = None,
    permission: PermissionCallback | None = None,
    plugins: Sequence[Pluggable] = (),
) -> Engine:
    """An engine for the sessions of a directory, to be entered with ``async with``.

    ``tools`` are added to the built-in ones. ``permission`` is asked where the rules say so: a function, async or not,
    that is given the request and answers ``"once"``, ``"always"`` or ``"reject"``, or raises
    :class:`~opensesh.errors.PermissionCorrectedError` with what to do instead. Without it a request waits, as an
    event on
    the bus, until someone calls ``engine.runtime.permissions.reply``, and a line in the log says so after a while.
    ``plugins`` come after those that are found.
    """
    _check_front_door(directory, tools)
    place = project.resolve(directory)
    opened = open_store(store) if store is None or isinstance(store, str) else store
    bus = Bus(keep=16_384)
    sessions = Sessions(opened, place, bus=bus)
    project.register(opened, place)
    runtime = Runtime(
        sessions, bus, settings=settings, config=config, scripts=scripts, tools=tuple(tools), plugins=plugins
    )
    return Engine(runtime, permission=permission)


def _check_front_door(directory: str | os.PathLike[str], tools: Sequence[Tool]) -> None:
    """:class:`~opensesh.errors.UsageError` for what would go wrong later, in a place that says less."""
    if not os.path.isdir(directory):
        raise UsageError(f"there is no directory {os.path.abspath(directory)}")
    for each in tools:
        if missing := missing_attributes(each):
            name = getattr(each, "__name__", repr(each))
            made = "@opensesh.tool makes one of a function"
            raise UsageError(f"{name} is no tool, since it has no {', '.join(missing)}; {made}")


def concerns(envelope: Envelope, session_id: str) -> bool:
    """Whether an event is about this session."""
    properties = envelope.event.properties
    inner = (properties, as_object(properties.get("info")) or {}, as_object(properties.get("part")) or {})
    return any(session_id in (each.get("sessionID"), each.get("id")) for each in inner)
