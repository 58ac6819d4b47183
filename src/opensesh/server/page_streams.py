"""The event stream of the web pages, and of other programs that watch sessions of all projects.

Events have names: ``connected``, ``session``, ``status``, ``turn``, ``op``, ``ask``, ``answered``, ``todo``, ``usage``,
``heartbeat``, ``reset``. Sessions, statuses and requests come from all projects, turns and parts only of the sessions
that the viewer names. As HTML, parts come as operations on the page: ``part`` and ``turn`` insert or replace one, and a
streaming text grows by the operations of :mod:`.streaming_markdown`.

Every operation either replaces something or continues what this stream has sent, so that a stream may begin anywhere:
it begins with what waits for the user, and with the texts that are being streamed. A viewer that reconnects with
``Last-Event-ID`` gets the events in between. If those are gone it gets ``reset``: it reads everything again, and then
connects after the event that the response names.
"""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections import OrderedDict
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from .. import events
from ..engine.cancellation import run_in_thread_uncancellable
from ..errors import OpenseshError
from ..records import as_object, dumps_compact, object_at
from ..storage import keys
from .event_streams import has_ended, is_completed
from .streaming_markdown import StreamingMarkdown, ViewerPosition

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Collection, Iterable, Sequence

    from ..bus import Envelope
    from ..config import Origin
    from ..records import Document, Rule, Session
    from ..sessions import Sessions
    from .event_streams import EventStreams, StreamingText

log = logging.getLogger("opensesh.server")
T = TypeVar("T")
FLUSH_SECONDS = 0.05
"""How often streaming texts are rendered and sent. All streams flush at the same moments and share the rendering."""
_RETRY_MS = 1000
_NOT_SHOWN = '<p class="failure">This could not be shown; the log of the server says why.</p>'
_CACHED_FRAGMENTS = 256
_BATCH = 64


class UserRequest(NamedTuple):
    """A permission request or question that waits for the user."""

    document: Document
    """As OpenCode's API lists it."""
    session: Session | None = None
    """``None`` if it was removed meanwhile."""
    ancestors: Sequence[Session] = ()
    """The session that started the session, if it is one of a subagent, and so on."""
    part: Document | None = None
    """The tool call that asks. Only its input has the whole command."""
    rule: tuple[Rule, Origin | None] | None = None
    """The rule of the configuration that asks, and where it was set."""

    @property
    def kind(self) -> str:
        """``permission`` or ``question``."""
        return "question" if "questions" in self.document else "permission"


class Fragments(NamedTuple):
    """Functions that render records as HTML."""

    markdown: Callable[[str], str]
    part: Callable[[Document, str, bool], str]
    """A part, complete, in a session of a folder, and whether it is of a prompt; empty if it is not shown."""
    streaming_part: Callable[[Document], str]
    """A text that is being written: an empty ``settled`` and an empty ``tail`` element."""
    turn: Callable[[Document], str]
    """A message without its parts."""
    request: Callable[[UserRequest], str]


