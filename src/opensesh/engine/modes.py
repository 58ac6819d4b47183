"""Planning and doing: where a session's plan is, and how the conversation changes hands."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from .. import ids
from ..records import MessageTime, ModelRef, TextPart, UserMessage
from ..storage.protocol import StoredMessage
from .cancellation import run_uncancellable
from .planning import PLAN
from .prompts import words

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..records import Document, Session
    from .components import Runtime


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
        return plan_file(self._runtime, self._session)

    async def switch(self, agent: str, text: str) -> None:
        """Hand the conversation to ``agent``, with ``text`` as the user message that says so. Cancelled, that is done
        all the same."""
        await run_uncancellable(self._switch(agent, text))

    async def _switch(self, agent: str, text: str) -> None:
        model = self._user["model"]
        info = UserMessage(
            id=ids.ascending("msg"),
            session_id=self._session.id,
            time=MessageTime(created=ids.now_ms()),
            agent=agent,
            model=ModelRef(provider_id=model["providerID"], model_id=model["modelID"]),
        )
        before = "build" if agent == PLAN else PLAN
        said = (text, *reminders(self._runtime, self._session, agent, before))
        parts = [
            TextPart(
                id=ids.ascending("prt"), session_id=self._session.id, message_id=info.id, text=each, synthetic=True
            ).document
            for each in said
        ]
        self._queue(await self._runtime.add_message(StoredMessage(info.document, parts)))


def plan_file(runtime: Runtime, session: Session) -> str:
    """Where a session's plan is written: in the project, or in OpenCode's data folder outside of version control."""
    place = runtime.place
    base = os.path.join(place.sandbox, ".opencode", "plans") if place.vcs else runtime.config.folders.plans
    return os.path.join(base, f"{session.time.created}-{session.slug}.md")


def reminders(runtime: Runtime, session: Session, agent: str | None, before: str | None) -> list[str]:
    """What a prompt for ``agent`` must say about planning; ``before`` is the agent that spoke last.

    With OPENCODE_EXPERIMENTAL_PLAN_MODE there is a plan file: who enters is told of it once, and who leaves too.
    Without it every prompt for the planning agent says that it plans.
    """
    plan = plan_file(runtime, session)
    with_file = runtime.config.flags.plan_mode
    if agent == PLAN:
        if not with_file:
            return [words("plan")]
        return [] if before == PLAN else [_entering(plan)]
    if before != PLAN:
        return []
    if with_file and os.path.exists(plan):
        return [words("plan_done").replace("{{plan}}", plan)]
    return [words("build")] if agent == "build" else []


def _entering(plan: str) -> str:
    state = "It exists already: read it, and go on from there." if os.path.exists(plan) else "It does not exist yet."
    return words("plan_workflow").replace("{{plan}}", plan).replace("{{state}}", state)
