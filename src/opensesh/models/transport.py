"""The wire: one POST, one stream of bytes or events back, and errors that say what broke.

Proxies (``HTTPS_PROXY``, ``HTTP_PROXY``, ``ALL_PROXY``, ``NO_PROXY``) and certificates (``SSL_CERT_FILE`` or
``SSL_CERT_DIR``, and ``NODE_EXTRA_CA_CERTS`` in addition) are taken from the environment at the first request.
"""

from __future__ import annotations

import logging
import os
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import msgspec

from ..errors import ModelConnectionError, ModelError
from ..text import error_text
from . import failures
from .sse import ServerSentEvent, SSESplitter, replace_surrogates

if TYPE_CHECKING:
    import asyncio
    import ssl
    from collections.abc import AsyncGenerator, AsyncIterator, Callable, Generator, Mapping

    import httpx2

log = logging.getLogger("opensesh.models")

IDLE_TIMEOUT_SECONDS = 300.0
"""Seconds of silence to bear, unless someone says otherwise."""

_BAD_HEADER = "A header holds a character that HTTP cannot carry; was the key pasted whole, and nothing else?"
_LINGER = 0.25
"""Seconds to wait for the end of a stream whose last event has come."""
_encode = msgspec.json.Encoder().encode


class Transport:
    """Asks providers, and hands on what they stream. One serves many requests at once, within one event loop.

    Nothing here is tried twice. Every generator owns its connection: closing it, or cancelling the task that
    reads it, drops the connection at once. An adapter that reads one inside a generator of its own must close it
    with :func:`contextlib.aclosing`, since Python closes nested generators only when it collects them.
    """

    def __init__(
        self,
        *,
        client: httpx2.AsyncClient | None = None,
        timeout: float | None = None,
        idle_timeout: float | None = IDLE_TIMEOUT_SECONDS,
        connect_timeout: float | None = 30.0,
    ) -> None:
        """Seconds, and ``None`` for ever: ``timeout`` for a whole answer, ``idle_timeout`` for silence before or
        within it, ``connect_timeout`` until the server is reached.

        A ``client`` that is passed in stays the caller's to close.
        """
        self._client = client
        self._owned = client is None
        self._timeout = timeout
        self._idle_timeout = idle_timeout
        self._connect_timeout = connect_timeout

    async def sse(
        self, url: str, *, headers: Mapping[str, str], body: Mapping[str, Any], provider_id: str = ""
    ) -> AsyncGenerator[ServerSentEvent, None]:
        """POST ``body`` as JSON and yield the events of the answer.

        A stream that merely ends raises nothing: only the adapter knows which event should have been the last.
        One that held no event at all is an error here, told by what came instead.
        """
        from contextlib import aclosing

        splitter = SSESplitter()
        head = b""
        silent = True
        asked = {"content-type": "application/json", "accept": "text/event-stream", **_lower(headers)}
        async with aclosing(self.raw(url, headers=asked, content=encode(body), provider_id=provider_id)) as chunks:
            async for chunk in chunks:
                if silent and len(head) < failures.BODY_LIMIT:
                    head += chunk
                for event in splitter.feed(chunk):
                    silent = False
                    yield event
        for event in splitter.close():
            silent = False
            yield event
        if silent:
            said = failures.scrub(head.decode("utf-8", "replace"), failures.secrets_in(url, headers))
            raise _no_stream(said, url, provider_id)

    async def raw(
        self, url: str, *, headers: Mapping[str, str], content: bytes, provider_id: str = ""
    ) -> AsyncGenerator[bytes, None]:
        """POST ``content`` as it is and yield the bytes of the answer as they come, decompressed."""
        import httpx2

        deadline = None if self._timeout is None else time.monotonic() + self._timeout
        try:
            request = self._request(url, headers, content)
            async with _within(deadline):
                response = await self._connected().send(request, stream=True)
            try:
                if not response.is_success:
                    raise await self._refused(response, deadline, provider_id)
                async for chunk in _bytes(response, deadline):
                    yield chunk
            finally:
                await response.aclose()
        except (httpx2.HTTPError, httpx2.StreamError, OSError) as error:
            raise self._broken(error, url, headers) from None

    async def aclose(self) -> None:
        """Close what this transport opened. Streams still being read end with an error."""
        if self._client is not None and self._owned:
            client, self._client = self._client, None
            await client.aclose()

    def _connected(self) -> httpx2.AsyncClient:
        if self._client is None:
            import httpx2

            limits = httpx2.Limits(max_connections=None, max_keepalive_connections=20, keepalive_expiry=30)
            with proxy_errors():
                self._client = httpx2.AsyncClient(verify=ssl_context(), limits=limits)
        return self._client

    def _request(self, url: str, headers: Mapping[str, str], content: bytes) -> httpx2.Request:
        import httpx2

        limits = httpx2.Timeout(self._idle_timeout, connect=self._connect_timeout, pool=self._connect_timeout)
        try:
            return self._connected().build_request("POST", url, content=content, headers=dict(headers), timeout=limits)
        except UnicodeEncodeError:  # which quotes the header
            raise ModelError(_BAD_HEADER) from None
        except (httpx2.InvalidURL, ValueError) as error:
            raise ModelError(f"The address of the provider cannot be used: {error}") from error

    async def _refused(self, response: httpx2.Response, deadline: float | None, provider_id: str) -> ModelError:
        import httpx2

        body = b""
        try:
            async for chunk in _bytes(response, deadline):
                body += chunk
                if len(body) >= failures.BODY_LIMIT:
                    break
        except (httpx2.HTTPError, httpx2.StreamError, TimeoutError):
            log.debug("The body of a %d answer broke off", response.status_code)
        url = str(response.request.url)
        secrets = failures.secrets_in(url, response.request.headers)
        text = failures.scrub(body.decode("utf-8", "replace"), secrets)
        return failures.from_response(response.status_code, response.headers, text, url, provider_id)

    def _broken(self, error: Exception, url: str, headers: Mapping[str, str]) -> ModelError:
        import httpx2

        where = failures.public_url(url)
        said = failures.scrub(error_text(error), failures.secrets_in(url, headers))
        retryable = True
        match error:
            case httpx2.ConnectTimeout() | httpx2.PoolTimeout():
                message = f"{where} could not be reached within {self._connect_timeout} s"
            case httpx2.TimeoutException():
                message = f"{where} was silent for {self._idle_timeout} s"
            case TimeoutError():
                message = f"{where} took longer than {self._timeout} s"
            case httpx2.LocalProtocolError():  # its words quote the header, which may be the one with the key
                message = _BAD_HEADER
                retryable = False
            case httpx2.UnsupportedProtocol():
                message = f"{where} cannot be asked: {said}"
                retryable = False
            case httpx2.ConnectError() | httpx2.ProxyError():
                message = f"{where} could not be reached: {said}"
            case _:
                message = f"The connection to {where} broke: {said}"
        return ModelConnectionError(message, url=where, retryable=retryable)