class PageRendering:
    """The rendering that all streams of pages share: each text, part and message is rendered once."""

    def __init__(
        self,
        streams: EventStreams,
        fragments: Fragments,
        sessions: Callable[[], Sessions],
        permission_rule: Callable[[str], tuple[Rule, Origin | None] | None] = lambda _: None,
    ) -> None:
        """``permission_rule`` returns the rule that makes a permission request ask; see
        :meth:`opensesh.engine.engine.Engine.permission_rule`."""
        self.streams = streams
        self._permission_rule = permission_rule
        self.fragments = fragments
        self._sessions = sessions
        self._growing: dict[str, _GrowingPart] = {}
        self._fragments: OrderedDict[object, str] = OrderedDict()
        self._lock = asyncio.Lock()

    async def fragment(self, key: object, render: Callable[[T], str], record: T) -> str:
        """Return a record as HTML; rendered in a thread, once for all streams. A failure is logged, and shown."""
        async with self._lock:
            if (html := self._fragments.get(key)) is None:
                try:
                    html = str(await run_in_thread_uncancellable(render, record))
                except Exception:  # one record that cannot be shown must not end the streams of all sessions
                    log.exception("%s could not be rendered", key)
                    html = _NOT_SHOWN
                self._fragments[key] = html
                if len(self._fragments) > _CACHED_FRAGMENTS:
                    self._fragments.popitem(last=False)
            return html

    def part(self, part: Document) -> str:
        """Render a part. Synchronous."""
        session_id, sessions = str(part.get("sessionID")), self._sessions()
        try:
            directory = sessions.get(session_id).directory
            info = as_object(sessions.store.read(keys.message(session_id, str(part.get("messageID"))))) or {}
        except OpenseshError:
            directory, info = "", {}
        return self.fragments.part(part, directory, info.get("role") == "user")

    def growing(self, part_id: str, text: StreamingText, flush: int) -> StreamingMarkdown:
        """Return a streaming text as HTML, rendered at most once a flush."""
        part = self._growing.get(part_id)
        if part is None:
            for ended in [key for key in self._growing if self.streams.text(key) is None]:
                del self._growing[ended]
            render = self.fragments.markdown if text.part.get("type") == "text" else None
            part = self._growing[part_id] = _GrowingPart(StreamingMarkdown(render))
        if part.flush < flush:
            part.flush = flush
            part.advance(text)
        return part.markdown

    async def request(self, document: Document, *, as_html: bool) -> Document:
        """Describe a request that waits for the user, with the sessions that it belongs to."""
        request = await run_in_thread_uncancellable(self.read_request, document)
        request = request._replace(rule=self._permission_rule(document["id"]))
        session = request.session
        described: Document = {
            "id": document["id"],
            "kind": request.kind,
            "session": document["sessionID"],
            "ancestors": [ancestor.id for ancestor in request.ancestors],
            "title": session.title if session is not None else "",
            "directory": session.directory if session is not None else "",
            "request": document,
        }
        if as_html:
            described["html"] = await self.fragment(document["id"], self.fragments.request, request)
        return described

    def read_request(self, document: Document) -> UserRequest:
        """Read what a request belongs to. Synchronous."""
        sessions, session_id = self._sessions(), str(document["sessionID"])
        tool = object_at(document, "tool")
        try:
            session, ancestors = sessions.get(session_id), sessions.ancestors(session_id)
            parts = sessions.store.scan(("part", str(tool["messageID"]))) if "messageID" in tool else ()
            call = next((part for _, part in parts if part.get("callID") == tool.get("callID")), None)
        except OpenseshError:
            return UserRequest(document)
        return UserRequest(document, session, ancestors, call)


class _GrowingPart:
    """A streaming text, and how much of it has been rendered."""

    def __init__(self, markdown: StreamingMarkdown) -> None:
        self.markdown = markdown
        self.flush = -1
        self._length = 0

    def advance(self, text: StreamingText) -> None:
        if text.length > self._length:
            added = text.text[self._length :]
            self._length += len(added)
            self.markdown.feed(added)


