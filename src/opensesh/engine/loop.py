"""From a prompt to its outcome: why there is a next model call.

One loop runs one session, under its lease, until its newest prompt has an outcome. Prompts that arrive meanwhile are
taken in between two steps. Whatever happens, the loop ends with an outcome, and the records say the same.
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress
from typing import TYPE_CHECKING, Literal, NamedTuple

from .. import events, ids
from ..errors import ContextExceededError, OpenseshError
from ..records import (
    AssistantMessage,
    MessageAbortedError,
    MessageTime,
    Path,
    StructuredOutputError,
    Tokens,
    as_object,
    read_failure,
    write_failure,
)
from .answer_writer import AnswerWriter
from .calls import CallRunner
from .cancellation import run_in_thread_uncancellable, run_uncancellable
from .failures import failure_of
from .masking import note, suspects
from .overflow import Compactions, is_hopeless, too_full
from .pruning import prune
from .repetition import LoopDetector
from .shell import run_for_user
from .step import Step, Steps
from .stepfiles import StepFiles
from .subtasks import ordered_subtask, run_subtask
from .turn import Ended, Turn
from .window import compaction_part

if TYPE_CHECKING:
    from ..models.model import Model
    from ..records import Document, Failure, Session
    from ..storage.protocol import StoredMessage
    from ..tools.filetimes import FileTimes
    from .components import Runtime
    from .session_history import History

log = logging.getLogger("opensesh.engine")
ABORTED = "The user stopped this"


class Outcome(NamedTuple):
    """What became of a prompt."""

    kind: Literal["answered", "failed", "aborted", "blocked"]
    """``blocked``: the user refused something that the model wanted to do."""
    message: StoredMessage | None = None
    """The last answer, if there was any."""
    error: Document | None = None

    @property
    def text(self) -> str:
        """What the last answer says, without reasoning and tools; empty if there was none."""
        parts = self.message.parts if self.message is not None else []
        return "\n\n".join(part["text"] for part in parts if part.get("type") == "text" and not part.get("synthetic"))

    @property
    def description(self) -> str:
        """The outcome for a person."""
        if self.error is None:
            return self.kind
        failure = read_failure(self.error)
        return getattr(failure, "message", "") or type(failure).__name__


class Loop:
    """One run of one session."""

    def __init__(self, runtime: Runtime, session: Session, history: History, files: FileTimes) -> None:
        self.session = session
        self.history = history
        self._runtime = runtime
        self._files = files
        self._steps: Steps | None = None
        self._status = runtime.statuses.of(session.id)
        self._inbox: list[StoredMessage] = []
        self._repetition = LoopDetector(runtime.settings.repetition)
        self._compactions = Compactions(runtime, session, history)
        self._writer: AnswerWriter | None = None
        self._calls: CallRunner | None = None
        self._outcome = Outcome("answered")
        self._step_of: tuple[str, int] = ("", 0)
        self._changed_by: list[str] = []
        """The prompts of this run that changed files."""

    def queue(self, message: StoredMessage) -> None:
        """Take in a prompt that is stored, before the next step."""
        self._inbox.append(message)

    @property
    def has_mail(self) -> bool:
        """Whether a prompt came that was not taken in."""
        return bool(self._inbox)

    def has_work(self) -> bool:
        """Whether the newest prompt is still to be answered."""
        self._take_in()
        return self.history.last_user() is not None and not self.history.is_answered

    async def run(self) -> Outcome:
        """Run until there is nothing left to answer. Cancelling this is how a run is aborted."""
        self._status.busy()
        try:
            while self.has_work():
                await self._next()
                if not self.has_work():
                    await self._tidy()
        except asyncio.CancelledError:
            await self._break_off("aborted", MessageAbortedError(message=ABORTED))
        except Exception as error:
            log.exception("the run of %s broke off", self.session.id)
            await self._break_off("failed", failure_of(error, ""))
        return self._outcome

    async def shell(self, prompt: StoredMessage, command: str) -> Outcome:
        """Run a command of the user's, on record as the answer to ``prompt``. Cancelling this ends the command."""
        self._status.busy()
        self.history.add(prompt)
        try:
            model, agent = as_object(prompt.info.get("model")) or {}, str(prompt.info.get("agent"))
            info = self._answer(prompt.info, str(model.get("providerID")), str(model.get("modelID")), agent)
            self._writer = AnswerWriter(self._runtime.sessions, info, self._runtime.publish)
            await self._writer.save()
            ended = await run_for_user(self._runtime, self._writer, command)
            await run_uncancellable(self._writer.finish())
            self.history.add(self._writer.message)
            self._outcome = Outcome("answered" if ended else "aborted", self._writer.message)
            self._writer = None
        except asyncio.CancelledError:
            await self._break_off("aborted", MessageAbortedError(message=ABORTED))
        except Exception as error:
            log.exception("the command of %s broke off", self.session.id)
            await self._break_off("failed", failure_of(error, ""))
        return self._outcome

    async def _planner(self) -> Steps:
        if self._steps is None:
            self._steps = await run_in_thread_uncancellable(
                Steps, self._runtime, self.session, self.history, self._files, self.queue
            )
        return self._steps

    async def _tidy(self) -> None:
        """Note what changed, and prune if that is wanted; prompts that come meanwhile are taken in after it. An abort
        ends this alone, unless there is such a prompt: the others have their answer."""
        try:
            await run_in_thread_uncancellable(self._note_changes)
            if self._runtime.config.settings.compaction.prune:
                await run_in_thread_uncancellable(prune, self._runtime.sessions, list(self.history))
            await run_in_thread_uncancellable(self._give_back)
        except asyncio.CancelledError:
            if self.has_work():
                raise
        except OpenseshError as error:
            log.warning("%s could not be tidied: %s", self.session.id, error)
        except Exception:  # the prompt has its answer, and keeps it
            log.exception("%s could not be tidied", self.session.id)

    def _note_changes(self) -> None:
        """What the session, and each prompt of this run, changed. One that touched no file has nothing to note."""
        from ..workspace import summarize

        prompt = self.history.last_user()
        if prompt is not None and any(part.get("type") == "patch" for each in self.history for part in each.parts):
            runtime = self._runtime
            prompts = [*dict.fromkeys((*self._changed_by, prompt.info["id"]))]
            summarize(runtime.sessions, runtime.snapshots, self.session.id, *prompts, publish=runtime.publish)

    def _give_back(self) -> None:
        """Have what no session needs any more tidied away now and then; nobody waits for that."""
        from ..workspace import tidy_in_background

        tidy_in_background(self._runtime.sessions)

    def _take_in(self) -> None:
        """Add the prompts that came; those that were stored while the session was summed up are in the new view
        already."""
        known = {message.info["id"] for message in self.history} if self._inbox else ()
        for message in self._inbox:
            if message.info["id"] not in known:
                self.history.add(message)
        self._inbox.clear()

    def _count(self, user: Document) -> int:
        """How many steps this prompt has had, with the one that begins."""
        prompt, steps = self._step_of
        self._step_of = user["id"], steps + 1 if prompt == user["id"] else 1
        return self._step_of[1]

    async def _next(self) -> None:
        """Whatever comes next: a subtask that the user ordered, a compaction, or a step."""
        user = self.history.last_user()
        if user is None:
            return
        subtask = ordered_subtask(user, self.history.answers)
        if compaction_part(user) is not None:
            await self._compact(user)
        elif subtask is None and self._compactions.is_due(user.info) and not self._compactions.in_vain:
            await self._compactions.request(user.info)
        else:
            await self._step(user, subtask)

    async def _compact(self, request: StoredMessage) -> None:
        try:
            summary, failure = await self._compactions.run(request)
        except OpenseshError as error:
            await self._cannot_begin(request.info, error)
            return
        self._outcome = Outcome("answered", summary)
        if failure is not None:
            self._outcome = Outcome("failed", summary, write_failure(failure))
            self._tell(failure)

    async def _step(self, user: StoredMessage, subtask: Document | None) -> None:
        try:
            await self._runtime.hooks.authorise_for(user.info)
            steps = await self._planner()
            await steps.prepare(user.info)
            plan = steps.plan(user.info, self._count(user.info))
        except OpenseshError as error:
            await self._cannot_begin(user.info, error)
            return
        if subtask is not None:
            await self._subtask(plan, user.info, subtask)
            return
        self._writer = AnswerWriter(self._runtime.sessions, self._new_answer(user.info, plan), self._runtime.publish)
        await self._writer.save()
        around = plan.surroundings(self._writer.info)
        self._calls = CallRunner(self._writer, plan.tools, around, self._repetition)
        ended = await self._ask(plan, self._writer, self._calls)
        await self._conclude(plan, ended)

    async def _subtask(self, plan: Step, user: Document, part: Document) -> None:
        """A subtask that the user ordered: a call of the task tool that nobody's model made."""
        self._writer = AnswerWriter(self._runtime.sessions, self._new_answer(user, plan), self._runtime.publish)
        self._writer.info |= {"mode": part["agent"], "agent": part["agent"], "finish": "tool-calls"}
        self._writer.info |= as_object(part.get("model")) or {}
        await self._writer.save()
        around = plan.surroundings(self._writer.info, ordered=True)
        self._calls = CallRunner(self._writer, plan.ordered(), around, self._repetition)
        call = self._writer.new_call("task")
        await self._writer.put(call)
        await run_subtask(self._calls, part, call)
        await self._writer.finish()
        self.history.add(self._writer.message)
        self._writer = self._calls = None

    async def _ask(self, plan: Step, writer: AnswerWriter, calls: CallRunner) -> Ended:
        """The model call; once more without the part of the history that the provider would not take."""
        ended = await self._turn(writer, calls).run(plan.provider, await plan.shaped())
        refused = suspects(ended.error, self.history) if ended.error is not None else []
        if refused and ended.error is not None:
            self.history.mask(refused, plan.model.provider_id)
            note(writer.info, refused)
            told = failure_of(ended.error, plan.model.provider_id)
            self._tell(told)
            ended = await self._turn(writer, calls).run(plan.provider, await plan.shaped())
        return ended

    def _turn(self, writer: AnswerWriter, calls: CallRunner) -> Turn:
        return Turn(
            writer,
            calls,
            policy=self._runtime.settings.retry,
            status=self._status,
            files=StepFiles(self._runtime.snapshots),
            sleep=self._runtime.settings.sleep,
            complete=self._runtime.hooks.text,
        )

    async def _conclude(self, plan: Step, ended: Ended) -> None:
        writer, calls = self._writer, self._calls
        if writer is None or calls is None:
            return
        failure = self._failure(plan, ended, writer)
        if failure is None and (plan.is_last or self._stops(calls)) and writer.info.get("finish") == "tool-calls":
            writer.info["finish"] = "stop"  # whatever the model wanted, there is no next step
        await calls.abort_open()
        await writer.finish(failure)
        self.history.add(writer.message)
        if any(part["type"] == "patch" for part in writer.message.parts):
            self._changed_by.append(plan.user["id"])
        self._writer = self._calls = None
        overflow = isinstance(ended.error, ContextExceededError) and self._compactions.are_wanted
        if overflow and not self._compactions.in_vain and not is_hopeless(plan.request(), self._runtime):
            await self._compactions.request(plan.user)
            return
        if overflow:
            failure = too_full(plan.request(), self._runtime)
        elif failure is None:
            self._compactions.step_worked()
            if self._compactions.first_complaint(plan.user):
                self._tell(too_full(plan.request(), self._runtime))
        self._outcome = self._judge(writer, failure, blocked=self._stops(calls))
        if failure is not None:
            self._tell(failure)

    def _failure(self, plan: Step, ended: Ended, writer: AnswerWriter) -> Failure | None:
        """What is wrong with an answer; a structure that was asked for, and given, is put on record."""
        if ended.error is not None:
            return failure_of(ended.error, plan.model.provider_id)
        if plan.structured is None:
            return None
        if plan.structured.given:
            writer.info |= {"structured": plan.structured.value, "finish": "stop"}
        elif plan.is_last or not ended.called:
            return StructuredOutputError(message="the model answered without the structure it was asked for")
        return None

    def _judge(self, writer: AnswerWriter, failure: Failure | None, *, blocked: bool) -> Outcome:
        if failure is not None:
            return Outcome("failed", writer.message, write_failure(failure))
        return Outcome("blocked" if blocked else "answered", writer.message)

    def _stops(self, calls: CallRunner) -> bool:
        return calls.blocked and not self._runtime.config.settings.experimental.continue_loop_on_deny

    async def _break_off(self, kind: Literal["aborted", "failed"], failure: Failure) -> None:
        """Bring what is open to an end and say why in the record; whoever cancels this once more is not heard."""
        self._outcome = Outcome(kind, self.history.last_assistant(), write_failure(failure))
        self._tell(failure)
        with suppress(asyncio.CancelledError):
            await run_uncancellable(self._record_end(kind, failure))

    async def _record_end(self, kind: Literal["aborted", "failed"], failure: Failure) -> None:
        try:
            if self._writer is not None:
                if self._calls is not None:
                    await self._calls.abort_open()
                await self._writer.finish(failure)
                self.history.add(self._writer.message)
                self._outcome = Outcome(kind, self._writer.message, write_failure(failure))
                self._writer = self._calls = None
            if self.has_work() and (prompt := self.history.last_user()) is not None:
                await self._answer_with(kind, prompt.info, failure)
        except OpenseshError as error:
            log.error("how the run of %s ended could not be stored: %s", self.session.id, error)  # noqa: TRY400

    async def _cannot_begin(self, user: Document, error: OpenseshError) -> None:
        """There is no such model, agent or key: that is the answer, and it is recorded as one."""
        failure = failure_of(error, str((as_object(user.get("model")) or {}).get("providerID", "")))
        await self._answer_with("failed", user, failure)
        self._tell(failure)

    async def _answer_with(self, kind: Literal["aborted", "failed"], user: Document, failure: Failure) -> None:
        """An answer that says nothing but why there is none."""
        model = as_object(user.get("model")) or {}
        provider = str(model.get("providerID", ""))
        info = self._answer(user, provider, str(model.get("modelID", "")), str(user.get("agent")))
        writer = AnswerWriter(self._runtime.sessions, info, self._runtime.publish)
        await writer.finish(failure)
        self.history.add(writer.message)
        self._outcome = Outcome(kind, writer.message, write_failure(failure))

    def _tell(self, failure: Failure) -> None:
        self._runtime.publish(events.SessionError(session_id=self.session.id, error=write_failure(failure)))

    def _new_answer(self, user: Document, plan: Step) -> Document:
        model: Model = plan.model
        return self._answer(user, model.provider_id, model.id, plan.agent.name)

    def _answer(self, user: Document, provider_id: str, model_id: str, agent: str) -> Document:
        place = self._runtime.place
        return AssistantMessage(
            id=ids.ascending("msg"),
            session_id=self.session.id,
            time=MessageTime(created=ids.now_ms()),
            parent_id=user["id"],
            model_id=model_id,
            provider_id=provider_id,
            mode=agent,
            agent=agent,
            path=Path(cwd=place.directory, root=place.sandbox),
            tokens=Tokens(),
            variant=user.get("variant"),
        ).document
