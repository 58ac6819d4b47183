"""Writing the records of a session from the event loop: messages, answers and their parts."""

from __future__ import annotations

import logging
from contextlib import suppress
from time import monotonic
from typing import TYPE_CHECKING, Any, Literal

from .. import events, ids, project
from ..errors import NotFoundError, WriteError
from ..models import pricing
from ..records import (
    EXTENSION_KEY,
    AssistantMessage,
    Created,
    MessageTime,
    ModelRef,
    PatchPart,
    Path,
    Pending,
    ReasoningPart,
    RetryPart,
    Span,
    StepFinishPart,
    StepStartPart,
    TextPart,
    Tokens,
    ToolPart,
    UserMessage,
    document_of,
    dumps_compact,
    order,
    write_failure,
)
from ..storage import keys
from ..storage.protocol import StoredMessage
from ..storage.stream_journal import ENCODING, StreamJournal, journals_of
from .call_costs import add_side_call, broken_off, call_in_progress, call_record
from .cancellation import run_in_thread_uncancellable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from ..bus import Bus
    from ..models.model import Model
    from ..models.request import Request
    from ..models.stream_events import FinishStep, Metadata, Usage
    from ..records import Document, Failure, Rule, Session
    from ..sessions import Sessions
    from ..workspace.snapshots import Patch

_ANSWER_FIELDS = (*AssistantMessage.__struct_encode_fields__, EXTENSION_KEY)
JOURNAL_SECONDS = 0.3
"""How often streamed text is written to the journal. What was published half a second ago survives a crash."""
_STORED_WHILE_SHORT = 4_096
"""Characters. A part that is still being streamed is stored again up to this length, each time it has doubled."""

log = logging.getLogger("opensesh.engine")


class SessionWriter:
    """Asynchronous access to the records of the sessions of one directory."""

    def __init__(self, sessions: Sessions, bus: Bus) -> None:
        self.sessions = sessions
        self.location = sessions.location
        self._bus = bus
        self._is_registered = False
        self._latest_ms: dict[str, int] = {}
        """The time of the newest message of each session that runs."""

    def publish(self, event: events.Event) -> None:
        """Publish an event of this directory."""
        self._bus.publish(event, directory=self.location.directory)

    def publish_idle(self, session_id: str) -> None:
        """Publish that a session is idle."""
        self.publish(events.SessionStatus(session_id=session_id, status={"type": "idle"}))
        self.publish(events.SessionIdle(session_id=session_id))

    async def get(self, session_id: str) -> Session:
        """Return a session's record."""
        return await run_in_thread_uncancellable(self.sessions.get, session_id)

    async def messages(self, session_id: str) -> Sequence[StoredMessage]:
        """Return all messages of a session."""
        return await run_in_thread_uncancellable(self.sessions.messages, session_id)

    async def create(
        self,
        *,
        title: str | None = None,
        parent_id: str | None = None,
        permission: Sequence[Rule] | None = None,
        fields: Document | None = None,
    ) -> Session:
        """Store a new session."""

        def create() -> Session:
            self._register_project()
            return self.sessions.create(title=title, parent_id=parent_id, permission=permission, fields=fields)

        return await run_in_thread_uncancellable(create)

    async def edit(self, session_id: str, edit: Callable[[Document], None], *, touch: bool = True) -> Session:
        """Change a session's record. ``touch`` also sets the time of its last update."""
        return await run_in_thread_uncancellable(self.sessions.update, session_id, edit, touch=touch)

    async def add_message(
        self, message: StoredMessage, *, first: Callable[[], None] | None = None, touch: bool = False
    ) -> StoredMessage:
        """Store a new message with its parts, after ``first`` was called in the same thread, and return it."""

        def add() -> None:
            if first is not None:
                first()
            self._register_project()
            self.sessions.add_message(message)
            if touch:
                self.sessions.touch(message.info["sessionID"])

        await run_in_thread_uncancellable(add)
        return message

    def note_newest(self, session_id: str, newest: StoredMessage | None) -> None:
        """Note the newest message of a session that begins to run."""
        if newest is not None:
            created, identifier = order.position(newest.info)
            self._latest_ms[session_id] = max(created, identifier[0] >> 12)

    def new_stamp(self, session_id: str, message_id: str | None = None) -> tuple[str, MessageTime]:
        """Return id and time of a new message of a session that runs: after all others, also if the clock has stepped
        back since they were written. ``message_id`` is an id that a client has chosen."""
        created = self._latest_ms[session_id] = max(ids.now_ms(), self._latest_ms.get(session_id, 0) + 1)
        return ids.ascending("msg", message_id, not_before=created), MessageTime(created=created)

    def new_prompt(self, last: Document, agent: str | None = None) -> UserMessage:
        """Return a new message like the last prompt, by the same model, and by ``agent`` or the same one; nothing is
        stored yet."""
        model = last["model"]
        message_id, time = self.new_stamp(last["sessionID"])
        return UserMessage(
            id=message_id,
            session_id=last["sessionID"],
            time=time,
            agent=agent or last.get("agent"),
            model=ModelRef(provider_id=model["providerID"], model_id=model["modelID"]),
        )

    async def add_synthetic_prompt(
        self, last: Document, texts: Sequence[str], agent: str | None = None
    ) -> StoredMessage:
        """Store a prompt of texts that the user did not type, like the last prompt otherwise, and return it."""
        info = self.new_prompt(last, agent)
        parts = [synthetic_part(info.session_id, info.id, text) for text in texts]
        return await self.add_message(StoredMessage(info.document, parts))

    def new_answer(
        self, prompt: Document, provider_id: str, model_id: str, agent: str, *, summary: bool = False
    ) -> AnswerWriter:
        """Return a writer for a new answer to ``prompt``; nothing is stored yet."""
        message_id, time = self.new_stamp(prompt["sessionID"])
        info = AssistantMessage(
            id=message_id,
            session_id=prompt["sessionID"],
            time=time,
            parent_id=prompt["id"],
            model_id=model_id,
            provider_id=provider_id,
            mode=agent,
            agent=agent,
            path=Path(cwd=self.location.directory, root=self.location.sandbox),
            summary=True if summary else None,
            tokens=Tokens(),
            variant=prompt.get("variant"),
        )
        return AnswerWriter(self.sessions, info.document, self.publish)

    def _register_project(self) -> None:
        """Register the project with the first session or prompt that is stored. Opening an engine writes nothing."""
        if not self._is_registered:
            project.register(self.sessions.store, self.location)
            self._is_registered = True


