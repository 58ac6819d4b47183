"""Requests to the user: questions of the model, and the callbacks that answer questions and permission requests.

The callbacks of an engine are called one at a time, in the order of the requests. A request that is answered in another
way meanwhile (by a rule that an answer made, by another client, or because the run ended) cancels its callback.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import TYPE_CHECKING

from .. import events, ids
from ..containment import ends_task
from ..errors import NotFoundError, PermissionCorrectedError, PermissionRejectedError, QuestionRejectedError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..bus import Bus, Envelope
    from ..permissions import Answer, Permissions
    from ..records import Document
    from .settings import Settings

    PermissionCallback = Callable[[events.PermissionAsked], Awaitable[Answer] | Answer]
    """Returns ``once``, ``always`` or ``reject``, or raises :class:`PermissionCorrectedError` with what to do
    instead."""

QuestionCallback = Callable[[events.QuestionAsked], Awaitable[list[list[str]] | None] | list[list[str]] | None]
"""Returns the labels chosen, a list for each question; ``None`` if there will be no answer."""

log = logging.getLogger("opensesh.engine")
_ANSWERS = ("once", "always", "reject")


class Questions:
    """The questions that wait for an answer, of all sessions. They are kept in memory while their calls wait."""

    def __init__(self, publish: events.Publish, *, before_start: bool = False) -> None:
        self._publish = publish
        self.before_start = before_start
        """Whether questions are published before their call is stored as running, as OpenCode does."""
        self._pending: dict[str, tuple[events.QuestionAsked, asyncio.Future[list[list[str]]]]] = {}

    @property
    def pending(self) -> list[Document]:
        """The requests that wait for an answer, oldest first, as OpenCode's API lists them."""
        return [request.properties for request, _ in self._pending.values()]

    async def ask(
        self,
        session_id: str,
        questions: Sequence[Document],
        tool: Document | None = None,
        on_asked: Callable[[], Awaitable[None]] | None = None,
    ) -> list[list[str]]:
        """Ask, await ``on_asked``, and wait for the answer. Raises :class:`QuestionRejectedError` if the user dismisses
        the request."""
        request = events.QuestionAsked(
            id=ids.ascending("que"), session_id=session_id, questions=list(questions), tool=tool
        )
        answer: asyncio.Future[list[list[str]]] = asyncio.get_running_loop().create_future()
        self._pending[request.id] = (request, answer)
        self._publish(request)
        try:
            if on_asked is not None:
                await on_asked()
            return await answer
        finally:  # published here, since an answer may arrive before the call is stored as running
            self._pending.pop(request.id, None)
            ids_of = {"session_id": session_id, "request_id": request.id}
            if answer.done() and not answer.cancelled() and answer.exception() is None:
                self._publish(events.QuestionReplied(**ids_of, answers=answer.result()))
            else:  # dismissed, or the run was aborted: clients close their dialogs
                self._publish(events.QuestionRejected(**ids_of))

    def reply(self, request_id: str, answers: list[list[str]]) -> None:
        """Answer a request: for each of its questions, the labels chosen."""
        if not (answer := self._take(request_id)).done():  # the run may have been aborted a moment ago
            answer.set_result(answers)

    def reject(self, request_id: str) -> None:
        """Dismiss a request."""
        if not (answer := self._take(request_id)).done():
            answer.set_exception(QuestionRejectedError("the user dismissed the question"))

    def _take(self, request_id: str) -> asyncio.Future[list[list[str]]]:
        """Return the future of a request that waits for an answer; it can be taken once."""
        if request_id not in self._pending:
            raise NotFoundError(f"no question {request_id} is waiting for an answer", id=request_id)
        return self._pending.pop(request_id)[1]


