"""One model call: folds the events of its stream into the parts of an answer.

It does not know why there is a next call; :mod:`opensesh.engine.loop` does. A call that fails is retried here as long
as nothing in it can have had an effect. Once a tool has run, its result is kept: the call ends where it was
interrupted, and the next call continues from there.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, assert_never

from msgspec import Struct

from .. import ids
from ..errors import ModelError
from ..models import stream_events as stream
from ..models.token_estimates import estimate_length
from .call_costs import add_side_call, output_tokens
from .model_errors import failure_of, retry_delay_ms
from .session_writer import JOURNAL_SECONDS, StreamingPart

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    from ..models.model import Model
    from ..models.request import Provider, Request
    from ..records import Document
    from ..workspace.snapshots import Patch, PendingSnapshot
    from .components import Environment
    from .session_writer import AnswerWriter
    from .tool_calls import CallRunner


class ModelCallResult(Struct, frozen=True):
    """How a model call ended."""

    error: BaseException | None = None
    """What failed, if no retry succeeded."""
    called: bool = False
    """Whether the model called tools, so that it needs another step to see their results."""


@asynccontextmanager
async def closing_stream(
    events: AsyncIterator[stream.StreamEvent],
) -> AsyncGenerator[AsyncIterator[stream.StreamEvent]]:
    """Close the connection behind ``events`` in the task that reads them, also when they are not read to the end."""
    try:
        yield events
    finally:
        if isinstance(events, AsyncGenerator):
            await events.aclose()


async def read_text(
    provider: Provider, request: Request, on_finish: Callable[[stream.FinishStep], Awaitable[object]]
) -> str:
    """Send a request that is not part of the conversation, and return the text of its answer. ``on_finish`` is given
    the usage, which counts even if the text is not used."""
    texts: list[str] = []
    async with closing_stream(provider.stream(request)) as events:
        async for event in events:
            if isinstance(event, stream.TextDelta) and event.kind == "text":
                texts.append(event.text)
            elif isinstance(event, stream.FinishStep):
                await on_finish(event)
    return "".join(texts)


class ModelCall:
    """A single model call in progress."""

    def __init__(
        self, writer: AnswerWriter, calls: CallRunner, environment: Environment, set_status: Callable[[Document], None]
    ) -> None:
        self._writer = writer
        self._calls = calls
        self._settings = environment.settings
        self._hooks = environment.hooks
        self._set_status = set_status
        self._snapshots = environment.snapshots
        self._pending: PendingSnapshot | None = None
        """The snapshot before the step. It begins with the request, so that the first token does not wait for it."""
        self._streaming: dict[str, StreamingPart] = {}
        self._tool_parts: dict[str, Document] = {}
        self._step_start: str | None = None
        self._finished: stream.FinishStep | None = None
        self._group: asyncio.TaskGroup | None = None
        self._called = self._compared = False

    async def run(self, provider: Provider, request: Request) -> ModelCallResult:
        """Make the call, with retries, and store what it returns. What arrived is kept if this is cancelled."""
        attempt = 0
        try:
            await self._discard_attempt()
            while True:
                self._pending = self._snapshots.begin()
                error = await self._attempt(provider, request)
                if error is None or self._called:
                    return await self._end(request.model, error)
                attempt += 1
                delay = retry_delay_ms(self._settings.retry, error, attempt)
                if delay is None:
                    return ModelCallResult(error=error)
                await self._discard_attempt()
                now = ids.now_ms()
                if not self._settings.opencode_events:
                    await self._writer.add_retry(attempt, failure_of(error, request.model.provider_id), now)
                self._set_status({"type": "retry", "attempt": attempt, "message": error.message, "next": now + delay})
                await self._settings.sleep(delay / 1000)
                self._set_status({"type": "busy"})
        except asyncio.CancelledError:
            await self._break_off(request.model)
            raise
        finally:
            await self._store_streaming(is_interrupted=self._settings.opencode_events)

    async def _break_off(self, model: Model) -> None:
        """Record what a call that is cancelled has cost and changed."""
        if self._pending is not None and self._pending.done:  # an abort does not wait for that of a large project
            await self._add_snapshot(self._pending)
        await self._writer.break_off_call(self._received_tokens())
        if self._finished is not None:  # record usage even though the tools were cancelled
            if self._settings.opencode_events:  # as in OpenCode, the message itself has no cost then
                add_side_call(self._writer.info, self._writer.ended_call)
            else:
                finished, self._finished = self._finished, None  # it must not be charged twice
                await self._writer.finish_step(finished, model, None)
        if self._called and not self._compared and self._pending is not None:
            _, patch = await self._snapshot_after(self._pending)
            if patch is not None:
                await self._writer.add_patch(patch)

    async def _attempt(self, provider: Provider, request: Request) -> ModelError | None:
        """Make one attempt. Tools start as soon as their call is complete, and are waited for."""
        failure: ModelError | None = None
        is_over = asyncio.Event()
        await self._writer.begin_call(request)
        async with asyncio.TaskGroup() as self._group:
            self._group.create_task(self._journal_until(is_over))
            try:
                async with closing_stream(provider.stream(request)) as events:
                    async for event in events:
                        await self._fold(event)
                        if isinstance(event, stream.FinishStep):
                            await self._writer.end_call(event.usage, request.model)
            except ModelError as error:
                failure = error
                # A provider that answers with an error charges nothing.
                await self._writer.break_off_call(self._received_tokens() if self._step_start is not None else None)
            is_over.set()
        return failure

    def _received_tokens(self) -> int:
        """Estimate the tokens that the call in progress has returned."""
        streaming = {part.id: part.length for part in self._streaming.values()}
        complete = [part for part_id, part in self._writer.parts.items() if part_id not in streaming]
        return output_tokens(complete) + sum(map(estimate_length, streaming.values()))

    async def _journal_until(self, is_over: asyncio.Event) -> None:
        """Write streamed text to its journals until the stream is over, and once more then: tools may still run."""
        while not is_over.is_set():
            with suppress(TimeoutError):
                async with asyncio.timeout(JOURNAL_SECONDS):
                    await is_over.wait()
            await self._writer.journal(self._streaming.values())

    async def _fold(self, event: stream.StreamEvent) -> None:
        match event:
            case stream.TextStart() | stream.TextDelta() | stream.TextEnd():
                await self._fold_text(event)
            case stream.ToolInputStart() | stream.ToolCall():
                await self._fold_call(event)
            case stream.ToolResult() | stream.ToolError():
                await self._fold_result(event)
            case stream.StartStep():
                snapshot = None
                if self._pending is not None:
                    await self._pending.wait(self._settings.snapshot_start_seconds)
                    snapshot = await self._pending.result() if self._pending.done else None
                self._step_start = await self._writer.start_step(snapshot)
            case stream.FinishStep():
                self._finished = event
            case stream.ToolInputDelta():
                pass
            case _:
                assert_never(event)

    async def _fold_text(self, event: stream.TextEvent) -> None:
        kind, key = event.kind, f"{event.kind} {event.id}"  # a text and a reasoning may have the same id
        if isinstance(event, stream.TextStart):
            self._streaming[key] = StreamingPart(kind, self._writer.info, event.metadata)
            return
        part = self._streaming.get(key)
        if part is None:
            return
        if isinstance(event, stream.TextDelta):
            part.add(event.text)
            await self._writer.append(part, event.text)
            return
        part.add("", event.metadata)
        text = part.end() if kind == "text" else None
        if text is not None and self._hooks.plugins.have_hooks:
            text = await self._hooks.text(self._writer.info, part.id, text)
        # Only now: a cancellation while a plugin completes the text keeps the text.
        del self._streaming[key]
        await self._store_ended(part, text)

    async def _fold_result(self, event: stream.ToolResult | stream.ToolError) -> None:
        """Store the result of a tool that the provider ran itself."""
        part = self._tool_parts.get(event.id)
        if part is not None and isinstance(event, stream.ToolError):
            await self._calls.fail(part["id"], event.error)
        elif part is not None and isinstance(event, stream.ToolResult):
            await self._calls.complete(part["id"], event.output)

    async def _fold_call(self, event: stream.ToolInputStart | stream.ToolCall) -> None:
        part = self._tool_parts.get(event.id)
        if part is None:
            part = self._tool_parts[event.id] = self._writer.new_tool_part(event.name, event.id)
            await self._writer.put(part)
        if not isinstance(event, stream.ToolCall):
            return
        if event.executed:  # by the provider, which sends the result too
            await self._calls.start(part, event)
            return
        self._called = True
        del self._tool_parts[event.id]  # some servers reuse ids; another call of this id is another call
        if self._pending is not None:
            await self._add_snapshot(self._pending)
        if self._group is not None:
            run = self._calls.run(part, event)
            try:
                self._group.create_task(run)
            except RuntimeError:
                # Another call has failed, and the group is being cancelled. This call was not started: its part is
                # closed with the answer.
                run.close()
                raise asyncio.CancelledError from None

    async def _store_ended(self, part: StreamingPart, text: str | None = None, *, is_interrupted: bool = False) -> None:
        """Store a part that has ended, with ``text`` instead of its own. An empty one is removed."""
        document = part.document(end=True)
        if text is not None:
            document["text"] = text
        if document["text"] or document.get("metadata"):
            await self._writer.put(document, is_interrupted=is_interrupted)
        else:
            await self._writer.drop(part.id)

    async def _end(self, model: Model, error: ModelError | None) -> ModelCallResult:
        """Store what is open, and record why the call ended. What the model did counts more than the reason it gave: if
        it called tools it needs to see the results, and if it called none it is done."""
        await self._store_streaming()
        finished = self._finished or stream.FinishStep(reason="unknown")
        if self._called or finished.reason in ("tool-calls", "unknown"):
            reason: stream.FinishReason = "tool-calls" if self._called else "other"
            finished = stream.FinishStep(reason=reason, usage=finished.usage)
        snapshot, patch = None, None
        if self._pending is not None:
            await self._add_snapshot(self._pending)
            snapshot, patch = await self._snapshot_after(self._pending)
        self._finished = None  # before the write: if that is cancelled it is complete, and must not be charged twice
        await self._writer.finish_step(finished, model, snapshot)
        self._compared = True
        # Without a tool call, files that changed meanwhile were not changed by the model.
        if patch is not None and self._called:
            await self._writer.add_patch(patch)
        final_error = error if error is not None and not error.retryable else None
        return ModelCallResult(error=final_error, called=self._called)

    async def _snapshot_after(self, pending: PendingSnapshot) -> tuple[str | None, Patch | None]:
        """Take a snapshot after the step, and return it and what has changed since the one before."""
        snapshots = self._snapshots
        before = await pending.result(self._settings.snapshot_timeout_seconds)
        if before is None:
            return None, None

        def compare() -> tuple[str | None, Patch | None]:
            now = snapshots.track()
            patch = snapshots.changed(before, now) if now is not None else None
            return now, patch if patch is not None and patch.files else None

        # Can be abandoned, unlike the engine's other blocking calls: it writes nothing that a session needs.
        return await asyncio.to_thread(compare)

    async def _add_snapshot(self, pending: PendingSnapshot) -> None:
        """Record the snapshot before the step, if there is one in time and the step's part does not name it yet."""
        part = self._writer.parts.get(self._step_start or "")
        snapshot = await pending.result(self._settings.snapshot_timeout_seconds)
        if part is not None and snapshot is not None and "snapshot" not in part:
            await self._writer.put(part | {"snapshot": snapshot})

    async def _store_streaming(self, *, is_interrupted: bool = False) -> None:
        """Store the texts that are still open, as far as they were received."""
        for part in self._streaming.values():
            if part.is_stored or part.has_unstored_text:
                await self._store_ended(part, is_interrupted=is_interrupted)
        self._streaming.clear()

    async def _discard_attempt(self) -> None:
        """Remove the parts of a failed attempt, so that the next one does not repeat them."""
        for part_id in list(self._writer.parts):
            if self._writer.parts[part_id]["type"] != "retry":
                await self._writer.drop(part_id)
        self._streaming.clear()
        self._tool_parts.clear()
        self._step_start = self._finished = None