def synthetic_part(session_id: str, message_id: str, text: str) -> Document:
    """Return a text part that the user did not type."""
    part_id = ids.ascending("prt")
    return TextPart(id=part_id, session_id=session_id, message_id=message_id, text=text, synthetic=True).document


class AnswerWriter:
    """Writes one assistant message. Every awaited method returns after the write is durable; text deltas are only
    published, and :meth:`journal` writes them a little later.

    A write that has begun is completed even if the caller is cancelled, so that later writes are newer on disk too.
    """

    def __init__(self, sessions: Sessions, info: Document, publish: events.Publish) -> None:
        self.info = info
        self.parts: dict[str, Document] = {}
        self._sessions = sessions
        self._publish = publish
        self._ids: dict[str, Any] = {"session_id": info["sessionID"], "message_id": info["id"]}
        self._journals: dict[str, StreamJournal] = {}
        """By the id of a part; that of the message for its model calls."""
        self._call: Document | None = None
        """The model call in progress."""
        self.ended_call: Document = {}
        """The last model call whose usage was reported."""

    @property
    def message(self) -> StoredMessage:
        """The answer so far."""
        return StoredMessage(self.info, list(self.parts.values()))

    async def save(self, *parts: Document, is_final: bool = False) -> None:
        """Store ``parts``, then the message with its fields in OpenCode's order. With the final one its journal is
        removed, and the session has had activity."""
        document = {name: self.info[name] for name in _ANSWER_FIELDS if self.info.get(name) is not None}

        def write() -> None:
            for part in parts:
                self._sessions.update_part(part)
            self._sessions.update_message(document)
            if not is_final:
                return
            if document["id"] in self._journals:
                self._journals.pop(document["id"]).remove()
            with suppress(NotFoundError):  # the session was removed meanwhile
                self._sessions.touch(document["sessionID"])

        await run_in_thread_uncancellable(write)

    async def put(self, part: Document, *, delta: str | None = None, is_interrupted: bool = False) -> None:
        """Store a part. Once it is complete, its journal is removed. A text that was interrupted is stored as OpenCode
        does, without an end; clients have its text already."""
        if is_interrupted:
            part, delta = part | {"time": {"start": part["time"]["start"]}}, ""
        self.parts[part["id"]] = part

        def write() -> None:
            self._sessions.update_part(part, delta=delta)
            if part["id"] in self._journals and (is_interrupted or "end" in part["time"]):
                self._journals.pop(part["id"]).remove()

        await run_in_thread_uncancellable(write)

    async def drop(self, part_id: str) -> None:
        """Remove a part of an attempt that failed."""
        if self.parts.pop(part_id, None) is None:
            return

        def remove() -> None:
            if part_id in self._journals:
                self._journals.pop(part_id).remove()
            self._sessions.remove_part(self.info["sessionID"], self.info["id"], part_id)

        await run_in_thread_uncancellable(remove)

    async def append(self, part: StreamingPart, text: str) -> None:
        """Publish ``text`` that was added to a streaming part, and store the part if it has grown enough."""
        if not text:  # an empty delta is that of an interrupted text
            return
        if part.is_due():
            await self.put(part.document(), delta=text)
        elif part.is_stored:
            self._publish(events.PartDelta(**self._ids, part_id=part.id, delta=text))

    async def journal(self, parts: Iterable[StreamingPart]) -> None:
        """Write what these parts have received since the last call to their journals. To be called by one task, every
        :data:`JOURNAL_SECONDS` while parts are being streamed. A journal that cannot be written is given up: the part
        is stored when it ends."""
        added = [(part.id, data) for part in parts if part.is_stored and (data := part.take_unwritten())]

        def write() -> None:
            for part_id, data in added:
                if part_id in self.parts:
                    self._append_to_journal(part_id, data)

        if added:
            await run_in_thread_uncancellable(write)

    def _append_to_journal(self, name: str, data: bytes) -> None:
        session_id, message_id = self.info["sessionID"], self.info["id"]
        try:
            if name not in self._journals:
                journals = journals_of(self._sessions.store, keys.message(session_id, message_id))
                if journals is None:
                    return
                self._journals[name] = journals.begin(session_id, name)
            self._journals[name].append(data)
        except (OSError, WriteError) as error:
            log.warning("the answer that %s receives could not be journaled: %s", session_id, error)

    def new_tool_part(self, tool: str, call_id: str | None = None) -> Document:
        """Return a part for a tool call that begins; it is not stored."""
        part_id = ids.ascending("prt")
        return ToolPart(id=part_id, **self._ids, call_id=call_id or ids.ulid(), tool=tool, state=Pending()).document

    async def start_step(self, snapshot: str | None) -> str:
        """Record that a model call begins, and return the id of its part."""
        part = StepStartPart(id=ids.ascending("prt"), **self._ids, snapshot=snapshot)
        await self.put(part.document)
        return part.id

    async def add_retry(self, attempt: int, failure: Failure, now_ms: int) -> None:
        """Record that a model call failed and will be retried."""
        error, time = write_failure(failure), Created(created=now_ms)
        part = RetryPart(id=ids.ascending("prt"), **self._ids, attempt=attempt, error=error, time=time)
        await self.put(part.document)

    async def add_patch(self, patch: Patch) -> None:
        """Record the files that the tools of a step changed."""
        part = PatchPart(id=ids.ascending("prt"), **self._ids, hash=patch.hash, files=patch.files)
        await self.put(part.document)

    async def finish_step(self, event: FinishStep, model: Model, snapshot: str | None) -> None:
        """Record the tokens and the cost of a model call, on the message and in a part."""
        cost, tokens = self.add_usage(event.usage, model)
        self.info["finish"] = event.reason
        part = StepFinishPart(
            id=ids.ascending("prt"), **self._ids, reason=event.reason, snapshot=snapshot, cost=cost, tokens=tokens
        )
        self.parts[part.id] = part.document
        await self.save(part.document)

    def add_usage(self, usage: Usage, model: Model) -> tuple[float, Tokens]:
        """Add the cost of a model call to the message, and set its tokens; neither is stored."""
        tokens = pricing.tokens(usage)
        cost = pricing.charge(model.price, usage).stored
        self.info["cost"] = self.info.get("cost", 0) + cost
        self.info["tokens"] = document_of(tokens)
        return cost, tokens

    async def begin_call(self, request: Request) -> None:
        """Journal a model call that is about to be sent, so that its cost is known even if the process dies."""

        def write() -> None:
            self._call = call_in_progress(self.info["agent"], request)
            self._append_to_journal(self.info["id"], dumps_compact(self._call) + b"\n")

        await run_in_thread_uncancellable(write)

    async def end_call(self, usage: Usage, model: Model) -> None:
        """Journal the usage of the model call in progress."""
        self.ended_call = call_record(self.info["agent"], model, usage, self.info["time"]["created"])
        await self._journal_end(self.ended_call)

    async def break_off_call(self, output_tokens: int | None) -> None:
        """Record the estimated cost of the model call in progress, if there is one: its usage will not be reported.
        ``None``: the provider refused it, which costs nothing. The message is not stored yet."""
        if self._call is not None:
            record = {} if output_tokens is None else broken_off(self._call, output_tokens)
            if record:
                add_side_call(self.info, record)
            await self._journal_end(record)

    async def _journal_end(self, record: Document) -> None:
        self._call = None
        line = dumps_compact(record) + b"\n"
        await run_in_thread_uncancellable(self._append_to_journal, self.info["id"], line)

    async def finish(self, failure: Failure | None = None) -> None:
        """Store the message as completed, with the error that ended it if there was one."""
        if failure is not None:
            self.info["error"] = write_failure(failure)
        created = self.info["time"]["created"]
        self.info["time"] = {"created": created, "completed": max(ids.now_ms(), created)}
        await self.save(is_final=True)


