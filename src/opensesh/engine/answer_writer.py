"""Writes one answer: stores its parts as they change state, and remembers them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .. import events, ids
from ..records import (
    PatchPart,
    Pending,
    StepFinishPart,
    StepStartPart,
    ToolPart,
    document_of,
    read_message,
    write_failure,
)
from ..storage.protocol import StoredMessage
from .cancellation import run_in_thread_uncancellable

if TYPE_CHECKING:
    from ..models.model import Model
    from ..models.stream_events import FinishStep, Usage
    from ..records import Document, Failure, Tokens
    from ..sessions import Sessions
    from ..workspace import Patch
    from .growing import StreamingPart


class AnswerWriter:
    """The hand that writes one assistant message. What it returns from is on disk; deltas are only told.

    What it has begun to write it writes to the end, also when it is cancelled: what comes after must be newer on disk
    too.
    """

    def __init__(self, sessions: Sessions, info: Document, publish: events.Publish) -> None:
        self.info = info
        self.parts: dict[str, Document] = {}
        self._sessions = sessions
        self._publish = publish

    @property
    def message(self) -> StoredMessage:
        """The answer so far."""
        return StoredMessage(self.info, list(self.parts.values()))

    async def save(self) -> None:
        """Store the message itself, its fields in OpenCode's order."""
        await run_in_thread_uncancellable(self._sessions.update_message, self._document())

    def _document(self) -> Document:
        ours = {"opensesh": self.info["opensesh"]} if "opensesh" in self.info else {}
        return document_of(read_message(self.info)) | ours

    async def put(self, part: Document, *, delta: str | None = None) -> None:
        """Store a part."""
        self.parts[part["id"]] = part
        await run_in_thread_uncancellable(self._sessions.update_part, part, delta=delta)

    def new_call(self, tool: str, call_id: str | None = None) -> Document:
        """A tool part for a call that begins; not stored yet."""
        part_id = ids.ascending("prt")
        return ToolPart(
            id=part_id,
            session_id=self.info["sessionID"],
            message_id=self.info["id"],
            call_id=call_id or part_id,
            tool=tool,
            state=Pending(),
        ).document

    async def drop(self, part_id: str) -> None:
        """Take a part back, of a try that came to nothing."""
        if self.parts.pop(part_id, None) is not None:
            await run_in_thread_uncancellable(
                self._sessions.remove_part, self.info["sessionID"], self.info["id"], part_id
            )

    async def grow(self, part: StreamingPart, text: str) -> None:
        """Tell of a piece that was added to a growing part, and store the part if it is time to."""
        if part.is_due():
            await self.put(part.document(), delta=text)
        elif part.is_stored and text:
            session, message = self.info["sessionID"], self.info["id"]
            self._publish(events.PartDelta(session_id=session, message_id=message, part_id=part.id, delta=text))

    async def step_started(self, snapshot: str | None) -> str:
        """A model call begins; the id of the part that says so."""
        part = StepStartPart(
            id=ids.ascending("prt"), session_id=self.info["sessionID"], message_id=self.info["id"], snapshot=snapshot
        )
        await self.put(part.document)
        return part.id

    async def changed(self, patch: Patch | None) -> None:
        """Files that the call's tools changed."""
        if patch is not None:
            part = PatchPart(
                id=ids.ascending("prt"),
                session_id=self.info["sessionID"],
                message_id=self.info["id"],
                hash=patch.hash,
                files=patch.files,
            )
            await self.put(part.document)

    async def step_finished(self, event: FinishStep, model: Model, snapshot: str | None) -> None:
        """A model call is over: its tokens and its cost, on the message and in a part of their own."""
        cost, tokens = self.charge(event.usage, model)
        self.info["finish"] = event.reason
        part = StepFinishPart(
            id=ids.ascending("prt"),
            session_id=self.info["sessionID"],
            message_id=self.info["id"],
            reason=event.reason,
            snapshot=snapshot,
            cost=cost,
            tokens=tokens,
        )
        self.parts[part.id] = part.document
        await run_in_thread_uncancellable(self._write_end, part.document, self._document())

    def charge(self, usage: Usage, model: Model) -> tuple[float, Tokens]:
        """Add what a model call cost to the message, and note its tokens there; not stored yet."""
        from ..models import pricing

        tokens = pricing.tokens(usage)
        cost = pricing.charge(model.price, usage).stored
        self.info["cost"] = self.info.get("cost", 0) + cost
        self.info["tokens"] = document_of(tokens)
        return cost, tokens

    def _write_end(self, part: Document, info: Document) -> None:
        self._sessions.update_part(part)
        self._sessions.update_message(info)

    async def finish(self, failure: Failure | None = None) -> None:
        """The answer is complete, or as complete as it will get."""
        if failure is not None:
            self.info["error"] = write_failure(failure)
        self.info["time"]["completed"] = ids.now_ms()
        await self.save()
