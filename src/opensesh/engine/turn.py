"""One model call: folds the events of a stream into the parts of an answer.

Knows nothing of why there is a next call; :mod:`opensesh.engine.loop` does. A call that fails is tried again here, as
long as nothing of it can have had an effect. Once a tool has run, its answer is kept: the call ends where it broke
off, and the next one goes on from there.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, assert_never

from msgspec import Struct

from .. import ids
from ..errors import ModelError
from ..models import stream_events as stream
from ..records import Created, RetryPart, write_failure
from .failures import failure_of
from .growing import StreamingPart

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    from ..models.model import Model
    from ..models.request import Provider, Request
    from ..records import Document
    from ..workspace import Patch
    from .answer_writer import AnswerWriter
    from .calls import CallRunner
    from .retry import RetryPolicy
    from .status import Status
    from .stepfiles import StepFiles


class Ended(Struct, frozen=True):
    """How a model call ended."""

    error: BaseException | None = None
    """What went wrong, if it was not mended by trying again."""
    usage: stream.Usage = stream.Usage()
    called: bool = False
    """Whether the model called tools, so that it wants to see what they answered."""


@asynccontextmanager
async def closed_after(events: AsyncIterator[stream.StreamEvent]) -> AsyncGenerator[AsyncIterator[stream.StreamEvent]]:
    """``events``, and the end of the connection they come over once nobody reads them any more."""
    try:
        yield events
    finally:
        if isinstance(events, AsyncGenerator):
            await events.aclose()


class Turn:
    """One model call under way, with one hand to write it down."""

    def __init__(
        self,
        writer: AnswerWriter,
        calls: CallRunner,
        *,
        policy: RetryPolicy,
        status: Status,
        files: StepFiles,
        sleep: Callable[[float], Awaitable[object]] = asyncio.sleep,
        complete: Callable[[Document, str, str], Awaitable[str]] | None = None,
    ) -> None:
        self._writer = writer
        self._calls = calls
        self._policy = policy
        self._status = status
        self._files = files
        self._step_start: str | None = None
        self._sleep = sleep
        self._complete = complete
        self._growing: dict[str, StreamingPart] = {}
        self._tools: dict[str, Document] = {}
        self._finished: stream.FinishStep | None = None
        self._group: asyncio.TaskGroup | None = None
        self._called = self._compared = False

    async def run(self, provider: Provider, request: Request) -> Ended:
        """Ask, and write down what comes; try again while that makes sense. What came before the end is kept, also
        when this is cancelled."""
        try:
            return await self._tries(provider, request)
        except asyncio.CancelledError:
            if self._finished is not None:  # the model is done and wants to be paid, whatever became of its tools
                await self._step_finished(self._finished, request.model, None)
            if self._called and not self._compared:
                await self._changed((await self._files.after()).patch)
            raise
        finally:
            await self._keep()

    async def _tries(self, provider: Provider, request: Request) -> Ended:
        attempt = 0
        await self._take_back()
        while True:
            self._files.begin()
            error = await self._attempt(provider, request)
            if error is None or self._called:
                return await self._end(request.model, error)
            attempt += 1
            reason = self._policy.reason(error, attempt)
            if reason is None:
                return Ended(error=error)
            await self._take_back()
            await self._wait(error, attempt, reason, request.model)

    async def _attempt(self, provider: Provider, request: Request) -> ModelError | None:
        """One try. Tools start as soon as their call is complete, and are waited for."""
        broken: ModelError | None = None
        async with asyncio.TaskGroup() as self._group:
            try:
                async with closed_after(provider.stream(request)) as events:
                    async for event in events:
                        await self._fold(event)
            except ModelError as error:
                broken = error
        return broken

    async def _end(self, model: Model, error: ModelError | None) -> Ended:
        """Close what is open, and say why it ended. What the model did counts, whatever the reason it gave: one that
        called tools wants to see the results, and one that called none has said its last word."""
        await self._keep()
        finished = self._finished or stream.FinishStep(reason="unknown")
        if self._called or finished.reason in ("tool-calls", "unknown"):
            reason: stream.FinishReason = "tool-calls" if self._called else "other"
            finished = stream.FinishStep(reason=reason, usage=finished.usage, metadata=finished.metadata)
        await self._note_snapshot()
        files = await self._files.after()
        await self._step_finished(finished, model, files.snapshot)
        # Without a call nothing that changed meanwhile is the model's doing.
        await self._changed(files.patch if self._called else None)
        lasting = error if error is not None and not error.retryable else None
        return Ended(error=lasting, usage=finished.usage, called=self._called)

    async def _step_finished(self, finished: stream.FinishStep, model: Model, snapshot: str | None) -> None:
        """Written to its end once begun, so whoever is cancelled meanwhile must not write, and charge, it again."""
        self._finished = None
        await self._writer.step_finished(finished, model, snapshot)

    async def _changed(self, patch: Patch | None) -> None:
        self._compared = True
        await self._writer.changed(patch)

    async def _keep(self) -> None:
        """Store what was said and not finished, as far as it got."""
        for part in self._growing.values():
            if part.is_stored or part.has_more:
                await self._close(part)
        self._growing.clear()

    async def _take_back(self) -> None:
        """Remove what a try left that came to nothing, so that the next one does not say it twice."""
        for part_id in list(self._writer.parts):
            if self._writer.parts[part_id]["type"] != "retry":
                await self._writer.drop(part_id)
        self._growing.clear()
        self._tools.clear()
        self._finished = None

    async def _wait(self, error: ModelError, attempt: int, reason: str, model: Model) -> None:
        delay = self._policy.delay(error, attempt)
        now = ids.now_ms()
        info = self._writer.info
        part = RetryPart(
            id=ids.ascending("prt"),
            session_id=info["sessionID"],
            message_id=info["id"],
            attempt=attempt,
            error=write_failure(failure_of(error, model.provider_id)),
            time=Created(created=now),
        )
        await self._writer.put(part.document)
        self._status.retrying(attempt, reason, now + delay)
        await self._sleep(delay / 1000)
        self._status.busy()

    async def _fold(self, event: stream.StreamEvent) -> None:
        match event:
            case stream.TextStart() | stream.ReasoningStart():
                self._open(event)
            case stream.TextDelta() | stream.ReasoningDelta():
                await self._grow(event)
            case stream.TextEnd() | stream.ReasoningEnd():
                await self._ended(event)
            case stream.ToolInputStart() | stream.ToolCall():
                await self._tool(event)
            case stream.ToolResult() | stream.ToolError():
                await self._answered(event)
            case stream.StartStep():
                known = await self._files.before() if self._files.ready else None
                self._step_start = await self._writer.step_started(known)
            case stream.FinishStep():
                self._finished = event
            case stream.Error():
                raise ModelError(event.message)
            case stream.Start() | stream.Finish() | stream.ToolInputDelta() | stream.ToolInputEnd():
                pass
            case _:
                assert_never(event)

    def _open(self, event: stream.TextStart | stream.ReasoningStart) -> None:
        kind = "text" if isinstance(event, stream.TextStart) else "reasoning"
        self._growing[f"{kind} {event.id}"] = StreamingPart(kind, self._writer.info, event.metadata)

    async def _grow(self, event: stream.TextDelta | stream.ReasoningDelta) -> None:
        kind = "text" if isinstance(event, stream.TextDelta) else "reasoning"
        part = self._growing.get(f"{kind} {event.id}")
        if part is not None:
            part.add(event.text, event.metadata)
            await self._writer.grow(part, event.text)

    async def _ended(self, event: stream.TextEnd | stream.ReasoningEnd) -> None:
        kind = "text" if isinstance(event, stream.TextEnd) else "reasoning"
        part = self._growing.get(f"{kind} {event.id}")
        if part is not None:
            part.add("", event.metadata)
            said = part.end()
            text = await self._complete(self._writer.info, part.id, said) if self._complete and kind == "text" else said
            # Only now: whoever is cancelled in between keeps what was said.
            del self._growing[f"{kind} {event.id}"]
            await self._close(part, None if text == said else text)

    async def _close(self, part: StreamingPart, instead: str | None = None) -> None:
        document = part.document(end=True)
        if instead is not None:
            document["text"] = instead
        if document["text"] or document.get("metadata"):
            await self._writer.put(document)
        else:
            await self._writer.drop(part.id)

    async def _tool(self, event: stream.ToolInputStart | stream.ToolCall) -> None:
        part = self._tools.get(event.id)
        if part is None:
            part = await self._pending(event.id, event.name)
        if isinstance(event, stream.ToolCall):
            if event.executed:
                await self._calls.running(part, event)
                return
            self._called = True
            del self._tools[event.id]  # another call of that id, from a server that does not count, is another call
            await self._note_snapshot()
            if self._group is not None:
                self._group.create_task(self._calls.run(part, event))

    async def _note_snapshot(self) -> None:
        """See that the step says what the files were before it, if it does not yet."""
        part = self._writer.parts.get(self._step_start or "")
        snapshot = await self._files.before()
        if part is not None and snapshot is not None and "snapshot" not in part:
            await self._writer.put(part | {"snapshot": snapshot})

    async def _pending(self, call_id: str, name: str) -> Document:
        part = self._writer.new_call(name, call_id)
        self._tools[call_id] = part
        await self._writer.put(part)
        return part

    async def _answered(self, event: stream.ToolResult | stream.ToolError) -> None:
        """A tool that the provider ran itself."""
        part = self._tools.get(event.id)
        if part is None:
            return
        if isinstance(event, stream.ToolError):
            await self._calls.failed(part["id"], event.error, event.metadata)
        else:
            await self._calls.completed(part["id"], event.output, event.title, event.metadata, event.attachments)
