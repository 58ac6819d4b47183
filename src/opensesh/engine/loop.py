"""From a prompt to its outcome: why there is a next model call.

One loop runs one session, under its lease, until its newest prompt has an outcome. Prompts that arrive meanwhile are
added to the history between two steps. The loop always ends with an outcome, and the records say the same.
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from .. import events
from ..errors import ContextExceededError, OpenseshError
from ..models.stream_events import ToolCall
from ..records import (
    MessageAbortedError,
    StructuredOutputError,
    UnknownError,
    object_at,
    read_failure,
    without_surrogates,
    write_failure,
)
from ..storage.protocol import SharedSessions
from ..workspace.diffs import record_no_changes, summarize
from .cancellation import run_in_thread_uncancellable, run_uncancellable
from .compaction import overhead_exceeds_window, window_overflow_error
from .context_window import compaction_part, prune
from .model_call import ModelCall, ModelCallResult
from .model_errors import failure_of
from .prompts import prompt_text
from .session_history import record_final, record_masked, rejected_part_ids
from .subtasks import next_requested_subtask
from .tool_calls import CallRunner, LoopDetector

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable
    from decimal import Decimal

    from ..records import Document, Failure, Session
    from ..storage.protocol import StoredMessage
    from ..tools.structured_output import StructuredOutput
    from .compaction import Compactions
    from .components import Environment
    from .session_history import History
    from .session_writer import AnswerWriter
    from .step import Step, Steps

log = logging.getLogger("opensesh.engine")
ABORTED = "The user stopped this"


class Outcome(NamedTuple):
    """How a prompt ended."""

    kind: Literal["answered", "failed", "aborted", "blocked"]
    """``blocked``: the user rejected something that the model wanted to do."""
    message: StoredMessage | None = None
    """The last answer, if there was any."""
    error: Document | None = None

    def __repr__(self) -> str:
        """Show the text and the structured answer instead of the whole message."""
        structured = "" if self.structured is None else f", structured={self.structured!r}"
        error = "" if self.error is None else f", error={self.error!r}"
        return f"Outcome(kind={self.kind!r}, text={self.text!r}{structured}{error})"

    @property
    def text(self) -> str:
        """The text of the last answer, without reasoning and tool calls; empty if there was none. Half characters,
        which cannot be printed, are replaced."""
        parts = self.message.parts if self.message is not None else []
        texts = [part["text"] for part in parts if part.get("type") == "text" and not part.get("synthetic")]
        return without_surrogates("\n\n".join(texts))

    @property
    def structured(self) -> Any:
        """The structured answer to a prompt with a ``format``, valid by its schema; ``None`` if there is none."""
        return None if self.message is None else self.message.info.get("structured")

    @property
    def description(self) -> str:
        """The outcome for a person to read."""
        if self.error is None:
            return self.kind
        failure = read_failure(self.error)
        return getattr(failure, "message", "") or type(failure).__name__

    def event(self, session_id: str, cost: Decimal | None) -> events.PromptEnded:
        """Return the event that ends the events of a prompt."""
        return events.PromptEnded(
            session_id=session_id,
            kind=self.kind,
            text=self.text,
            cost=None if cost is None else float(cost),
            structured=self.structured,
            error=self.error,
        )


class Loop:
    """One run of one session."""

    def __init__(
        self,
        session: Session,
        history: History,
        environment: Environment,
        *,
        new_steps: Callable[[Callable[[StoredMessage], None]], Steps],
        compactions: Compactions,
        set_status: Callable[..., None],
    ) -> None:
        """``new_steps`` makes the steps of the run, given the function that takes prompts which tools store."""
        self.session = session
        self.history = history
        self._environment = environment
        self._settings = environment.settings
        self._session_writer = environment.writer
        self._new_steps = new_steps
        self._steps: Steps | None = None
        self._compactions = compactions
        self._set_status = set_status
        self._detector = LoopDetector(environment.settings.repetition)
        self.inbox: list[StoredMessage] = []
        """Stored prompts, to be answered from the next step on."""
        self._context_ids: set[str] = set()
        """Ids of the prompts that were stored without asking for an answer."""
        self._answer: AnswerWriter | None = None
        self._calls: CallRunner | None = None
        self._outcome = Outcome("answered")
        self._step_count: tuple[str, int] = ("", 0)
        self._is_abort_published = False
        self._asked_again = ""
        """The id of the prompt whose structured answer was asked for once more."""
        self._unstarted = ""
        """The id of the prompt that had no step, since its model or agent does not exist."""
        self._changed_by: list[str] = []
        """Ids of the prompts of this run that changed files."""

    @property
    def has_prompts(self) -> bool:
        """Whether a prompt has arrived that waits for an answer."""
        return any(message.info["id"] not in self._context_ids for message in self.inbox)

    def add_context(self, message: StoredMessage) -> None:
        """Add a stored prompt that asks for no answer to the history of the steps that follow."""
        self._context_ids.add(message.info["id"])
        self.inbox.append(message)

    def withdraw(self, message_id: str) -> bool:
        """Take a pending prompt back; whether it was still pending. A compaction may have read it already."""
        pending = [message for message in self.inbox if message.info["id"] == message_id]
        if not pending or any(message.info["id"] == message_id for message in self.history.messages):
            return False
        self.inbox.remove(pending[0])
        return True

    def drain_inbox(self) -> None:
        """Move pending prompts to the history. Those that were stored during a compaction are in it already."""
        if self.inbox:
            known = {message.info["id"] for message in self.history.messages}
            for message in self.inbox:
                if message.info["id"] not in known:
                    self.history.add(message)
            self.inbox.clear()

    def publish_abort(self, *, announced: bool) -> None:
        """Publish that the answer in progress is aborted before its calls end, as OpenCode does. If it is not to be
        ``announced``, it is published neither now nor at the end."""
        if not announced:
            self._is_abort_published = True
        elif self._calls is not None and self._settings.opencode_events and not self._is_abort_published:
            self._is_abort_published = True
            self._publish_error(MessageAbortedError(message=ABORTED), ends_model_call=True)

    async def run(self) -> Outcome:
        """Run until every prompt is answered. Cancelling this aborts the run."""
        is_followed = self._settings.opencode_events
        async with self._recording_end():
            self.drain_inbox()
            store, known = self._session_writer.sessions.store, frozenset[str]()
            if isinstance(store, SharedSessions):
                stored = await run_in_thread_uncancellable(store.list, ("message", self.session.id))
                known = frozenset(key[-1] for key in stored)
            while (prompt := self.history.unanswered_prompt()) is not None:
                subtask = next_requested_subtask(prompt, self.history.answers)
                if compaction_part(prompt) is not None:
                    await self._compact(prompt)
                elif subtask is None and self._compactions.is_due(prompt.info) and not self._compactions.limit_reached:
                    await self._compactions.request(prompt.info)
                else:
                    await self._step(prompt, subtask)
                if is_followed and self._outcome.kind == "answered":
                    self._set_status({"type": "busy"})
                self.drain_inbox()
                if self.history.unanswered_prompt() is None:
                    await self._finish_prompt()
                    self.drain_inbox()
                elif isinstance(store, SharedSessions) and await self._is_run_elsewhere(store, known):
                    break
        return self._outcome

    async def _is_run_elsewhere(self, store: SharedSessions, known: frozenset[str]) -> bool:
        """Whether another program has added messages, which ends the run: two runners would answer each other's
        prompts. ``known`` are the ids of the messages from before the run."""
        foreign = await run_in_thread_uncancellable(store.foreign_messages, self.session.id, known)
        if foreign:
            failure = UnknownError(
                message=f"another program added {', '.join(foreign)} to this session; stopped after the current step. "
                f"Continue with: opensesh run --session {self.session.id}"
            )
            self._outcome = Outcome("failed", self.history.last_answer, write_failure(failure))
            self._publish_error(failure)
        return bool(foreign)

    async def run_shell(self, prompt: StoredMessage, run: Callable[[AnswerWriter], Awaitable[bool]]) -> Outcome:
        """Record a shell command of the user as the answer to ``prompt``. ``run`` executes it and tells whether it
        ended; cancelling this ends the command."""
        # Only the end of a shell command is published by OpenCode.
        async with self._recording_end(publishes_busy=not self._settings.opencode_events):
            self.history.add(prompt)
            answer = self._answer = self._answer_to(prompt.info)
            await answer.save()
            is_ended = await run(answer)
            await run_uncancellable(answer.finish())
            self.history.add(answer.message)
            self._outcome = Outcome("answered" if is_ended else "aborted", answer.message)
            self._answer = None
        return self._outcome

    # -- steps ---------------------------------------------------------------------------------------------------------

    async def _compact(self, request: StoredMessage) -> None:
        try:
            summary, failure = await self._compactions.run(request)
        except OpenseshError as error:
            await self._fail_before_start(request.info, error)
            return
        self._outcome = Outcome("answered", summary)
        if failure is not None:
            self._outcome = Outcome("failed", summary, write_failure(failure))
            self._publish_error(failure)

    async def _step(self, prompt: StoredMessage, subtask: Document | None) -> None:
        """Run one step: a subtask that the user requested, or a model call with the tool calls that it makes."""
        hooks = self._environment.hooks
        try:
            if hooks.plugins.have_hooks:
                await hooks.authorise_prompt(prompt.info)
            if self._steps is None:
                self._steps = await run_in_thread_uncancellable(self._new_steps, self.inbox.append)
            steps = self._steps
            last_prompt, count = self._step_count
            number = count + 1 if last_prompt == prompt.info["id"] else 1
            step = await steps.next(prompt.info, number)
        except OpenseshError as error:
            await self._fail_before_start(prompt.info, error)
            return
        self._step_count = prompt.info["id"], number
        if not last_prompt and self._settings.opencode_events:
            writer, session_id = self._session_writer, self.session.id
            diff = await run_in_thread_uncancellable(writer.sessions.diff, session_id)
            writer.publish(events.SessionDiff(session_id=session_id, diff=diff))
        model, agent = step.model, step.agent.name
        answer = self._answer = self._session_writer.new_answer(prompt.info, model.provider_id, model.id, agent)
        if subtask is not None:
            await self._run_subtask(steps, step, answer, subtask)
            return
        await answer.save()
        context = steps.call_context(step, answer.info)
        calls = self._calls = CallRunner(answer, step.tools, context, self._detector)
        result = await self._call_model(steps, step, answer, calls)
        await self._finish_step(step, answer, calls, result)

    async def _run_subtask(self, steps: Steps, step: Step, answer: AnswerWriter, subtask: Document) -> None:
        """Run a subtask that the user requested: a call of the task tool that no model made."""
        answer.info |= {"mode": subtask["agent"], "agent": subtask["agent"]}
        answer.info |= object_at(subtask, "model")
        await answer.save()
        context = steps.call_context(step, answer.info, user_requested=True)
        tools = {"task": step.setup.registry.tools["task"]}  # whether or not the model is offered it
        calls = self._calls = CallRunner(answer, tools, context, self._detector)
        part = answer.new_tool_part("task")
        arguments = {
            "prompt": subtask["prompt"],
            "description": subtask["description"],
            "subagent_type": subtask["agent"],
            "command": subtask.get("command"),
        }
        arguments = {name: value for name, value in arguments.items() if value is not None}
        await calls.run(part, ToolCall(part["callID"], "task", arguments))
        answer.info["finish"] = "tool-calls"
        await answer.finish()
        self.history.add(answer.message)
        self._answer = self._calls = None
        if subtask.get("command") and self._settings.opencode_events:
            await run_uncancellable(self._ask_for_result(step.prompt))

    async def _ask_for_result(self, prompt: Document) -> None:
        """Store a prompt to continue with the result of a command's subtask, as OpenCode does."""
        self.history.add(await self._session_writer.add_synthetic_prompt(prompt, [prompt_text("subtask_result")]))

    async def _call_model(self, steps: Steps, step: Step, answer: AnswerWriter, calls: CallRunner) -> ModelCallResult:
        """Make the model call; once more without the part of the history that the provider rejected, if it did."""
        assert step.provider is not None, "a step to run has a provider"  # noqa: S101
        has_masked = False
        while True:
            model_call = ModelCall(answer, calls, self._environment, self._set_status)
            result = await model_call.run(step.provider, await steps.request_after_hooks(step))
            if result.error is None or has_masked:
                return result
            rejected = rejected_part_ids(result.error, self.history)
            if not rejected:
                return result
            has_masked = True
            self.history.mask(rejected, step.model.provider_id)
            record_masked(answer.info, rejected)
            self._publish_error(failure_of(result.error, step.model.provider_id))

    async def _finish_step(self, step: Step, answer: AnswerWriter, calls: CallRunner, result: ModelCallResult) -> None:
        """Complete the answer, then decide: an outcome, or a compaction because the window is full."""
        config, compactions = self._environment.config, self._compactions
        failure = failure_of(result.error, step.model.provider_id) if result.error is not None else None
        if failure is None and step.structured is not None:
            failure = await self._finish_structured(step, step.structured, answer, called=result.called)
        is_blocked = calls.blocked and not config.settings.experimental.continue_loop_on_deny
        is_final = step.is_last or is_blocked or "structured" in answer.info
        if failure is None and is_final and answer.info.get("finish") == "tool-calls":
            record_final(answer.info, keep_finish=self._settings.opencode_events)
        is_full = isinstance(result.error, ContextExceededError) and compactions.auto_enabled
        published = failure if self._settings.opencode_events and result.error is not None and not is_full else None
        if published is not None:  # the end of the call comes before that of the answer
            self._publish_error(published, ends_model_call=True)
        await calls.abort_open()
        await answer.finish(failure)
        self.history.add(answer.message)
        self._changed_by += [step.prompt["id"] for part in answer.message.parts if part["type"] == "patch"]
        self._answer = self._calls = None
        if is_full:
            request = step.request()
            if not compactions.limit_reached and not overhead_exceeds_window(request, config):
                await compactions.request(step.prompt)
                return
            failure = window_overflow_error(request, config)
        elif failure is None and compactions.note_step(step.prompt):
            self._publish_error(window_overflow_error(step.request(), config))
        if failure is None:
            self._outcome = Outcome("blocked" if is_blocked else "answered", answer.message)
        else:
            self._outcome = Outcome("failed", answer.message, write_failure(failure))
            if published is None and not (
                isinstance(failure, StructuredOutputError) and self._settings.opencode_events
            ):
                self._publish_error(failure, ends_model_call=result.error is not None)

    async def _finish_structured(
        self, step: Step, structured: StructuredOutput, answer: AnswerWriter, *, called: bool
    ) -> Failure | None:
        """Add the structured value to the answer. A model that gave none, or one that does not fit the schema, is asked
        once more; then the error is returned."""
        if structured.was_called:
            answer.info["structured"] = structured.value
            return None
        if called and not structured.problem and not step.is_last:
            return None
        follows_opencode, prompt_id = self._settings.opencode_events, step.prompt["id"]
        if self._asked_again != prompt_id and not step.is_last and (structured.problem or not follows_opencode):
            self._asked_again = prompt_id
            if not called:
                answer.info["finish"] = "unknown"  # so that another step follows, also after a crash
            return None
        if follows_opencode:
            await answer.finish()  # OpenCode's clients see it completed first, then with the error
        reason = f"its answer does not fit the schema: {structured.problem}" if structured.problem else "it gave none"
        return StructuredOutputError(
            message=f"the model answered without the structure it was asked for: {reason}",
            retries=int(self._asked_again == prompt_id),
        )

    # -- ends ----------------------------------------------------------------------------------------------------------

    async def _finish_prompt(self) -> None:
        """Record what the run changed, prune, and schedule a cleanup. An abort ends only this, since the prompts have
        their answers, unless another prompt has arrived."""
        from ..workspace.tidying import tidy_in_background

        writer, messages = self._session_writer, list(self.history.messages)
        prompt = self.history.last_prompt
        has_changes = any(part.get("type") == "patch" for message in messages for part in message.parts)

        def record() -> None:
            if prompt is not None and has_changes:
                prompts = [*dict.fromkeys((*self._changed_by, prompt.info["id"]))]
                snapshots = self._environment.snapshots
                summarize(writer.sessions, snapshots, self.session.id, *prompts, publish=writer.publish)
            elif (
                prompt is not None
                and prompt.info["id"] != self._unstarted
                and not writer.sessions.diff(self.session.id)
            ):
                # OpenCode cannot share a session without a list of changed files, even if it is empty.
                record_no_changes(writer.sessions, self.session.id, prompt.info["id"], publish=writer.publish)
            if self._environment.config.settings.compaction.prune:
                prune(writer.sessions, messages)
            tidy_in_background(writer.sessions)

        try:
            await run_in_thread_uncancellable(record)
        except asyncio.CancelledError:
            self.drain_inbox()
            if self.history.unanswered_prompt() is not None:
                raise
        except OpenseshError as error:
            log.warning("the changes of %s could not be recorded: %s", self.session.id, error)
        except Exception:  # the answer stays as it is
            log.exception("the changes of %s could not be recorded", self.session.id)

    @asynccontextmanager
    async def _recording_end(self, *, publishes_busy: bool = True) -> AsyncGenerator[None]:
        """Set the session's status. If the body is cancelled or fails, close what is open and record why; a further
        cancellation has no effect."""
        kind: Literal["aborted", "failed"]
        self._set_status({"type": "busy"}, is_published=publishes_busy)
        try:
            yield
        except asyncio.CancelledError:
            kind, failure = "aborted", MessageAbortedError(message=ABORTED)
        except Exception as error:
            log.exception("the run of %s failed", self.session.id)
            kind, failure = "failed", failure_of(error, "")
        else:
            return
        self._outcome = Outcome(kind, self.history.last_answer, write_failure(failure))
        if not self._is_abort_published:
            self._publish_error(failure, ends_model_call=self._answer is not None)
        self._is_abort_published = False

        async def record() -> None:
            try:
                if self._answer is not None:
                    if self._calls is not None:
                        await self._calls.abort_open()
                    await self._answer.finish(failure)
                    self.history.add(self._answer.message)
                    self._outcome = Outcome(kind, self._answer.message, write_failure(failure))
                    self._answer = self._calls = None
                self.drain_inbox()
                prompt = self.history.unanswered_prompt()
                if prompt is not None and prompt.info["id"] not in self._context_ids:
                    await self._answer_with(kind, prompt.info, failure)
            except OpenseshError as error:
                log.error("the end of the run of %s could not be stored: %s", self.session.id, error)  # noqa: TRY400

        with suppress(asyncio.CancelledError):
            await run_uncancellable(record())

    async def _fail_before_start(self, prompt: Document, error: OpenseshError) -> None:
        """Record as the answer that the model, the agent or the key does not exist."""
        self._unstarted = prompt["id"]
        failure = failure_of(error, str(object_at(prompt, "model").get("providerID", "")))
        await self._answer_with("failed", prompt, failure)
        self._publish_error(failure)

    async def _answer_with(self, kind: Literal["aborted", "failed"], prompt: Document, failure: Failure) -> None:
        """Store an answer that only has an error."""
        answer = self._answer_to(prompt)
        await answer.finish(failure)
        self.history.add(answer.message)
        self._outcome = Outcome(kind, answer.message, write_failure(failure))

    def _answer_to(self, prompt: Document) -> AnswerWriter:
        """Return a writer for an answer that no model gives. It names the model and the agent of the prompt."""
        model = object_at(prompt, "model")
        provider_id, model_id = str(model.get("providerID", "")), str(model.get("modelID", ""))
        return self._session_writer.new_answer(prompt, provider_id, model_id, str(prompt.get("agent")))

    def _publish_error(self, failure: Failure, *, ends_model_call: bool = False) -> None:
        """Publish an error. OpenCode publishes the end of a failed model call, and that of the run."""
        error = events.SessionError(session_id=self.session.id, error=write_failure(failure))
        self._session_writer.publish(error)
        if ends_model_call and self._settings.opencode_events:
            self._session_writer.publish_idle(self.session.id)
