"""The engine: runs the sessions of a directory. Command line, servers and Python callers use it alike."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from functools import partial
from typing import TYPE_CHECKING, Any, Unpack

from msgspec.structs import replace

from .. import ids, project
from ..bus import Bus, Envelope
from ..errors import OpenseshError, UsageError
from ..events import CommandExecuted, Missed, SessionError
from ..plugins import hooks as plugin_hooks
from ..plugins.calling import feed_events
from ..records import write_failure
from ..sessions.foreign_changes import publish_foreign_changes
from ..storage import revocations
from ..workspace.diffs import history_diffs, summarize, turn_messages
from .cancellation import run_in_thread_uncancellable, run_uncancellable, uncancellable
from .compaction_undo import redo_compaction, undo_compaction
from .model_errors import failure_of
from .prompt import Prompt, PromptOptions, as_prompt, mentioned_parts
from .runs import releasing_on_error
from .session_history import USER_SHELL_PROMPT
from .tool_context import output_limits
from .user_commands import run_user_shell
from .user_requests import CallbackDispatcher

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Mapping, Sequence
    from types import TracebackType

    from ..config import Agent, Config, Origin
    from ..models.model import Model
    from ..permissions import Answer as PermissionReply
    from ..project import ProjectLocation
    from ..records import Document, Rule, Session
    from ..sessions import Sessions
    from ..sharing.share_service import ShareResult, ShareService, UnshareResult
    from ..storage.protocol import StoredMessage
    from ..tools.filetimes import FileTimes
    from ..workspace.revert import RevertPreview, RevertResult
    from .budget import Costs, Spent
    from .components import Components, RunPrompt
    from .inspector import Inspection
    from .loop import Outcome
    from .runs import Runs
    from .session_writer import AnswerWriter
    from .user_requests import PermissionCallback

_NOT_OPEN = "this engine is not open; write: async with opensesh.open(...) as engine"


class Engine:
    """Runs the sessions of one directory. Use it as an async context manager; leaving it aborts what still runs.

    Prompts of one session are answered one after the other; a prompt that arrives while the session runs joins the run.
    Several sessions run at the same time. If another process runs a session, :class:`~opensesh.errors.BusyError` names
    it. An engine can be entered once.
    """

    def __init__(
        self, build: Callable[[RunPrompt], Components], bus: Bus, *, permission: PermissionCallback | None = None
    ) -> None:
        """``build`` returns the services of the engine, and is called in a thread; see :func:`open_engine`."""
        self.bus = bus
        self._build = build
        self._permission = permission
        self._components: Components | None = None
        self._running: Runs | None = None
        self._closing = AsyncExitStack()

    # -- opening and closing -------------------------------------------------------------------------------------------

    async def open(self) -> None:
        """Read the configuration and load plugins, so that the engine can be asked about them; nothing runs yet.
        Entering the engine does this too."""
        if self._components is None:
            self._components = await run_in_thread_uncancellable(self._build, self.run)

    async def __aenter__(self) -> Engine:
        if self._running is not None:
            raise UsageError("an engine can be entered once; opensesh.open() returns another one")
        await self.open()
        components, settings, closing = self.components, self.components.settings, self._closing
        # Closed in reverse order, all of them even if one fails: plugins receive the last events of the runs.
        closing.push_async_callback(components.aclose)
        closing.push_async_callback(components.hooks.plugins.dispose, settings.plugin_timeout_seconds)
        await closing.enter_async_context(feed_events(components.hooks.plugins, self.bus))
        group = await asyncio.TaskGroup().__aenter__()
        closing.push_async_callback(group.__aexit__, None, None, None)  # an error of the caller cancels no run twice
        self._running = components.new_runs(group)
        directory = components.location.directory
        dispatcher = CallbackDispatcher(
            self.bus, group, components.permissions, components.questions, settings, self._permission, directory
        )
        store, publish = components.writer.sessions.store, components.writer.publish
        if settings.follow_other_programs:
            closing.callback(await run_in_thread_uncancellable(publish_foreign_changes, store, publish))
        components.mcp.begin(group)
        closing.callback(components.mcp.end)
        closing.callback(dispatcher.close)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        async with self._closing:
            await self._runs.close(wait_for_titles=kind is None)

    @property
    def components(self) -> Components:
        """The services behind this facade. They are not part of the public interface and change without notice."""
        if self._components is None:
            raise UsageError(_NOT_OPEN)
        return self._components

    @property
    def _runs(self) -> Runs:
        if self._running is None:
            raise UsageError(_NOT_OPEN)
        return self._running

    # -- what the engine was opened with -------------------------------------------------------------------------------

    @property
    def sessions(self) -> Sessions:
        """The session service, synchronous."""
        return self.components.writer.sessions

    @property
    def config(self) -> Config:
        """The configuration of the directory, with what plugins added."""
        return self.components.config

    @property
    def location(self) -> ProjectLocation:
        """Directory, worktree and project of this engine."""
        return self.components.location

    def agent(self, name: str | None = None) -> Agent:
        """Return an agent by name, or the default one."""
        return self.components.agents.get(name)

    def model(self, name: str | None = None) -> Model:
        """Return a model by its name ``provider/model``, or the default one."""
        models = self.components.models
        return models.catalogue.find(name) if name is not None else models.default()

    def check_model(self, model: Model) -> None:
        """Raise what a request to ``model`` would raise before it is sent: no credentials, no adapter."""
        if not self.components.hooks.plugins.has_hook(plugin_hooks.auth):  # a plugin gives the key with each request
            self.components.models.connections.provider(model)

    def check_command(self, name: str) -> None:
        """Raise :class:`~opensesh.errors.NotFoundError` for an unknown command. The prompts of MCP servers are known
        once a server is connected, so a name that belongs to one is accepted."""
        self.components.commands.find(name)

    def prompt_parts(self, text: str, *, typed: str | None = None) -> tuple[Document, ...]:
        """Return ``text`` and the files and agents that it mentions with ``@`` as parts of a prompt. ``typed`` limits
        mentions to what the user wrote, where ``text`` holds more (output of a program, standard input)."""
        components = self.components
        return mentioned_parts(text, components.location, components.agents, typed=typed)

    # -- sessions ------------------------------------------------------------------------------------------------------

    async def create(
        self, *, title: str | None = None, parent_id: str | None = None, permission: Sequence[Rule] | None = None
    ) -> Session:
        """Create a session in this directory."""
        return await self.components.writer.create(title=title, parent_id=parent_id, permission=permission)

    async def prompt(
        self, session_id: str, prompt: str | Prompt, **options: Unpack[PromptOptions]
    ) -> AsyncIterator[Envelope]:
        """Submit a prompt, and yield every event of the session until the prompt has its outcome. The last item has it:
        the event :class:`~opensesh.events.PromptEnded`. A reader that is too slow for the events gets one that says
        which were missed.

        ``options`` are the fields of :class:`Prompt` (``agent``, ``model``, ...) where ``prompt`` is a text. Leaving
        the iteration early leaves the session running; :meth:`abort` stops it.
        """
        async with self.bus.subscribe() as subscription:
            outcome = await self.submit(session_id, prompt, **options)
            outcome.add_done_callback(lambda _: subscription.close_after(self.bus.last))
            async for envelope in subscription:
                if envelope.event.concerns(session_id) or isinstance(envelope.event, Missed):
                    yield envelope
        ended = outcome.result()
        info = ended.message.info if ended.message is not None else {}
        messages = await run_in_thread_uncancellable(self.sessions.messages, session_id)
        answers = [message.info for message in messages if message.info.get("parentID") == info.get("parentID", "")]
        yield Envelope(self.bus.last, ended.event(session_id, self.spent(answers).cost), self.location.directory)

    async def run(self, session_id: str, prompt: str | Prompt, **options: Unpack[PromptOptions]) -> Outcome:
        """Submit a prompt and wait for its outcome. Cancelling this aborts the session's run, and waits for its end."""
        try:
            outcome = await self.submit(session_id, prompt, **options)
            return await outcome
        except asyncio.CancelledError:
            run = self._runs.get(session_id)
            if run is not None:
                run.abort()
                await run_uncancellable(run.outcome())
            raise

    @uncancellable
    async def submit(
        self, session_id: str, prompt: str | Prompt, **options: Unpack[PromptOptions]
    ) -> asyncio.Future[Outcome]:
        """Store a prompt and start or join its run; return a future of its outcome. Once this returns, the prompt
        survives a crash. If it is cancelled, all of it has happened or nothing. The future is the caller's own:
        cancelling it, or waiting for it with a timeout, has no effect on the run; :meth:`abort` stops it."""
        runs, prompt = self._runs, as_prompt(prompt, options, self.prompt_parts)
        async with runs.session_lock(session_id):
            run = await runs.open(session_id)
            with releasing_on_error(run):
                message = await runs.add_prompt(run, replace(prompt, steering=prompt.steering or run.task is not None))
            return await runs.join(run, message)

    @uncancellable
    async def append(self, session_id: str, prompt: str | Prompt, **options: Unpack[PromptOptions]) -> StoredMessage:
        """Store a prompt without answering it; the next prompt is answered with both in view."""
        runs, prompt = self._runs, as_prompt(prompt, options, self.prompt_parts)
        async with runs.session_lock(session_id):
            # Only the whole history says whether an id that the client has chosen is new.
            run = await runs.open(session_id, to_append=prompt.message_id is None)
            try:
                return await runs.add_context(run, prompt)
            finally:
                if run.task is None:
                    run.lease.release()

    async def command(
        self,
        session_id: str,
        name: str,
        arguments: str = "",
        parts: Sequence[Document] = (),
        **options: Unpack[PromptOptions],
    ) -> asyncio.Future[Outcome]:
        """Run a command of the configuration as if its prompt had been typed; return the future of the outcome.

        ``options`` are the fields of :class:`Prompt`, and ``parts`` the attachments. The shell commands of a template
        run first, in the session's directory; if this is cancelled meanwhile, nothing is stored.
        """
        components = self.components
        publish = components.writer.publish
        command = await components.commands.fetch(name)
        try:
            prompt = await components.commands.prompt(command, arguments, Prompt(parts=tuple(parts), **options))
            changed = await components.hooks.command(session_id, command.name, arguments, prompt.parts)
            outcome = await self.submit(session_id, replace(prompt, parts=tuple(changed)))
        except OpenseshError as error:
            publish(SessionError(session_id=session_id, error=write_failure(failure_of(error, ""))))
            raise

        def report(done: asyncio.Future[Outcome]) -> None:
            answer = None if done.cancelled() or done.exception() else done.result().message
            if answer is None:
                return
            fields = {"name": command.name, "arguments": arguments}
            publish(CommandExecuted(session_id=session_id, message_id=str(answer.info["id"]), **fields))
            if command.name == "init":
                project.initialized(self.sessions.store, self.location)

        outcome.add_done_callback(report)
        return asyncio.shield(outcome)

    async def shell(self, session_id: str, command: str, **options: Unpack[PromptOptions]) -> Outcome:
        """Run a command in the user's shell and record it in the session; the outcome's message has its output.

        ``options`` are ``agent``, ``model`` and ``message_id`` of the prompt that it is recorded under. A session that
        is running raises :class:`~opensesh.errors.BusyError`. Cancelling this, or :meth:`abort`, ends the command; its
        output until then is kept.
        """
        if "\0" in command:
            raise UsageError("the command contains a NUL character, which no shell accepts")
        parts: tuple[Document, ...] = ({"type": "text", "text": USER_SHELL_PROMPT, "synthetic": True},)
        prompt = Prompt(parts=parts, **options)
        components = self.components

        async def execute(answer: AnswerWriter) -> bool:
            limits = output_limits(components.config)
            return await run_user_shell(answer, command, self.location.directory, limits, components.hooks)

        outcome = await run_uncancellable(self._runs.start_shell(session_id, prompt, execute))
        try:
            return await asyncio.shield(outcome)
        except asyncio.CancelledError:
            self.abort(session_id)
            await run_uncancellable(outcome)
            raise

    @uncancellable
    async def resume(self, session_id: str) -> asyncio.Future[Outcome] | None:
        """Continue a session whose run was interrupted; ``None`` if all its prompts have their outcome."""
        runs = self._runs
        async with runs.session_lock(session_id):
            if (running := runs.get(session_id)) is not None:
                return running.outcome()
            run = await runs.open(session_id)
            if run.loop.history.unanswered_prompt() is None:
                run.lease.release()
                return None
            with releasing_on_error(run):
                await runs.commit_revert(run)
            runs.start(run)
            return run.outcome()

    @uncancellable
    async def compact(
        self, session_id: str, *, model: str | None = None, auto: bool = False
    ) -> asyncio.Future[Outcome]:
        """Compact a session now, with ``model`` or the one of its last prompt; return the future of the outcome. With
        ``auto`` the model continues afterwards, as after an automatic compaction."""
        named = None if model is None else self.model(model)
        chosen = {} if named is None else {"model": {"providerID": named.provider_id, "modelID": named.id}}
        runs = self._runs
        async with runs.session_lock(session_id):
            run = await runs.open(session_id)
            with releasing_on_error(run):
                last = run.loop.history.last_prompt
                if last is None and not (chosen and self.components.settings.opencode_events):
                    raise UsageError("there is nothing in this session to compact")
                info = last.info if last else {"sessionID": session_id, "agent": self.agent(None).name}
                await run_in_thread_uncancellable(runs.prepare_for_prompt, run)
                request = await self.components.compactor.request(info | chosen, auto=auto)
            return await runs.join(run, request)

    async def undo_compaction(self, session_id: str) -> bool:
        """Undo the newest compaction of a session, so that the model sees everything before it again; whether there was
        one. See :meth:`redo_compaction`."""
        async with self._runs.session_lock(session_id):
            return await run_in_thread_uncancellable(undo_compaction, self.sessions, session_id)

    async def redo_compaction(self, session_id: str) -> bool:
        """Redo the compaction that was undone last, without another model call; whether there was one.

        Raises :class:`~opensesh.errors.UsageError` if the session has been compacted again since, or messages that the
        summary replaces have been removed.
        """
        async with self._runs.session_lock(session_id):
            return await run_in_thread_uncancellable(redo_compaction, self.sessions, session_id)

    async def withdraw(self, session_id: str, message_id: str) -> bool:
        """Remove a prompt that waits for the next step of its session's run; whether it still waited."""
        return await self._runs.withdraw(session_id, message_id)

    def abort(self, session_id: str, *, announced: bool = True) -> bool:
        """Stop a session's run; whether there was one. Its outcome is ``aborted`` for all who wait for it. The abort of
        a session that is then removed is not ``announced``: only the end of the run is published."""
        if not isinstance(session_id, str):
            ids.check(session_id, "ses")
        return self._runs.abort(session_id, announced=announced) if self._running is not None else False

    def starting_lock(self, session_id: str) -> asyncio.Lock:
        """Return the lock under which runs of a session begin; as long as it is taken, none does."""
        return self._runs.session_lock(session_id)

    def status(self) -> Mapping[str, dict[str, Any]]:
        """Return the status of every session that this process runs, by session id."""
        return self.components.statuses.all()

    def files(self, session_id: str) -> FileTimes:
        """Return the files that a session has read and written while the engine is open."""
        return self._runs.files(session_id)

    # -- permissions and questions -------------------------------------------------------------------------------------

    def permissions(self) -> list[Document]:
        """Return the permission requests that wait for a reply, oldest first."""
        return self.components.permissions.pending

    def permission_rule(self, request_id: str) -> tuple[Rule, Origin | None] | None:
        """Return the rule that makes a waiting request ask, and where it was set; ``None`` if no rule does."""
        rule = self.components.permissions.asking_rule(request_id)
        return None if rule is None else (rule, self.config.rule_origin(rule.permission, rule.pattern))

    def reply_permission(self, request_id: str, reply: PermissionReply, message: str | None = None) -> None:
        """Answer a permission request. A ``message`` with a rejection tells the model what to do instead."""
        self.components.permissions.reply(request_id, reply, message)

    def refuse_permission(self, request_id: str, reason: str) -> None:
        """Refuse a permission request that could not be put to a user; the model is given ``reason``."""
        self.components.permissions.refuse(request_id, reason)

    def approved(self) -> Sequence[Rule]:
        """Return the permissions that were given with "always" while the engine is open, oldest first."""
        return self.components.permissions.approved

    def questions(self) -> list[Document]:
        """Return the questions of models that wait for a reply, oldest first."""
        return self.components.questions.pending

    def reply_question(self, request_id: str, answers: list[list[str]]) -> None:
        """Answer a question request: for each of its questions, the labels that the user chose."""
        self.components.questions.reply(request_id, answers)

    def reject_question(self, request_id: str) -> None:
        """Dismiss a question request: the tool call that asked fails."""
        self.components.questions.reject(request_id)

    # -- costs, files, todos, context, shares --------------------------------------------------------------------------

    async def cost(self, session_id: str) -> Costs:
        """Return what a session has cost, itself and with its subagents."""
        return await run_in_thread_uncancellable(self.components.costs.session, session_id)

    def spent(self, answers: Sequence[Document]) -> Spent:
        """Return what some answers have cost."""
        return self.components.costs.spent(answers)

    async def preview_revert(self, session_id: str, message_id: str, part_id: str | None = None) -> RevertPreview:
        """Return what :meth:`revert` would do, with the texts of the files. Changes nothing."""
        reverts = self.components.leased_reverts()
        return await run_in_thread_uncancellable(reverts.preview, session_id, message_id, part_id, texts=True)

    async def revert(
        self,
        session_id: str,
        message_id: str,
        part_id: str | None = None,
        *,
        force: bool = False,
        files: bool = True,
        unattributed: bool = False,
        token: str | None = None,
    ) -> RevertResult:
        """Revert messages and files to before a message or part. See :meth:`opensesh.workspace.Reverts.revert`."""
        revert = partial(
            self.components.leased_reverts().revert, force=force, files=files, unattributed=unattributed, token=token
        )
        async with self._runs.session_lock(session_id):
            return await run_in_thread_uncancellable(revert, session_id, message_id, part_id)

    async def unrevert(self, session_id: str, *, force: bool = False) -> RevertResult:
        """Undo a revert. See :meth:`opensesh.workspace.Reverts.unrevert`."""
        async with self._runs.session_lock(session_id):
            return await run_in_thread_uncancellable(self.components.leased_reverts().unrevert, session_id, force=force)

    async def diff(self, session_id: str, message_id: str | None = None) -> list[Document]:
        """Return the file changes of a session, or of one prompt and its answers."""
        components, sessions = self.components, self.sessions

        def read() -> list[Document]:
            messages = sessions.messages(session_id)
            changed = turn_messages(messages, message_id) if message_id is not None else messages
            return history_diffs(changed, components.snapshots, components.originals, sessions.messages)

        return await run_in_thread_uncancellable(read)

    async def summarize(self, session_id: str) -> list[Document]:
        """Store and return the file changes of a session, as a step does (OpenCode: ``SessionSummary.summarize``)."""
        snapshots, publish = self.components.snapshots, self.components.writer.publish
        async with self._runs.session_lock(session_id):
            return await run_in_thread_uncancellable(summarize, self.sessions, snapshots, session_id, publish=publish)

    async def messages(self, session_id: str) -> AsyncIterator[StoredMessage]:
        """Yield the messages of a session with their parts, newest first (OpenCode: ``MessageV2.stream``)."""
        messages = self.sessions.stream(session_id)
        while (message := await run_in_thread_uncancellable(next, messages, None)) is not None:
            yield message

    async def todo(self, session_id: str) -> list[Document]:
        """Return the todo list of a session."""
        return await run_in_thread_uncancellable(self.sessions.todos, session_id)

    async def context(self, session_id: str, step: str | int | None = None) -> Inspection:
        """Return what the next request of a session holds, or the one of ``step``: a number from 1 or a message id."""
        session = await self.components.writer.get(session_id)
        named = None if step is None else str(step)
        return await run_in_thread_uncancellable(self.components.inspector.inspect, session, named)

    async def share(self, session_id: str, *, redact: bool | None = None) -> ShareResult:
        """Share a session, or update its share, by the settings of the configuration."""
        async with self._share_service() as service:
            return await service.share(session_id, redact=redact)

    async def unshare(self, session_id: str) -> UnshareResult:
        """Take down the share of a session."""
        async with self._share_service() as service:
            return await service.unshare(session_id)

    async def remove_pending_shares(self) -> list[UnshareResult]:
        """Take down the shares of deleted sessions, if sharing is not disabled. Those that fail stay pending."""
        if next(revocations.waiting(self.sessions.store), None) is None:
            return []
        async with self._share_service() as service:
            return [] if service.settings.disabled_by else await service.retry()

    def _share_service(self) -> ShareService:
        from ..sharing.share_service import open_share_service  # most engines share nothing

        return open_share_service(self.sessions, self.config)
