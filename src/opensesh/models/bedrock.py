"""Amazon Bedrock's Converse API."""

from __future__ import annotations

import os
from contextlib import aclosing
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from ..errors import ModelConnectionError
from . import bedrock_regions, failures
from .bedrock_prompt import body
from .eventstream import Decoder
from .sse import json_payload
from .stream_events import (
    Finish,
    FinishStep,
    ReasoningDelta,
    ReasoningEnd,
    ReasoningStart,
    Start,
    StartStep,
    TextDelta,
    TextEnd,
    TextStart,
    ToolInputDelta,
    ToolInputEnd,
    ToolInputStart,
    Usage,
)
from .transport import Transport, encode, ignore_break_after_finish, read_to_end
from .wire_helpers import nested, token_count, tool_call

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Mapping, Sequence

    from .aws import Signer
    from .eventstream import Message
    from .request import Request
    from .stream_events import FinishReason, Metadata, StreamEvent

_REASONS: dict[str, FinishReason] = {
    "end_turn": "stop",
    "stop_sequence": "stop",
    "tool_use": "tool-calls",
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    "content_filtered": "content-filter",
    "guardrail_intervened": "content-filter",
    "malformed_model_output": "error",
    "malformed_tool_use": "error",
}


class Bedrock:
    """Whatever models Bedrock serves in ``region``.

    An API key (given, or in ``AWS_BEARER_TOKEN_BEDROCK``) is sent as it is. Without one, requests are signed with AWS
    credentials, those of ``profile`` or the usual chain, which needs botocore (``opensesh[bedrock]``). The region is
    that of ``AWS_REGION`` or ``AWS_DEFAULT_REGION`` unless given, and ``us-east-1`` if nobody says; a model is asked
    for by the name it has there.
    """

    def __init__(
        self,
        api_key: str | None = None,
        *,
        region: str | None = None,
        profile: str | None = None,
        base_url: str | None = None,
        headers: Mapping[str, str] | None = None,
        transport: Transport | None = None,
    ) -> None:
        self._region = bedrock_regions.region(region)
        self._key = api_key or os.environ.get("AWS_BEARER_TOKEN_BEDROCK") or ""
        ending = "amazonaws.com.cn" if self._region.startswith("cn-") else "amazonaws.com"
        self._base_url = (base_url or f"https://bedrock-runtime.{self._region}.{ending}").rstrip("/")
        self._profile = profile
        self._own = {name.lower(): value for name, value in (headers or {}).items()}
        self._signer: Signer | None = None
        self._transport = transport or Transport()

    async def stream(self, request: Request) -> AsyncGenerator[StreamEvent, None]:
        """See :class:`~opensesh.models.request.Provider`."""
        provider_id = request.model.provider_id
        name = bedrock_regions.name_in(self._region, request.model.wire_id)
        url = f"{self._base_url}/model/{quote(name, safe='')}/converse-stream"
        content = encode(body(request))
        headers = await self._authorized(url, request, content)
        reader, decoder = Reader(provider_id, url), Decoder()
        async with aclosing(
            self._transport.raw(url, headers=headers, content=content, provider_id=provider_id)
        ) as chunks:
            with ignore_break_after_finish(lambda: reader.has_reason):
                async for chunk in chunks:
                    for message in decoder.feed(chunk):
                        for item in reader.read(message):
                            yield item
                    if reader.finished:
                        break
            await read_to_end(chunks)
        for item in reader.close():
            yield item

    async def aclose(self) -> None:
        """Close the connections this adapter keeps."""
        await self._transport.aclose()

    async def _authorized(self, url: str, request: Request, content: bytes) -> dict[str, str]:
        import asyncio

        asked = {name.lower(): value for name, value in request.headers.items()}
        headers = {
            "content-type": "application/json",
            "accept": "application/vnd.amazon.eventstream",
            **self._own,
            **asked,
        }
        if self._key:
            return {"authorization": f"Bearer {self._key}", **headers}
        if self._signer is None:
            from .aws import Signer

            self._signer = Signer("bedrock", self._region, self._profile)
        return await asyncio.to_thread(self._signer.sign, url, headers, content)


class _Block:
    """A content block while it grows."""

    __slots__ = ("id", "kind", "metadata", "name", "pieces")

    def __init__(self, kind: str, block_id: str, name: str = "") -> None:
        self.kind = kind
        self.id = block_id
        self.name = name
        self.pieces: list[str] = []
        self.metadata: Metadata | None = None


