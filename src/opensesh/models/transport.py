"""HTTP transport of the provider adapters: one POST, one stream of bytes or events back.

Proxies (``HTTPS_PROXY``, ``HTTP_PROXY``, ``ALL_PROXY``, ``NO_PROXY``) and certificates (``SSL_CERT_FILE`` or
``SSL_CERT_DIR``, and ``NODE_EXTRA_CA_CERTS`` in addition) are taken from the environment at the first request.
"""

from __future__ import annotations

import asyncio
import logging
import os
import time
from contextlib import aclosing, contextmanager
from typing import TYPE_CHECKING, Any

import httpx2

from ..errors import ModelConnectionError, ModelError
from ..text import error_text
from . import failures
from .answers import read_answer
from .request import IDLE_TIMEOUT_SECONDS
from .sse import ServerSentEvent, SSESplitter
from .wire_helpers import encode_json, lower_names

if TYPE_CHECKING:
    import ssl
    from collections.abc import AsyncGenerator, AsyncIterator, Generator, Mapping

    from .answers import AnswerReader
    from .request import Request
    from .stream_events import StreamEvent

    WireAnswer = tuple[AsyncGenerator[ServerSentEvent, None], AnswerReader]
    """The events of a response, and the reader that understands them."""

log = logging.getLogger("opensesh.models")

_BAD_HEADER = "A header contains a character that HTTP does not allow; check the key for stray characters"
_CONNECT_SECONDS = 30.0
"""How long reaching a server may take."""


class Transport:
    """Sends requests to providers and streams the responses; many at once, within one event loop.

    Nothing is retried. Every generator owns its connection: closing it, or cancelling the task that reads it, drops the
    connection at once. An adapter that reads one inside a generator of its own must close it with
    :func:`contextlib.aclosing`, since Python closes nested generators only when it collects them.
    """

    def __init__(
        self,
        *,
        client: httpx2.AsyncClient | None = None,
        timeout: float | None = None,
        idle_timeout: float | None = IDLE_TIMEOUT_SECONDS,
    ) -> None:
        """Timeouts are in seconds, ``None`` for no limit: ``timeout`` for a whole response, ``idle_timeout`` for
        silence before or within it.

        The caller closes a ``client`` that is passed in.
        """
        self._client = client
        self._owned = client is None
        self._timeout = timeout
        self._idle_timeout = idle_timeout

    async def sse(
        self, url: str, *, headers: Mapping[str, str], body: Mapping[str, Any], provider_id: str = ""
    ) -> AsyncGenerator[ServerSentEvent, None]:
        """POST ``body`` as JSON and yield the events of the response.

        A stream that ends early raises nothing here: only the adapter knows which event should have been the last.
        A response without any event is an error, described by what came instead.
        """
        splitter = SSESplitter()
        head = b""
        empty = True
        headers = {"content-type": "application/json", "accept": "text/event-stream", **lower_names(headers)}
        async with aclosing(
            self.raw(url, headers=headers, content=encode_json(body), provider_id=provider_id)
        ) as chunks:
            async for chunk in chunks:
                if empty and len(head) < failures.BODY_LIMIT:
                    head += chunk
                for event in splitter.feed(chunk):
                    empty = False
                    yield event
        for event in splitter.close():
            empty = False
            yield event
        if empty:
            text = failures.scrub(head.decode("utf-8", "replace"), failures.secrets_in(url, headers))
            where = failures.public_url(url)
            if text.lstrip()[:1] in ("{", "["):
                raise failures.from_stream_error(text.strip(), provider_id, url)
            if text.lstrip()[:1] == "<":
                raise ModelError(f"{where}: {failures.WEB_PAGE}", body=text, url=where)
            message = f"{where} closed the connection without a response"
            raise ModelConnectionError(message, body=text, url=where)

    async def raw(
        self, url: str, *, headers: Mapping[str, str], content: bytes, provider_id: str = ""
    ) -> AsyncGenerator[bytes, None]:
        """POST ``content`` and yield the bytes of the response as they come, decompressed."""
        deadline = None if self._timeout is None else time.monotonic() + self._timeout
        try:
            request = self._request(url, headers, content)
            async with _timeout_at(deadline):
                response = await self._connected().send(request, stream=True)
            try:
                if not response.is_success:
                    raise await self._status_error(response, deadline, provider_id)
                async for chunk in _body(response, deadline):
                    yield chunk
            finally:
                await response.aclose()
        except (httpx2.HTTPError, httpx2.StreamError, OSError) as error:
            raise self._connection_error(error, url, headers) from None

    async def aclose(self) -> None:
        """Close the connections. Streams that are still being read end with an error."""
        if self._client is not None and self._owned:
            client, self._client = self._client, None
            await client.aclose()

    def _connected(self) -> httpx2.AsyncClient:
        if self._client is None:
            limits = httpx2.Limits(max_connections=None, max_keepalive_connections=20, keepalive_expiry=30)
            with proxy_errors():
                self._client = httpx2.AsyncClient(verify=ssl_context(), limits=limits)
        return self._client

    def _request(self, url: str, headers: Mapping[str, str], content: bytes) -> httpx2.Request:
        limits = httpx2.Timeout(self._idle_timeout, connect=_CONNECT_SECONDS, pool=_CONNECT_SECONDS)
        try:
            return self._connected().build_request("POST", url, content=content, headers=dict(headers), timeout=limits)
        except UnicodeEncodeError:  # its text quotes the header, which may be the key
            raise ModelError(_BAD_HEADER) from None
        except (httpx2.InvalidURL, ValueError) as error:
            raise ModelError(f"The URL of the provider is invalid: {error}") from error

    async def _status_error(self, response: httpx2.Response, deadline: float | None, provider_id: str) -> ModelError:
        body = b""
        try:
            async for chunk in _body(response, deadline):
                body += chunk
                if len(body) >= failures.BODY_LIMIT:
                    break
        except (httpx2.HTTPError, httpx2.StreamError, TimeoutError):
            log.debug("The body of a %d response is incomplete", response.status_code)
        url = str(response.request.url)
        secrets = failures.secrets_in(url, response.request.headers)
        text = failures.scrub(body.decode("utf-8", "replace"), secrets)
        return failures.from_response(response.status_code, response.headers, text, url, provider_id)

    def _connection_error(self, error: Exception, url: str, headers: Mapping[str, str]) -> ModelError:
        where = failures.public_url(url)
        detail = failures.scrub(error_text(error), failures.secrets_in(url, headers))
        retryable = True
        match error:
            case httpx2.ConnectTimeout() | httpx2.PoolTimeout():
                message = f"{where} could not be reached within {_CONNECT_SECONDS} s"
            case httpx2.TimeoutException():
                message = f"{where} was silent for {self._idle_timeout} s"
            case TimeoutError():
                message = f"{where} took longer than {self._timeout} s"
            case httpx2.LocalProtocolError():  # its text quotes the header, which may be the key
                message = _BAD_HEADER
                retryable = False
            case httpx2.UnsupportedProtocol():
                message = f"{where} cannot be reached: {detail}"
                retryable = False
            case httpx2.ConnectError() | httpx2.ProxyError():
                message = f"{where} could not be reached: {detail}"
            case _:
                message = f"The connection to {where} broke: {detail}"
        return ModelConnectionError(message, url=where, retryable=retryable)


