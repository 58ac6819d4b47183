"""When the window is full: whether a session is summed up, and what is said where that cannot help."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, NamedTuple

from ..errors import OpenseshError
from ..records import UnknownError, as_object
from .cancellation import run_uncancellable
from .window import compaction_part, is_full, is_kept, usable, visible

if TYPE_CHECKING:
    from ..models.request import Request
    from ..records import Document, Failure, Session
    from ..storage.protocol import StoredMessage
    from .components import Runtime
    from .session_history import History

_MOST_COMPACTIONS = 2
"""How often in a row a session is summed up without a step in between that worked."""


class Compacted(NamedTuple):
    """What came of summing up."""

    summary: StoredMessage
    failure: Failure | None


class Compactions:
    """Sums up one session when it is asked for, and when its window is full."""

    def __init__(self, runtime: Runtime, session: Session, history: History) -> None:
        self._runtime = runtime
        self._session = session
        self._history = history
        self._in_a_row = 0
        self._complained = False

    def step_worked(self) -> None:
        """A step went through: the window is wide enough again."""
        self._in_a_row = 0

    def is_due(self, user: Document) -> bool:
        """Whether the last step filled the window."""
        last = self._history.last_assistant()
        if last is None or last.info.get("summary") or not last.info.get("finish"):
            return False
        if is_kept(self._history, last):
            return False  # it filled a window that has been cleared since
        return self._fills(last, user) and not self.cannot_help(user)

    def cannot_help(self, user: Document) -> bool:
        """Whether the window was full again with the very first step after the newest summary: then it is not the
        conversation that fills it, and no summary will make room. The records say so, so that no later run tries."""
        first = self._first_step_since()
        return first is not None and self._fills(first, user)

    def _first_step_since(self) -> StoredMessage | None:
        first = next(iter(self._history), None)
        if first is None or compaction_part(first) is None:
            return None
        for message in self._history:
            info = message.info
            if info.get("role") == "assistant" and not info.get("summary") and not is_kept(self._history, message):
                return message
        return None

    def _fills(self, message: StoredMessage, user: Document) -> bool:
        tokens = as_object(message.info.get("tokens")) or {}
        try:
            return is_full(tokens, self._runtime.model_of(user), self._runtime.config)
        except OpenseshError:
            return False

    def first_complaint(self, user: Document) -> bool:
        """Whether it is time to say what fills the window: once a run, when a summary could not help."""
        if self._complained or not self.cannot_help(user):
            return False
        self._complained = True
        return True

    async def request(self, user: Document) -> None:
        """Ask for the session to be summed up. Cancelled, it has been asked for all the same."""
        await run_uncancellable(self._request(user))

    async def _request(self, user: Document) -> None:
        from .compaction import request_compaction, tail_start

        self._in_a_row += 1
        everything = list(self._history)
        tail = tail_start(everything, self._runtime.model_of(user), self._runtime)
        message = await request_compaction(self._runtime, self._session, user, auto=True, tail=tail)
        self._history.add(message)

    @property
    def are_wanted(self) -> bool:
        """Whether a session may be summed up without being asked to."""
        return self._runtime.config.settings.compaction.auto is not False

    @property
    def in_vain(self) -> bool:
        """Whether summing up once more would not help either."""
        return self._in_a_row >= _MOST_COMPACTIONS

    async def run(self, request: StoredMessage) -> Compacted:
        """Sum up, and bring the history to the new view."""
        from .compaction import Compaction

        part = compaction_part(request) or {}
        everything = await asyncio.to_thread(self._runtime.sessions.messages, self._session.id)
        before = [each for each in everything if each.info["id"] != request.info["id"]]
        try:
            summary, failure = await Compaction(self._runtime, self._session, request).run(before)
        except asyncio.CancelledError:
            await run_uncancellable(self._look_again())
            raise
        if failure is None:
            await run_uncancellable(self._look_again())
            if part.get("auto") and await self._goes_on(request.info):
                await run_uncancellable(self._set_to_work(request.info))
        else:
            self._history.add(summary)
        return Compacted(summary, failure)

    async def _look_again(self) -> None:
        """What is in view now; that a summary was begun, or is there, is on record."""
        everything = await asyncio.to_thread(self._runtime.sessions.messages, self._session.id)
        self._history.reset(visible(everything))

    async def _set_to_work(self, request: Document) -> None:
        from .compaction import continue_prompt

        self._history.add(await continue_prompt(self._runtime, self._session, request))

    async def _goes_on(self, request: Document) -> bool:
        return await self._runtime.hooks.goes_on(request, self._runtime.model_of(request))


def is_hopeless(request: Request, runtime: Runtime) -> bool:
    """Whether what every request holds fills the window alone, so that there is nothing to gain by summing up."""
    from .tokens import overhead

    room = usable(request.model, runtime.config)
    return 0 < room <= sum(overhead(request).values())


def too_full(request: Request, runtime: Runtime) -> UnknownError:
    """Why a session cannot go on although it was summed up: what fills the window."""
    from .tokens import request_tokens

    listed = ", ".join(f"{name} about {size:,}" for name, size in request_tokens(request).items())
    room = usable(request.model, runtime.config)
    return UnknownError(
        message=f"the conversation does not fit into the {room:,} tokens that {request.model.ref} has room for, even "
        f"after it was summed up. It holds: {listed} tokens."
    )
