"""Planning and doing: where a session's plan is, and how the conversation changes hands."""

from __future__ import annotations

import asyncio
import os
from typing import TYPE_CHECKING

from .. import ids
from ..records import MessageTime, ModelRef, TextPart, UserMessage
from ..storage.store import StoredMessage

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..records import Document, Session
    from .runtime import Runtime


class SessionModes:
    """The modes of one session."""

    def __init__(
        self, runtime: Runtime, session: Session, user: Document, queue: Callable[[StoredMessage], None]
    ) -> None:
        self._runtime = runtime
        self._session = session
        self._user = user
        self._queue = queue

    @property
    def plan(self) -> str:
        """Where the plan is written: in the project, or in OpenCode's data folder outside of version control."""
        place = self._runtime.place
        base = os.path.join(place.sandbox, ".opencode", "plans") if place.vcs else self._runtime.config.folders.plans
        return os.path.join(base, f"{self._session.time.created}-{self._session.slug}.md")

    async def switch(self, agent: str, text: str) -> None:
        """Hand the conversation to ``agent``, with ``text`` as the user message that says so."""
        model = self._user["model"]
        info = UserMessage(
            id=ids.ascending("msg"),
            session_id=self._session.id,
            time=MessageTime(created=ids.now_ms()),
            agent=agent,
            model=ModelRef(provider_id=model["providerID"], model_id=model["modelID"]),
        )
        part = TextPart(
            id=ids.ascending("prt"), session_id=self._session.id, message_id=info.id, text=text, synthetic=True
        )
        self._queue(await asyncio.to_thread(self._store, info.document, part.document))

    def _store(self, info: Document, part: Document) -> StoredMessage:
        self._runtime.sessions.update_message(info)
        self._runtime.sessions.update_part(part)
        return StoredMessage(info, [part])