class HTTPProvider:
    """Base of the adapters: sends one request and reads its answer."""

    def __init__(self, transport: Transport | None, provider_id: str = "") -> None:
        self._transport = transport or Transport()
        self._provider_id = provider_id

    async def stream(self, request: Request) -> AsyncGenerator[StreamEvent, None]:
        """See :class:`~opensesh.models.request.Provider`."""
        wire, reader = await self.send(request, self._provider_id or request.model.provider_id)
        async with aclosing(read_answer(wire, reader)) as events:
            async for event in events:
                yield event

    async def send(self, request: Request, provider_id: str) -> WireAnswer:
        """Return the response to ``request``, and the reader that understands it."""
        raise NotImplementedError

    async def aclose(self) -> None:
        """Close the connections of this adapter."""
        await self._transport.aclose()


async def _body(response: httpx2.Response, deadline: float | None) -> AsyncIterator[bytes]:
    """Yield the body; :class:`TimeoutError` comes at the deadline, but never while the caller handles a chunk."""
    chunks = response.aiter_bytes()
    while True:
        async with _timeout_at(deadline):
            chunk = await anext(chunks, None)
        if chunk is None:
            return
        yield chunk


def _timeout_at(deadline: float | None) -> asyncio.Timeout:
    return asyncio.timeout(None if deadline is None else max(0.0, deadline - time.monotonic()))


def ssl_context() -> ssl.SSLContext:
    """Return a context with the system's certificates or those of ``SSL_CERT_FILE``, plus ``NODE_EXTRA_CA_CERTS``."""
    try:
        context = httpx2.create_ssl_context()
    except OSError as error:
        variables = {name: os.environ[name] for name in ("SSL_CERT_FILE", "SSL_CERT_DIR") if os.environ.get(name)}
        raise ModelError(f"The certificates of {variables} cannot be read: {error}") from error
    extra = os.environ.get("NODE_EXTRA_CA_CERTS")
    if extra:
        try:
            context.load_verify_locations(extra)
        except OSError as error:
            log.warning("NODE_EXTRA_CA_CERTS=%s cannot be read and is ignored: %s", extra, error)
    return context


@contextmanager
def proxy_errors() -> Generator[None]:
    """Wrap the creation of a client, which reads the environment: an unusable proxy raises :class:`ModelError`."""
    try:
        yield
    except ImportError as error:
        message = "The environment names a SOCKS proxy, which needs a package: pip install socksio"
        raise ModelError(message) from error
    except (ValueError, httpx2.InvalidURL) as error:
        raise ModelError(f"A proxy in the environment cannot be used: {error}") from error