class Reader:
    """Turns the messages of one answer into the common vocabulary, one by one."""

    def __init__(self, provider_id: str = "", url: str = "") -> None:
        self._provider_id = provider_id
        self._url = url
        self._blocks: dict[int, _Block] = {}
        self._reason = ""
        self._usage: dict[str, Any] = {}
        self._begun = False
        self.finished = False
        """Whether the last message has come."""

    @property
    def has_reason(self) -> bool:
        """Whether it is known why the answer ended, after which only counts can follow."""
        return bool(self._reason)

    def read(self, message: Message) -> Sequence[StreamEvent]:
        """What ``message`` means; kinds that are not known here mean nothing."""
        kind = message.headers.get(":message-type", "event")
        if kind != "event":
            raise self._failure(message)
        wire = json_payload(message.payload.decode("utf-8", "replace"), self._url)
        try:
            return self._event(str(message.headers.get(":event-type")), wire)
        except (KeyError, TypeError, AttributeError) as error:
            raise failures.unreadable(encode(wire).decode(), self._url) from error

    def close(self) -> Sequence[StreamEvent]:
        """What is left when the stream has ended: the end itself, if the counts that follow it never came."""
        if self.finished:
            return ()
        if self.has_reason:
            return self._finish()
        raise failures.broken_off(self._url)

    def _event(self, kind: str, wire: dict[str, Any]) -> Sequence[StreamEvent]:
        if kind == "contentBlockDelta":
            return self._delta(wire["contentBlockIndex"], wire["delta"])
        begin: list[StreamEvent] = [] if self._begun else [Start(), StartStep()]
        self._begun = True
        match kind:
            case "contentBlockStart":
                begin += self._open(wire["contentBlockIndex"], wire["start"])
            case "contentBlockStop":
                begin += self._close(wire["contentBlockIndex"])
            case "messageStop":
                self._reason = wire["stopReason"]
            case "metadata":
                self._usage = wire["usage"]
                begin += self._finish() if self._reason else []
            case _:
                pass
        return begin

    def _open(self, index: int, start: dict[str, Any]) -> list[StreamEvent]:
        """Only tool calls are announced; words and thought begin with their first delta."""
        tool = start.get("toolUse")
        if not tool:
            return []
        block = self._blocks[index] = _Block("tool", tool["toolUseId"], tool["name"])
        return [ToolInputStart(block.id, block.name)]

    def _delta(self, index: int, delta: dict[str, Any]) -> Sequence[StreamEvent]:
        match delta:
            case {"text": str(text)}:
                begin = self._begin(index, "text")
                return (*begin, TextDelta(str(index), text)) if text else begin
            case {"toolUse": {"input": str(text)}}:
                block = self._blocks[index]
                block.pieces.append(text)
                return (ToolInputDelta(block.id, text),) if text else ()
            case {"reasoningContent": _}:
                return self._thought(index, delta["reasoningContent"])
            case _:
                return ()

    def _begin(self, index: int, kind: str) -> tuple[StreamEvent, ...]:
        if index in self._blocks:
            return ()
        block = self._blocks[index] = _Block(kind, str(index))
        return (TextStart(block.id) if kind == "text" else ReasoningStart(block.id),)

    def _thought(self, index: int, thought: dict[str, Any]) -> Sequence[StreamEvent]:
        begin = self._begin(index, "reasoning")
        block = self._blocks[index]
        match thought:
            case {"text": str(text)} if text:
                return (*begin, ReasoningDelta(block.id, text))
            case {"signature": str(signature)} if signature:
                block.metadata = {"bedrock": {"signature": signature}}
            case {"redactedContent": str(data)}:
                before = nested(block.metadata, "bedrock").get("redactedData", "")
                block.metadata = {"bedrock": {"redactedData": _joined(before, data)}}
            case _:
                pass
        return begin

    def _close(self, index: int) -> list[StreamEvent]:
        block = self._blocks.pop(index, None)
        match block and block.kind:
            case "text":
                return [TextEnd(str(index))]
            case "reasoning":
                return [ReasoningEnd(str(index), block and block.metadata)]
            case "tool" if block:
                return [ToolInputEnd(block.id), tool_call(block.id, block.name, "".join(block.pieces))]
            case _:
                return []

    def _finish(self) -> list[StreamEvent]:
        self.finished = True
        left = [event for index in list(self._blocks) for event in self._close(index)]
        reason = _REASONS.get(self._reason, "unknown")
        usage = _usage(self._usage)
        return [*left, FinishStep(reason, usage, {"bedrock": {"usage": self._usage}}), Finish(reason, usage)]

    def _failure(self, message: Message) -> Exception:
        headers = message.headers
        name = str(headers.get(":exception-type") or headers.get(":error-code") or "")
        try:
            said = json_payload(message.payload.decode("utf-8", "replace"), self._url)
        except ModelConnectionError:
            said = {"message": str(headers.get(":error-message") or message.payload.decode("utf-8", "replace"))}
        words = said.get("originalMessage") or said.get("message") or name
        wire = {"type": name, "code": said.get("originalStatusCode"), "message": words}
        return failures.from_stream_error(wire, self._provider_id, self._url)


def _joined(one: str, other: str) -> str:
    """The base64 of two pieces, each of which may end in padding."""
    from base64 import b64decode, b64encode

    return b64encode(b64decode(one) + b64decode(other)).decode() if one else other


def _usage(counts: dict[str, Any]) -> Usage:
    """Bedrock counts cached input apart from fresh, and thinking as output."""
    return Usage(
        input=token_count(counts.get("inputTokens")),
        output=token_count(counts.get("outputTokens")),
        cache_read=token_count(counts.get("cacheReadInputTokens")),
        cache_write=token_count(counts.get("cacheWriteInputTokens")),
        total=token_count(counts.get("totalTokens")) or None,
    )