class CallbackDispatcher:
    """Calls the callbacks of one engine while it is open."""

    def __init__(
        self,
        bus: Bus,
        group: asyncio.TaskGroup,
        permissions: Permissions,
        questions: Questions,
        settings: Settings,
        callback: PermissionCallback | None,
        directory: str,
    ) -> None:
        """Begins at once, with tasks of ``group``. Only requests of ``directory`` are answered, since engines may share
        a bus. Without a callback, a request that waits too long is logged, once."""
        self._group: asyncio.TaskGroup | None = group
        self._directory = directory
        self._permissions = permissions
        self._questions = questions
        self._permission = callback
        self._question = settings.question
        self._warn_after_seconds = settings.unanswered_warning_seconds
        self._warned = False
        self._one_at_a_time = asyncio.Lock()
        self._tasks: dict[str, tuple[str, asyncio.Task[None]]] = {}
        self._loop = asyncio.get_running_loop()
        self._unsubscribe = bus.listen(self._on_event)

    def close(self) -> None:
        """Answer nothing more, and cancel the callbacks that run."""
        self._unsubscribe()
        self._group = None  # requests that were published a moment ago may still arrive
        for _, task in self._tasks.values():
            task.cancel()

    def _on_event(self, envelope: Envelope) -> None:
        """Called in the thread that publishes."""
        if envelope.directory not in (None, self._directory):
            return
        match envelope.event:
            case events.PermissionAsked() | events.QuestionAsked() as request:
                self._call_soon(self._start, request)
            case events.PermissionReplied() | events.QuestionReplied() | events.QuestionRejected() as reply:
                self._call_soon(self._cancel, reply.request_id, None)
            case events.SessionIdle(session_id=session_id):
                self._call_soon(self._cancel, None, session_id)
            case _:
                pass

    def _call_soon(self, function: Callable[..., None], *arguments: object) -> None:
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(function, *arguments)

    def _start(self, request: events.PermissionAsked | events.QuestionAsked) -> None:
        if self._group is not None:
            task = self._group.create_task(self._answer(request))
            self._tasks[request.id] = request.session_id, task
            task.add_done_callback(lambda _: self._tasks.pop(request.id, None))

    def _cancel(self, request_id: str | None, session_id: str | None) -> None:
        for name, (session, task) in list(self._tasks.items()):
            if name == request_id or session == session_id:
                task.cancel()

    async def _answer(self, request: events.PermissionAsked | events.QuestionAsked) -> None:
        """Call the callback for a request. Without one, log that the request waits, after a while and once."""
        if isinstance(request, events.PermissionAsked) and self._permission is not None:
            await self._answer_permission(request, self._permission)
            return
        if isinstance(request, events.QuestionAsked) and self._question is not None:
            async with self._one_at_a_time:
                task = asyncio.current_task()
                try:
                    result = self._question(request)
                    answers = await result if isinstance(result, Awaitable) else result
                except BaseException as error:
                    if ends_task(error, task):
                        raise
                    log.exception("the question callback failed; the question is dismissed")
                    answers = None
                with suppress(NotFoundError):
                    if answers is None:
                        self._questions.reject(request.id)
                    else:
                        self._questions.reply(request.id, answers)
            return
        if self._warn_after_seconds is None:
            return
        await asyncio.sleep(self._warn_after_seconds)
        if self._warned:
            return
        self._warned = True
        if isinstance(request, events.PermissionAsked):
            waiting = f"a request for the permission {request.permission} is waiting"
            log.warning("%s: pass opensesh.open(permission=...), or call engine.reply_permission()", waiting)
        else:
            waiting = "a question of the model is waiting"
            log.warning("%s: pass Settings(question=...), or call engine.reply_question()", waiting)

    async def _answer_permission(self, request: events.PermissionAsked, callback: PermissionCallback) -> None:
        message: str | None = None
        task = asyncio.current_task()
        async with self._one_at_a_time:
            try:
                result = callback(request)
                answer = await result if isinstance(result, Awaitable) else result
                if answer not in _ANSWERS:  # comparing may raise as well
                    log.error("the permission callback returned %r, which is none of %s", answer, ", ".join(_ANSWERS))
                    answer = "reject"
            except PermissionCorrectedError as error:
                answer, message = "reject", error.message
            except PermissionRejectedError:
                answer = "reject"
            except BaseException as error:
                if ends_task(error, task):
                    raise
                log.exception("the permission callback failed; %s is rejected", request.permission)
                answer = "reject"
            with suppress(NotFoundError):
                self._permissions.reply(request.id, answer, message)