class StreamingPart:
    """A text or reasoning part that is still being received.

    Appending costs the same however long the text is. The part is stored when it begins, while it is short each time it
    has doubled, and when it ends. What it receives goes to a journal too (:mod:`opensesh.storage.stream_journal`),
    compressed, so that a long text costs 1.3 to 1.5 bytes written for each byte received.
    """

    def __init__(self, kind: Literal["text", "reasoning"], message: Document, metadata: Metadata | None) -> None:
        self.id = ids.ascending("prt")
        self.kind = kind
        self.metadata: Metadata | None = metadata
        self._message = message
        self._start = ids.now_ms()
        self._text: bytearray = bytearray()  # grows in place; many small strings would fragment the memory
        self.length = 0
        """Characters that were received."""
        self._stored_length = 0
        self._stored_at = 0.0
        self._written = 0
        """Bytes that are in the journal."""
        self._ended: str | None = None

    @property
    def is_stored(self) -> bool:
        """Whether any of it is stored."""
        return self._stored_length > 0

    @property
    def has_unstored_text(self) -> bool:
        """Whether text was added since it was last stored."""
        return self.length > self._stored_length

    def add(self, text: str, metadata: Metadata | None = None) -> None:
        """Append ``text``, and replace the metadata if there is any."""
        self._text += text.encode(*ENCODING)
        self.length += len(text)
        if metadata is not None:
            self.metadata = metadata

    def end(self) -> str:
        """Return the whole text, without trailing white space. Nothing can be added afterwards."""
        if self._ended is None:
            self._ended = self._text.decode(*ENCODING).rstrip()
            self._text.clear()
        return self._ended

    def is_due(self) -> bool:
        """Whether it has grown enough to be stored again."""
        if not self._stored_length:
            return self.length > 0
        has_doubled = 2 * self._stored_length <= self.length <= _STORED_WHILE_SHORT
        return has_doubled and monotonic() - self._stored_at > JOURNAL_SECONDS

    def take_unwritten(self) -> bytes:
        """Return what is not in the journal yet, and note that it is."""
        data = bytes(memoryview(self._text)[self._written :])
        self._written += len(data)
        return data

    def document(self, *, end: bool = False) -> Document:
        """Return the part to store, and note that it is stored."""
        self._stored_length, self._stored_at = max(self.length, 1), monotonic()
        fields: dict[str, Any] = {
            "id": self.id,
            "session_id": self._message["sessionID"],
            "message_id": self._message["id"],
            "text": self.end() if end else self._text.decode(*ENCODING),
            "time": Span(start=self._start, end=ids.now_ms() if end else None),
            "metadata": self.metadata,
        }
        return (TextPart if self.kind == "text" else ReasoningPart)(**fields).document
