"""Questions that the model puts to the user, and their answers. They wait in memory; who asked and left is
forgotten."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from .. import events, ids
from ..errors import NotFoundError, QuestionRejectedError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..records import Document


class Questions:
    """The questions that wait for an answer, in all sessions of a runtime."""

    def __init__(self, publish: events.Publish) -> None:
        self._publish = publish
        self._waiting: dict[str, tuple[events.QuestionAsked, asyncio.Future[list[list[str]]]]] = {}

    @property
    def pending(self) -> list[Document]:
        """What is being asked."""
        return [asked.properties for asked, _ in self._waiting.values()]

    async def ask(
        self, session_id: str, questions: Sequence[Document], tool: Document | None = None
    ) -> list[list[str]]:
        """Ask and wait; :class:`QuestionRejectedError` if the user will not answer."""
        asked = events.QuestionAsked(
            id=ids.ascending("que"), session_id=session_id, questions=list(questions), tool=tool
        )
        answer: asyncio.Future[list[list[str]]] = asyncio.get_running_loop().create_future()
        self._waiting[asked.id] = (asked, answer)
        self._publish(asked)
        try:
            return await answer
        finally:
            self._waiting.pop(asked.id, None)

    def reply(self, request_id: str, answers: list[list[str]]) -> None:
        """The user's answers, a list of labels for each question, in order."""
        asked, answer = self._find(request_id)
        self._publish(events.QuestionReplied(session_id=asked.session_id, request_id=request_id, answers=answers))
        if not answer.done():
            answer.set_result(answers)

    def reject(self, request_id: str) -> None:
        """The user will not answer."""
        asked, answer = self._find(request_id)
        self._publish(events.QuestionRejected(session_id=asked.session_id, request_id=request_id))
        if not answer.done():
            answer.set_exception(QuestionRejectedError("the user dismissed the question"))

    def _find(self, request_id: str) -> tuple[events.QuestionAsked, asyncio.Future[list[list[str]]]]:
        if request_id not in self._waiting:
            raise NotFoundError(f"no question {request_id} is waiting for an answer", id=request_id)
        return self._waiting[request_id]
