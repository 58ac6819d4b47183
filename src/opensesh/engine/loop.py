"""From a prompt to its outcome: why there is a next model call.

One loop runs one session, under its lease, until its newest prompt has an outcome. Prompts that arrive meanwhile are
added to the history between two steps. The loop always ends with an outcome, and the records say the same.
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress
from typing import TYPE_CHECKING, Literal, NamedTuple

from .. import events
from ..errors import ContextExceededError, OpenseshError
from ..records import MessageAbortedError, StructuredOutputError, as_object, read_failure, write_failure
from .cancellation import run_in_thread_uncancellable, run_uncancellable
from .compaction import overhead_exceeds_window, window_overflow_error
from .context_window import compaction_part, prune
from .model_errors import failure_of
from .session_history import record_masked, rejected_part_ids
from .subtasks import next_requested_subtask, run_subtask
from .tool_calls import CallRunner, LoopDetector
from .turn import StepFiles, Turn, TurnResult

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from ..config import Config
    from ..records import Document, Failure, Session
    from ..storage.protocol import StoredMessage
    from ..workspace import Snapshots
    from .compaction import Compactions
    from .components import Settings
    from .plugin_hooks import PluginHooks
    from .runs import Status
    from .session_history import History
    from .session_writer import AnswerWriter, SessionWriter
    from .step import Planner, Step

log = logging.getLogger("opensesh.engine")
ABORTED = "The user stopped this"


class Outcome(NamedTuple):
    """How a prompt ended."""

    kind: Literal["answered", "failed", "aborted", "blocked"]
    """``blocked``: the user rejected something that the model wanted to do."""
    message: StoredMessage | None = None
    """The last answer, if there was any."""
    error: Document | None = None

    @property
    def text(self) -> str:
        """The text of the last answer, without reasoning and tool calls; empty if there was none."""
        parts = self.message.parts if self.message is not None else []
        return "\n\n".join(part["text"] for part in parts if part.get("type") == "text" and not part.get("synthetic"))

    @property
    def description(self) -> str:
        """The outcome for a person to read."""
        if self.error is None:
            return self.kind
        failure = read_failure(self.error)
        return getattr(failure, "message", "") or type(failure).__name__


class LoopServices(NamedTuple):
    """What the loops of all sessions need."""

    writer: SessionWriter
    hooks: PluginHooks
    snapshots: Snapshots
    config: Config
    settings: Settings


class Loop:
    """One run of one session."""

    def __init__(
        self,
        session: Session,
        history: History,
        services: LoopServices,
        *,
        new_planner: Callable[[Callable[[StoredMessage], None]], Planner],
        compactions: Compactions,
        status: Status,
    ) -> None:
        """``new_planner`` makes the planner of the run, given the function that takes prompts which tools store."""
        self.session = session
        self.history = history
        self._session_writer = services.writer
        self._new_planner = new_planner
        self._planner: Planner | None = None
        self._compactions = compactions
        self._status = status
        self._hooks = services.hooks
        self._snapshots = services.snapshots
        self._config = services.config
        self._settings = services.settings
        self._detector = LoopDetector(services.settings.repetition)
        self._inbox: list[StoredMessage] = []
        self._answer: AnswerWriter | None = None
        self._calls: CallRunner | None = None
        self._outcome = Outcome("answered")
        self._step_count: tuple[str, int] = ("", 0)
        self._changed_by: list[str] = []
        """Ids of the prompts of this run that changed files."""

    def enqueue(self, message: StoredMessage) -> None:
        """Add a stored prompt, to be answered from the next step on."""
        self._inbox.append(message)

    @property
    def has_pending_prompts(self) -> bool:
        """Whether a prompt was added since the last step."""
        return bool(self._inbox)

    def drain_inbox(self) -> None:
        """Move pending prompts to the history. Those that were stored during a compaction are in it already."""
        known = {message.info["id"] for message in self.history} if self._inbox else ()
        for message in self._inbox:
            if message.info["id"] not in known:
                self.history.add(message)
        self._inbox.clear()

    async def run(self) -> Outcome:
        """Run until every prompt is answered. Cancelling this aborts the run."""
        self._status.set_busy()
        try:
            self.drain_inbox()
            while self.history.has_unanswered_prompt:
                await self._next()
                self.drain_inbox()
                if not self.history.has_unanswered_prompt:
                    await self._finish_prompt()
                    self.drain_inbox()
        except asyncio.CancelledError:
            await self._end_with("aborted", MessageAbortedError(message=ABORTED))
        except Exception as error:
            log.exception("the run of %s failed", self.session.id)
            await self._end_with("failed", failure_of(error, ""))
        return self._outcome

    async def run_shell(self, prompt: StoredMessage, run: Callable[[AnswerWriter], Awaitable[bool]]) -> Outcome:
        """Record a shell command of the user as the answer to ``prompt``. ``run`` executes it and tells whether it
        ended; cancelling this ends the command."""
        self._status.set_busy()
        self.history.add(prompt)
        try:
            model = as_object(prompt.info.get("model")) or {}
            provider_id, model_id = str(model.get("providerID")), str(model.get("modelID"))
            agent = str(prompt.info.get("agent"))
            answer = self._answer = self._session_writer.new_answer(prompt.info, provider_id, model_id, agent)
            await answer.save()
            is_ended = await run(answer)
            await run_uncancellable(answer.finish())
            self.history.add(answer.message)
            self._outcome = Outcome("answered" if is_ended else "aborted", answer.message)
            self._answer = None
        except asyncio.CancelledError:
            await self._end_with("aborted", MessageAbortedError(message=ABORTED))
        except Exception as error:
            log.exception("the command of %s failed", self.session.id)
            await self._end_with("failed", failure_of(error, ""))
        return self._outcome

    # -- steps ---------------------------------------------------------------------------------------------------------

    async def _next(self) -> None:
        """Do what comes next: a compaction, a subtask that the user requested, or a step."""
        prompt = self.history.last_user()
        if prompt is None:
            return
        subtask = next_requested_subtask(prompt, self.history.answers)
        if compaction_part(prompt) is not None:
            await self._compact(prompt)
        elif subtask is None and self._compactions.is_due(prompt.info) and not self._compactions.limit_reached:
            await self._compactions.request(prompt.info)
        else:
            await self._step(prompt, subtask)

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
        try:
            await self._hooks.authorise_prompt(prompt.info)
            if self._planner is None:
                self._planner = await run_in_thread_uncancellable(self._new_planner, self.enqueue)
            await self._planner.prepare(prompt.info)
            last_prompt, count = self._step_count
            self._step_count = prompt.info["id"], count + 1 if last_prompt == prompt.info["id"] else 1
            step = self._planner.step(prompt.info, self._step_count[1])
        except OpenseshError as error:
            await self._fail_before_start(prompt.info, error)
            return
        model, agent = step.model, step.agent.name
        answer = self._answer = self._session_writer.new_answer(prompt.info, model.provider_id, model.id, agent)
        if subtask is not None:
            await self._run_subtask(self._planner, step, answer, subtask)
            return
        await answer.save()
        contexts = self._planner.call_contexts(step, answer.info)
        calls = self._calls = CallRunner(answer, step.tools, contexts, self._detector, self._hooks)
        await self._finish_step(step, answer, calls, await self._call_model(step, answer, calls))

    async def _run_subtask(self, planner: Planner, step: Step, answer: AnswerWriter, subtask: Document) -> None:
        """Run a subtask that the user requested: a call of the task tool that no model made."""
        answer.info |= {"mode": subtask["agent"], "agent": subtask["agent"], "finish": "tool-calls"}
        answer.info |= as_object(subtask.get("model")) or {}
        await answer.save()
        contexts = planner.call_contexts(step, answer.info, user_requested=True)
        tools = {"task": planner.builtin_tool("task")}  # whether or not the model is offered it
        self._calls = CallRunner(answer, tools, contexts, self._detector, self._hooks)
        part = answer.new_tool_part("task")
        await answer.put(part)
        await run_subtask(self._calls, subtask, part)
        await answer.finish()
        self.history.add(answer.message)
        self._answer = self._calls = None

    async def _call_model(self, step: Step, answer: AnswerWriter, calls: CallRunner) -> TurnResult:
        """Make the model call; once more without the part of the history that the provider rejected, if it did."""
        result = await self._turn(step, answer, calls)
        rejected = rejected_part_ids(result.error, self.history) if result.error is not None else []
        if rejected and result.error is not None:
            self.history.mask(rejected, step.model.provider_id)
            record_masked(answer.info, rejected)
            self._publish_error(failure_of(result.error, step.model.provider_id))
            result = await self._turn(step, answer, calls)
        return result

    async def _turn(self, step: Step, answer: AnswerWriter, calls: CallRunner) -> TurnResult:
        settings = self._settings
        turn = Turn(
            answer,
            calls,
            retry=settings.retry,
            status=self._status,
            files=StepFiles(self._snapshots, settings.snapshot_timeout_seconds),
            sleep=settings.sleep,
            complete_text=self._hooks.text,
        )
        assert self._planner is not None  # noqa: S101
        assert step.provider is not None, "a step to run has a provider"  # noqa: S101
        return await turn.run(step.provider, await self._planner.request_after_hooks(step))

    async def _finish_step(self, step: Step, answer: AnswerWriter, calls: CallRunner, result: TurnResult) -> None:
        failure = self._failure(step, result, answer)
        is_blocked = calls.blocked and not self._config.settings.experimental.continue_loop_on_deny
        if failure is None and (step.is_last or is_blocked) and answer.info.get("finish") == "tool-calls":
            answer.info["finish"] = "stop"  # no next step will see the results
        await calls.abort_open()
        await answer.finish(failure)
        self.history.add(answer.message)
        if any(part["type"] == "patch" for part in answer.message.parts):
            self._changed_by.append(step.prompt["id"])
        self._answer = self._calls = None
        compactions = self._compactions
        if isinstance(result.error, ContextExceededError) and compactions.auto_enabled:
            request = step.request()
            if not compactions.limit_reached and not overhead_exceeds_window(request, self._config):
                await compactions.request(step.prompt)
                return
            failure = window_overflow_error(request, self._config)
        elif failure is None:
            compactions.step_succeeded()
            if compactions.should_report_overflow(step.prompt):
                self._publish_error(window_overflow_error(step.request(), self._config))
        if failure is not None:
            self._outcome = Outcome("failed", answer.message, write_failure(failure))
            self._publish_error(failure)
        else:
            self._outcome = Outcome("blocked" if is_blocked else "answered", answer.message)

    def _failure(self, step: Step, result: TurnResult, answer: AnswerWriter) -> Failure | None:
        """Return what is wrong with an answer. A structured output is added to its record."""
        if result.error is not None:
            return failure_of(result.error, step.model.provider_id)
        if step.structured is None:
            return None
        if step.structured.was_called:
            answer.info |= {"structured": step.structured.value, "finish": "stop"}
        elif step.is_last or not result.called:
            return StructuredOutputError(message="the model answered without the structure it was asked for")
        return None

    # -- ends ----------------------------------------------------------------------------------------------------------

    async def _finish_prompt(self) -> None:
        """Record what the run changed, prune, and schedule a cleanup. An abort ends only this, since the prompts have
        their answers, unless another prompt has arrived."""
        try:
            await run_in_thread_uncancellable(self._summarise_changes)
            if self._config.settings.compaction.prune:
                await run_in_thread_uncancellable(prune, self._session_writer.sessions, list(self.history))
            from ..workspace import tidy_in_background

            await run_in_thread_uncancellable(tidy_in_background, self._session_writer.sessions)
        except asyncio.CancelledError:
            self.drain_inbox()
            if self.history.has_unanswered_prompt:
                raise
        except OpenseshError as error:
            log.warning("the changes of %s could not be recorded: %s", self.session.id, error)
        except Exception:  # the answer stays as it is
            log.exception("the changes of %s could not be recorded", self.session.id)

    def _summarise_changes(self) -> None:
        """Record the file changes of the session and of each prompt of this run, if there are any."""
        from ..workspace import summarize

        prompt = self.history.last_user()
        if prompt is not None and any(
            part.get("type") == "patch" for message in self.history for part in message.parts
        ):
            writer = self._session_writer
            prompts = [*dict.fromkeys((*self._changed_by, prompt.info["id"]))]
            summarize(writer.sessions, self._snapshots, self.session.id, *prompts, publish=writer.publish)

    async def _end_with(self, kind: Literal["aborted", "failed"], failure: Failure) -> None:
        """Close what is open and record why. A further cancellation has no effect."""
        self._outcome = Outcome(kind, self.history.last_assistant(), write_failure(failure))
        self._publish_error(failure)
        with suppress(asyncio.CancelledError):
            await run_uncancellable(self._record_end(kind, failure))

    async def _record_end(self, kind: Literal["aborted", "failed"], failure: Failure) -> None:
        try:
            if self._answer is not None:
                if self._calls is not None:
                    await self._calls.abort_open()
                await self._answer.finish(failure)
                self.history.add(self._answer.message)
                self._outcome = Outcome(kind, self._answer.message, write_failure(failure))
                self._answer = self._calls = None
            self.drain_inbox()
            prompt = self.history.last_user()
            if prompt is not None and self.history.has_unanswered_prompt:
                await self._answer_with(kind, prompt.info, failure)
        except OpenseshError as error:
            log.error("the end of the run of %s could not be stored: %s", self.session.id, error)  # noqa: TRY400

    async def _fail_before_start(self, prompt: Document, error: OpenseshError) -> None:
        """Record as the answer that the model, the agent or the key does not exist."""
        failure = failure_of(error, str((as_object(prompt.get("model")) or {}).get("providerID", "")))
        await self._answer_with("failed", prompt, failure)
        self._publish_error(failure)

    async def _answer_with(self, kind: Literal["aborted", "failed"], prompt: Document, failure: Failure) -> None:
        """Store an answer that only has an error."""
        model = as_object(prompt.get("model")) or {}
        provider_id, model_id = str(model.get("providerID", "")), str(model.get("modelID", ""))
        answer = self._session_writer.new_answer(prompt, provider_id, model_id, str(prompt.get("agent")))
        await answer.finish(failure)
        self.history.add(answer.message)
        self._outcome = Outcome(kind, answer.message, write_failure(failure))

    def _publish_error(self, failure: Failure) -> None:
        error = events.SessionError(session_id=self.session.id, error=write_failure(failure))
        self._session_writer.publish(error)
