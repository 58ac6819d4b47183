"""Amazon Bedrock's Converse API: adapter, request signing, and the binary event stream."""

from __future__ import annotations

import asyncio
import os
from base64 import b64decode, b64encode
from contextlib import aclosing
from importlib import import_module
from struct import Struct, error
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import quote
from zlib import crc32

from ..errors import AuthFailedError, ModelConnectionError
from . import failures
from .answers import AnswerReader, StreamedPiece
from .bedrock_request import aws_region, regional_model_id, request_body
from .sse import ServerSentEvent, json_payload
from .stream_events import FinishStep, Usage
from .transport import HTTPProvider
from .wire_helpers import encode_json, lower_names, nested, token_count

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Mapping

    from .request import Request
    from .stream_events import FinishReason, TextKind
    from .transport import Transport, WireAnswer

MAX_MESSAGE_BYTES = 24 * 1024 * 1024
"""The largest message of an event stream; a length above it is noise."""

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
_NEEDS_BOTOCORE = (
    "Signing requests for Amazon needs botocore: pip install botocore (with pipx: pipx inject opensesh botocore); "
    "or set AWS_BEARER_TOKEN_BEDROCK to an API key, which needs no signing."
)
_NO_CREDENTIALS = (
    "No AWS credentials were found. Set AWS_BEARER_TOKEN_BEDROCK, or AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, "
    "or sign in to a profile (aws sso login)."
)
_PRELUDE = Struct("!III")
_CRC = Struct("!I")
_LENGTH = Struct("!H")
_BYTES, _TEXT = 6, 7
_HEADER_SIZES = {0: 0, 1: 0, 2: 1, 3: 2, 4: 4, 5: 8, 8: 8, 9: 16}
"""Bytes of the other types of headers: booleans, numbers, a time, a UUID."""


class Bedrock(HTTPProvider):
    """Provider for the models that Bedrock serves in ``region``.

    An API key (the argument, or ``AWS_BEARER_TOKEN_BEDROCK``) is sent as a bearer token. Without one, requests are
    signed with AWS credentials, those of ``profile`` or of the usual chain, which needs botocore
    (``opensesh[bedrock]``). The region defaults to ``AWS_REGION``, ``AWS_DEFAULT_REGION``, then ``us-east-1``.
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
        super().__init__(transport)
        self._region = aws_region(region)
        self._key = api_key or os.environ.get("AWS_BEARER_TOKEN_BEDROCK") or ""
        domain = "amazonaws.com.cn" if self._region.startswith("cn-") else "amazonaws.com"
        self._base_url = (base_url or f"https://bedrock-runtime.{self._region}.{domain}").rstrip("/")
        self._headers = {
            "content-type": "application/json",
            "accept": "application/vnd.amazon.eventstream",
            **lower_names(headers),
        }
        self._signer = RequestSigner("bedrock", self._region, profile)

    async def send(self, request: Request, provider_id: str) -> WireAnswer:
        model_id = regional_model_id(self._region, request.model.wire_id)
        url = f"{self._base_url}/model/{quote(model_id, safe='')}/converse-stream"
        content = encode_json(request_body(request))
        headers = {**self._headers, **lower_names(request.headers)}
        if self._key:
            headers = {"authorization": f"Bearer {self._key}", **headers}
        else:
            headers = await asyncio.to_thread(self._signer.sign, url, headers, content)
        chunks = self._transport.raw(url, headers=headers, content=content, provider_id=provider_id)
        return _events(chunks, provider_id, url), BedrockReader(provider_id, url)


async def _events(
    chunks: AsyncGenerator[bytes, None], provider_id: str, url: str
) -> AsyncGenerator[ServerSentEvent, None]:
    """Yield the events of a response, and raise the exception that it reports."""
    decoder = EventStreamDecoder()
    async with aclosing(chunks):
        async for chunk in chunks:
            for headers, payload in decoder.feed(chunk):
                data = payload.decode("utf-8", "replace")
                if headers.get(":message-type", "event") == "event":
                    yield ServerSentEvent(headers.get(":event-type", ""), data)
                    continue
                name = headers.get(":exception-type") or headers.get(":error-code") or ""
                try:
                    body = json_payload(data, url)
                except ModelConnectionError:
                    body = {"message": headers.get(":error-message") or data}
                reason = body.get("originalMessage") or body.get("message") or name
                wire = {"type": name, "code": body.get("originalStatusCode"), "message": reason}
                raise failures.from_stream_error(wire, provider_id, url)


class RequestSigner:
    """Signs requests with Signature Version 4, by botocore.

    Looking up credentials may read files and use the network, so call :meth:`sign` from a thread. They are kept, and
    renewed when they expire.
    """

    def __init__(self, service: str, region: str, profile: str | None = None) -> None:
        self._service = service
        self._region = region
        self._profile = profile
        self._credentials: Any = None

    def sign(self, url: str, headers: Mapping[str, str], content: bytes) -> dict[str, str]:
        """Return ``headers`` with the signature of a POST of ``content``; raises :class:`AuthFailedError`."""
        try:
            auth, awsrequest = import_module("botocore.auth"), import_module("botocore.awsrequest")
            exceptions = import_module("botocore.exceptions")
        except ImportError as problem:
            raise AuthFailedError(_NEEDS_BOTOCORE) from problem
        request = awsrequest.AWSRequest(method="POST", url=url, data=content, headers=dict(headers))
        try:
            if self._credentials is None:
                self._credentials = import_module("botocore.session").Session(profile=self._profile).get_credentials()
            if self._credentials is None:
                raise AuthFailedError(_NO_CREDENTIALS)
            frozen = self._credentials.get_frozen_credentials()
            auth.SigV4Auth(frozen, self._service, self._region).add_auth(request)
        except (exceptions.BotoCoreError, exceptions.ClientError) as problem:
            raise AuthFailedError(f"AWS credentials could not be used: {problem}") from problem
        return {str(name): str(value) for name, value in request.headers.items()}


class BedrockReader(AnswerReader):
    """Reads one answer of the Converse API."""

    def __init__(self, provider_id: str, url: str) -> None:
        super().__init__(provider_id, url)
        self._blocks: dict[int, StreamedPiece] = {}
        self._reason = ""
        self._usage: dict[str, Any] = {}

    def convert(self, wire: dict[str, Any], name: str) -> None:
        match name:
            case "contentBlockDelta":
                self._delta(wire["contentBlockIndex"], wire["delta"])
            case "contentBlockStart":
                # Only tool calls are announced; text and reasoning begin with their first delta.
                tool = wire["start"].get("toolUse")
                if tool:
                    self._blocks[wire["contentBlockIndex"]] = self.answer.begin_call(tool["toolUseId"], tool["name"])
            case "contentBlockStop":
                if (block := self._blocks.pop(wire["contentBlockIndex"], None)) is not None:
                    block.end()
            case "messageStop":
                self._reason = wire["stopReason"]
                self.complete = bool(self._reason)
            case "metadata":
                self._usage = wire["usage"]
                if self.complete:
                    self.end()
            case _:
                pass

    def _delta(self, index: int, delta: dict[str, Any]) -> None:
        match delta:
            case {"text": str(text)}:
                self._text(index, "text").add(text)
            case {"toolUse": {"input": str(text)}}:
                self._blocks[index].add(text)
            case {"reasoningContent": _}:
                self._reasoning(self._text(index, "reasoning"), delta["reasoningContent"])
            case _:
                pass

    def _text(self, index: int, kind: TextKind) -> StreamedPiece:
        if index not in self._blocks:
            self._blocks[index] = self.answer.begin_text(kind, str(index))
        return self._blocks[index]

    def _reasoning(self, block: StreamedPiece, delta: dict[str, Any]) -> None:
        match delta:
            case {"text": str(text)} if text:
                block.add(text)
            case {"signature": str(signature)} if signature:
                block.metadata = {"bedrock": {"signature": signature}}
            case {"redactedContent": str(data)}:
                before = nested(block.metadata, "bedrock").get("redactedData", "")
                # Each chunk of base64 may end in padding.
                joined = b64encode(b64decode(before) + b64decode(data)).decode() if before else data
                block.metadata = {"bedrock": {"redactedData": joined}}
            case _:
                pass

    def finish(self) -> None:
        for block in self._blocks.values():
            block.end()
        reason = _REASONS.get(self._reason, "unknown")
        # Cached input is counted apart from the rest; thinking is part of the output.
        usage = Usage(
            input=token_count(self._usage.get("inputTokens")),
            output=token_count(self._usage.get("outputTokens")),
            cache_read=token_count(self._usage.get("cacheReadInputTokens")),
            cache_write=token_count(self._usage.get("cacheWriteInputTokens")),
            total=token_count(self._usage.get("totalTokens")) or None,
        )
        self.answer.events.append(FinishStep(reason, usage))


class EventStreamMessage(NamedTuple):
    """One message of Amazon's event stream: the headers that are text, and the payload."""

    headers: dict[str, str]
    """The protocol's own begin with a colon."""
    payload: bytes


