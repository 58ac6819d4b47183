"""Puts what a session waits for to whoever is there to answer: permissions, and the model's questions.

One thing is asked at a time, in the order in which it came up. What is settled in another way meanwhile (by a rule that
an answer made, by someone else, or because the run ended) is not asked any more: the callback is cancelled.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import TYPE_CHECKING

from .. import events
from ..errors import NotFoundError, PermissionCorrectedError, PermissionRejectedError

if TYPE_CHECKING:
    from collections.abc import Coroutine
    from typing import Any

    from ..bus import Envelope
    from ..permissions import Answer
    from .components import Runtime

    PermissionCallback = Callable[[events.PermissionAsked], Awaitable[Answer] | Answer]
    """Answers ``once``, ``always`` or ``reject``; raises :class:`PermissionCorrectedError` to say what to do
    instead."""

QuestionCallback = Callable[[events.QuestionAsked], Awaitable[list[list[str]] | None] | list[list[str]] | None]
"""Answers with the labels chosen, a list for each question; with ``None`` if there will be no answer."""

log = logging.getLogger("opensesh.engine")
_ANSWERS = ("once", "always", "reject")
_LONG = 10.0
"""Seconds after which a request that nobody was named for is worth a line."""


class Answering:
    """The callbacks of one engine, called while it is open."""

    def __init__(
        self, runtime: Runtime, permission: PermissionCallback | None, question: QuestionCallback | None
    ) -> None:
        self._runtime = runtime
        self._permission = permission
        self._question = question
        self._turn = asyncio.Lock()
        self._asking: dict[str, tuple[str, asyncio.Task[None]]] = {}
        self._group: asyncio.TaskGroup | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stop: Callable[[], None] | None = None
        self._has_wondered = False

    def begin(self, group: asyncio.TaskGroup) -> None:
        """Answer from now on, in tasks of ``group``."""
        self._group = group
        self._loop = asyncio.get_running_loop()
        self._stop = self._runtime.bus.listen(self._hear)

    def end(self) -> None:
        """Answer nothing more; whoever is being asked is left alone."""
        if self._stop is not None:
            self._stop()
        self._group = None  # what was asked a moment ago has yet to arrive here
        for _, task in self._asking.values():
            task.cancel()

    def _hear(self, envelope: Envelope) -> None:
        """Called in the thread that publishes."""
        match envelope.event:
            case events.PermissionAsked() | events.QuestionAsked() as asked:
                self._soon(self._start, asked)
            case events.PermissionReplied() | events.QuestionReplied() | events.QuestionRejected() as settled:
                self._soon(self._leave, settled.request_id, None)
            case events.SessionIdle(session_id=session_id):
                self._soon(self._leave, None, session_id)
            case _:
                pass

    def _soon(self, act: Callable[..., None], *given: object) -> None:
        if self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(act, *given)

    def _start(self, asked: events.PermissionAsked | events.QuestionAsked) -> None:
        if self._group is not None:
            task = self._group.create_task(self._answer(asked))
            self._asking[asked.id] = asked.session_id, task
            task.add_done_callback(lambda _: self._asking.pop(asked.id, None))

    def _answer(self, asked: events.PermissionAsked | events.QuestionAsked) -> Coroutine[Any, Any, None]:
        if isinstance(asked, events.PermissionAsked):
            return self._wonder(asked) if self._permission is None else self._permit(asked, self._permission)
        return self._wonder(asked) if self._question is None else self._choose(asked, self._question)

    def _leave(self, request_id: str | None, session_id: str | None) -> None:
        for name, (session, task) in list(self._asking.items()):
            if name == request_id or session == session_id:
                task.cancel()

    async def _wonder(self, asked: events.PermissionAsked | events.QuestionAsked) -> None:
        """Say, once, that something waits for someone whom nobody has named."""
        await asyncio.sleep(_LONG)
        if self._has_wondered:
            return
        self._has_wondered = True
        if isinstance(asked, events.PermissionAsked):
            what, who, reply = f"{asked.permission} waits to be allowed", "opensesh.open(permission=...)", "permissions"
        else:
            what, who, reply = "the model's question waits", "Settings(question=...)", "questions"
        log.warning("%s: name who answers with %s, or call engine.runtime.%s.reply", what, who, reply)

    async def _permit(self, asked: events.PermissionAsked, ask: PermissionCallback) -> None:
        message: str | None = None
        async with self._turn:
            try:
                answer = await _permitted(ask, asked)
            except PermissionCorrectedError as error:
                answer, message = "reject", error.message
            except PermissionRejectedError:
                answer = "reject"
            except Exception:
                log.exception("whoever should have answered for %s failed, so it is refused", asked.permission)
                answer = "reject"
            with suppress(NotFoundError):
                self._runtime.permissions.reply(asked.id, answer, message)

    async def _choose(self, asked: events.QuestionAsked, ask: QuestionCallback) -> None:
        async with self._turn:
            try:
                answers = await _chosen(ask, asked)
            except Exception:
                log.exception("whoever should have answered a question failed, so it is dismissed")
                answers = None
            with suppress(NotFoundError):
                if answers is None:
                    self._runtime.questions.reject(asked.id)
                else:
                    self._runtime.questions.reply(asked.id, answers)


async def _permitted(ask: PermissionCallback, asked: events.PermissionAsked) -> Answer:
    given = ask(asked)
    answer = await given if isinstance(given, Awaitable) else given
    if answer not in _ANSWERS:
        raise ValueError(f"{answer!r} is no answer; there are: {', '.join(_ANSWERS)}")
    return answer


async def _chosen(ask: QuestionCallback, asked: events.QuestionAsked) -> list[list[str]] | None:
    given = ask(asked)
    return await given if isinstance(given, Awaitable) else given