@contextmanager
def ignore_break_after_finish(is_complete: Callable[[], object]) -> Generator[None]:
    """Read an answer; a connection that breaks after the reason for its end has come takes nothing away from it."""
    try:
        yield
    except ModelConnectionError:
        if not is_complete():
            raise


async def read_to_end(stream: AsyncIterator[object]) -> None:
    """Read what is left after the last event, which is nothing, so that the connection can serve the next request."""
    from asyncio import timeout

    try:
        async with timeout(_LINGER):
            async for _ in stream:
                pass
    except (TimeoutError, ModelError):
        pass  # the answer is complete: how the connection ends does not matter any more


def encode(value: object) -> bytes:
    """``value`` as JSON. Half characters, which no provider takes, become U+FFFD."""
    try:
        return _encode(value)
    except UnicodeEncodeError:
        import json

        return replace_surrogates(json.dumps(msgspec.to_builtins(value), ensure_ascii=False)).encode()


def _lower(headers: Mapping[str, str]) -> dict[str, str]:
    return {name.lower(): value for name, value in headers.items()}


def _bytes(response: httpx2.Response, deadline: float | None) -> AsyncIterator[bytes]:
    return response.aiter_bytes() if deadline is None else _until(deadline, response.aiter_bytes())


async def _until(deadline: float, chunks: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """``chunks``, with :class:`TimeoutError` when the time is up; never while the reader is busy with one."""
    while True:
        async with _within(deadline):
            chunk = await anext(chunks, None)
        if chunk is None:
            return
        yield chunk


def _within(deadline: float | None) -> asyncio.Timeout:
    import asyncio

    return asyncio.timeout(None if deadline is None else max(0.0, deadline - time.monotonic()))


def ssl_context() -> ssl.SSLContext:
    """The system's certificates, or those of ``SSL_CERT_FILE``; and ``NODE_EXTRA_CA_CERTS`` in addition."""
    import httpx2

    try:
        context = httpx2.create_ssl_context()
    except OSError as error:
        named = {name: os.environ[name] for name in ("SSL_CERT_FILE", "SSL_CERT_DIR") if os.environ.get(name)}
        raise ModelError(f"The certificates named by {named} cannot be read: {error}") from error
    extra = os.environ.get("NODE_EXTRA_CA_CERTS")
    if extra:
        try:
            context.load_verify_locations(extra)
        except OSError as error:
            log.warning("NODE_EXTRA_CA_CERTS=%s cannot be read and is passed over: %s", extra, error)
    return context


@contextmanager
def proxy_errors() -> Generator[None]:
    """Around the making of a client, which reads the environment: a proxy that is of no use is a
    :class:`ModelError`."""
    import httpx2

    try:
        yield
    except ImportError as error:
        needs = "The environment names a SOCKS proxy, for which a package is missing: pip install socksio"
        raise ModelError(needs) from error
    except (ValueError, httpx2.InvalidURL) as error:
        raise ModelError(f"A proxy that the environment names cannot be used: {error}") from error


def _no_stream(head: str, url: str, provider_id: str) -> ModelError:
    """The error for an answer of 200 that was no stream of events, told by its ``head`` without secrets."""
    where = failures.public_url(url)
    text = head.strip()
    if text[:1] in ("{", "["):
        return failures.from_stream_error(text, provider_id, url)
    if text[:1] == "<":
        return ModelError(f"{where}: {failures.WEB_PAGE}", body=head, url=where)
    message = f"{where} closed the connection without an answer"
    return ModelConnectionError(message, body=head, url=where)