class PageStream:
    """The stream of one viewer, of all directories: an asynchronous iterator of bytes to send."""

    directory: str | None = None

    def __init__(
        self,
        rendering: PageRendering,
        sessions: Collection[str],
        *,
        last_event_id: str | None,
        as_html: bool,
        running: Callable[[], tuple[Document, Iterable[Document]]],
    ) -> None:
        """Begins after ``last_event_id``, or with the next event.

        ``running`` returns the statuses of the sessions that run, by id, and the requests that wait.
        """
        self.streams = rendering.streams
        after = self.streams.position(last_event_id)
        self._is_incomplete = bool(last_event_id) and after is None
        """Whether the client asked for events that are not there any more."""
        self._subscription = self.streams.bus.subscribe(after=after)
        self.written = self._subscription.sequence
        """The number of the last event that has been written."""
        self._is_ended = False
        self._last_chunk = time.monotonic()
        self._rendering = rendering
        self._sessions = frozenset(sessions)
        self._as_html = as_html
        self._running = running
        self._seen: dict[str, ViewerPosition] = {}
        """How much of each streaming part the viewer has, by part id."""
        self._stored: dict[str, Document] = {}
        """The last record of each streaming part, by part id. It is final if the message completes without its end."""
        self._waiting: dict[str, None] = {}
        """The streaming parts that have grown since the last flush."""
        self._due: float | None = None
        """When they have to be sent, in monotonic seconds."""
        self.streams.add(self)

    def close(self) -> None:
        """End the stream."""
        self._is_ended = True
        self._subscription.close()

    async def __aiter__(self) -> AsyncIterator[bytes]:
        try:
            yield await self._beginning()
            while not self._is_ended:
                chunk = await self._next_chunk()
                if chunk:
                    self._last_chunk = time.monotonic()
                    yield chunk
                self.written = self._subscription.sequence
        finally:
            self._subscription.close()
            self.streams.forget(self)

    async def _next_chunk(self) -> bytes:
        """Wait for events, and return their frames; a heartbeat if nothing was sent for a while."""
        heartbeat = self._last_chunk + self.streams.heartbeat_seconds
        try:
            async with asyncio.timeout(max(min(self._due or heartbeat, heartbeat) - time.monotonic(), 0)):
                envelope: Envelope | None = await anext(self._subscription)
        except StopAsyncIteration:
            self._is_ended = True
            return b""
        except TimeoutError:
            if self._due is None or heartbeat < self._due:
                return self._frame("heartbeat", {}, self._subscription.sequence)
            return self._grown_parts()
        frames: list[bytes] = []
        while envelope is not None:
            described = await self._describe(envelope)
            frames += [self._frame(name, document, envelope.sequence) for name, document in described]
            if len(frames) >= _BATCH or self._is_ended:
                break
            envelope = self.streams.bus.next_after(self._subscription.sequence)
            if envelope is not None:
                self._subscription.sequence = envelope.sequence
        return b"".join(frames)

    async def _beginning(self) -> bytes:
        sequence = self._subscription.sequence
        statuses, requests = self._running()
        requests = list(requests)
        frames = [f"retry: {_RETRY_MS}\n".encode()]
        waiting = [request["id"] for request in requests]
        frames.append(self._frame("connected", {"running": statuses, "asks": waiting}, sequence))
        if self._is_incomplete:
            frames.append(self._frame("reset", {}, sequence))
        described = [await self._rendering.request(request, as_html=self._as_html) for request in requests]
        frames += [self._frame("ask", request, sequence) for request in described]
        for text in self.streams.texts():
            if text.part.get("sessionID") in self._sessions:
                self._waiting[str(text.part.get("id"))] = None
        return b"".join([*frames, self._grown_parts()])

    async def _describe(self, envelope: Envelope) -> list[tuple[str, Document]]:
        """Return the names and payloads of an event for viewers."""
        name: str
        payload: Document
        match envelope.event:
            case events.Missed():
                self._seen.clear()
                name, payload = "reset", {}
            case events.SessionCreated(info=info) | events.SessionUpdated(info=info):
                name, payload = "session", session_document(info)
            case events.SessionDeleted(info=info):
                name, payload = "session", {"id": info.get("id"), "removed": True}
            case events.SessionStatus(session_id=session_id, status=status):
                name, payload = "status", {"session": session_id, "status": status}
            case events.SessionError(session_id=session_id, error=error):
                name, payload = "status", {"session": session_id, "error": error}
            case events.PermissionAsked() | events.QuestionAsked():
                request = envelope.event.properties
                name, payload = "ask", await self._rendering.request(request, as_html=self._as_html)
            case events.PermissionReplied() | events.QuestionReplied() | events.QuestionRejected():
                reply = envelope.event.properties
                name, payload = "answered", {"session": reply.pop("sessionID"), "id": reply.pop("requestID"), **reply}
            case _:
                return await self._describe_content(envelope)
        return [(name, payload)]

    async def _describe_content(self, envelope: Envelope) -> list[tuple[str, Document]]:
        """Describe an event about the content of a session; nothing if it is not one of the viewer's."""
        match envelope.event:
            case events.TodoUpdated(session_id=session_id, todos=todos) if session_id in self._sessions:
                return [("todo", {"session": session_id, "todos": todos})]
            case events.MessageUpdated(info=info) if info.get("sessionID") in self._sessions:
                return await self._turn(info, envelope.sequence)
            case events.MessageRemoved(session_id=session_id, message_id=turn) if session_id in self._sessions:
                return [("op", {"op": "turn", "session": session_id, "turn": turn, "html": ""})]
            case events.PartUpdated(part=part) if part.get("sessionID") in self._sessions:
                return await self._part(part, envelope.sequence)
            case events.PartDelta(part_id=part_id, session_id=session_id) if session_id in self._sessions:
                self._wait(part_id)
            case events.PartRemoved(part_id=part_id, session_id=session_id) if session_id in self._sessions:
                self._forget(part_id)
                return [("op", {"op": "part", "session": session_id, "part": part_id, "html": ""})]
            case _:
                pass
        return []

    async def _turn(self, info: Document, sequence: int) -> list[tuple[str, Document]]:
        ids = {"session": info.get("sessionID"), "turn": info.get("id")}
        if self._as_html:
            html = await self._rendering.fragment(("turn", sequence), self._rendering.fragments.turn, info)
            described = [("op", {"op": "turn", **ids, "role": info.get("role"), "html": html})]
        else:
            described = [("turn", {**ids, "info": info})]
        if info.get("role") == "assistant" and info.get("finish") is not None:
            described.append(("usage", {**ids, "cost": info.get("cost"), "tokens": info.get("tokens")}))
        if is_completed(info):
            unfinished = [part for part in self._stored.values() if part.get("messageID") == info.get("id")]
            described += [await self._whole_part(part, sequence) for part in unfinished]
        return described

    async def _part(self, part: Document, sequence: int) -> list[tuple[str, Document]]:
        part_id = str(part.get("id"))
        is_streaming = self.streams.text(part_id) is not None
        if (
            part.get("type") in ("text", "reasoning")
            and not has_ended(part)
            and (is_streaming or part_id in self._seen)
        ):
            self._stored[part_id] = part
            if is_streaming:
                self._wait(part_id)
            return []  # a part that is not streaming any more has ended, and the event of its end follows
        return [await self._whole_part(part, sequence)]

    async def _whole_part(self, part: Document, sequence: int) -> tuple[str, Document]:
        part_id = str(part.get("id"))
        self._forget(part_id)
        ids = {"session": part.get("sessionID"), "turn": part.get("messageID"), "part": part_id}
        if self._as_html:
            html = await self._rendering.fragment((part_id, sequence), self._rendering.part, part)
            return "op", {"op": "part", **ids, "html": html}
        return "op", {"op": "part", **ids, "document": part}

    def _wait(self, part_id: str) -> None:
        """Send what was added to a part with the next flush."""
        self._waiting[part_id] = None
        if self._due is None:
            self._due = (math.floor(time.monotonic() / FLUSH_SECONDS) + 1) * FLUSH_SECONDS

    def _forget(self, part_id: str) -> None:
        self._waiting.pop(part_id, None)
        self._seen.pop(part_id, None)
        self._stored.pop(part_id, None)

    def _grown_parts(self) -> bytes:
        """Return the updates of the streaming parts that have grown since the last flush."""
        flush = math.floor(time.monotonic() / FLUSH_SECONDS + 0.5)
        waiting, self._waiting, self._due = self._waiting, {}, None
        sequence = self._subscription.sequence
        operations = (operation for part_id in waiting for operation in self._grown(part_id, flush))
        return b"".join(self._frame("op", operation, sequence) for operation in operations)

    def _grown(self, part_id: str, flush: int) -> list[Document]:
        """Return the operations by which a viewer gets the newest text of a part."""
        text, seen = self.streams.text(part_id), self._seen.get(part_id)
        if text is None:
            return []  # the part has ended, and the event of its end follows
        ids = {"session": text.part.get("sessionID"), "turn": text.part.get("messageID"), "part": part_id}
        operations: list[Document] = []
        if not self._as_html:
            start = 0 if seen is None else seen.chunks
            self._seen[part_id] = ViewerPosition(chunks=text.length)
            if seen is None:
                return [{"op": "part", **ids, "document": text.part | {"text": text.text}}]
            return [{"op": "text", **ids, "from": start, "s": text.text[start:]}]
        markdown = self._rendering.growing(part_id, text, flush)
        if seen is None:
            operations.append({"op": "part", **ids, "html": str(self._rendering.fragments.streaming_part(text.part))})
        operations += (one.document(part_id) | ids for one in markdown.operations(seen or ViewerPosition()))
        self._seen[part_id] = markdown.position
        return operations

    def _frame(self, name: str, payload: Document, sequence: int) -> bytes:
        event_id = self.streams.event_id(sequence)
        return f"id: {event_id}\nevent: {name}\ndata: ".encode() + dumps_compact(payload) + b"\n\n"


def session_document(info: Document) -> Document:
    """Return what lists and headers show of a session record."""
    times = object_at(info, "time")
    share, revert = object_at(info, "share"), as_object(info.get("revert"))
    return {
        "id": info.get("id"),
        "title": info.get("title"),
        "directory": info.get("directory"),
        "parent": info.get("parentID"),
        "updated": times.get("updated"),
        "archived": times.get("archived"),
        "share": share.get("url"),
        "revert": revert,
    }