class EventStreamDecoder:
    """Splits a byte stream into messages; a wrong checksum raises :class:`ModelConnectionError`.

    A message is its length, the length of its headers and a checksum of both; then headers, payload, and a checksum of
    everything.
    """

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, chunk: bytes) -> list[EventStreamMessage]:
        """Return the messages that ``chunk`` completes."""
        self._buffer += chunk
        messages: list[EventStreamMessage] = []
        while len(self._buffer) >= _PRELUDE.size:
            length, headers, checksum = _PRELUDE.unpack_from(self._buffer)
            if crc32(self._buffer[:8]) != checksum:
                message = "The response is not an event stream, or was damaged (checksum of a prelude)"
                raise ModelConnectionError(message)
            if length > MAX_MESSAGE_BYTES or headers > length - _PRELUDE.size - _CRC.size:
                raise ModelConnectionError(f"The stream announces an impossible message of {length} bytes")
            if len(self._buffer) < length:
                break
            messages.append(_message(bytes(self._buffer[:length])))
            del self._buffer[:length]
        return messages


def _message(data: bytes) -> EventStreamMessage:
    _, size, _ = _PRELUDE.unpack_from(data)
    body, (checksum,) = data[: -_CRC.size], _CRC.unpack_from(data, len(data) - _CRC.size)
    if crc32(body) != checksum:
        raise ModelConnectionError("The stream was damaged (checksum of a message)")
    at, end = _PRELUDE.size, _PRELUDE.size + size
    headers: dict[str, str] = {}
    try:
        while at < end:
            name_end = at + 1 + body[at]
            name, kind, start = body[at + 1 : name_end].decode(), body[name_end], name_end + 1
            if kind in (_BYTES, _TEXT):
                start += _LENGTH.size
                value_end = start + _LENGTH.unpack_from(body, start - _LENGTH.size)[0]
            else:
                value_end = start + _HEADER_SIZES[kind]
            if kind == _TEXT:
                headers[name] = body[start:value_end].decode()
            at = value_end
    except (error, LookupError, ValueError) as problem:
        raise ModelConnectionError(f"The stream has unreadable headers: {problem!r}") from problem
    if at != end:
        raise ModelConnectionError("The stream has unreadable headers: one of them is too long")
    return EventStreamMessage(headers, body[end:])
