"""Transports of MCP servers: standard input and output of a program, streamable HTTP, and the older SSE."""

from __future__ import annotations

import os
import shutil
import sys
import threading
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import httpx2

from ...errors import ToolFailedError
from ...flags import SERVER_LOGIN_VARIABLES
from ...models.auth import model_key_variables
from ...models.transport import ssl_context
from . import supervisor
from .conversion import repair_tools
from .login import McpLogin

if TYPE_CHECKING:
    import asyncio
    from collections.abc import AsyncGenerator, Callable, Mapping
    from contextlib import AbstractAsyncContextManager
    from types import TracebackType

    from mcp.client._transport import ReadStream, TransportStreams
    from mcp.shared.message import SessionMessage

    from ...config import McpConfig

_MAX_STDERR_BYTES = 2_000
"""Bytes kept from the end of a server's standard error."""


class McpTransport(NamedTuple):
    """A way to connect, to be tried."""

    open: Callable[[], AbstractAsyncContextManager[TransportStreams]]
    mode: str
    """``auto`` negotiates the protocol version, ``legacy`` starts with the older one."""
    explain: Callable[[], str]
    """Returns what the server itself reported about a failure."""


def transports(name: str, config: McpConfig, directory: str, variables: Mapping[str, str]) -> list[McpTransport]:
    """Return the transports to try, the best first. Raises :class:`ToolFailedError` if there is none."""
    if config.is_remote:
        if not config.url:
            raise ToolFailedError(f"mcp.{name} in the configuration has no url")
        return _remote(name, config, config.url)
    if not config.command:
        raise ToolFailedError(f"mcp.{name} in the configuration has no command")
    return _local(config, config.command, directory, variables)


# A local program.


def _local(config: McpConfig, command: list[str], directory: str, variables: Mapping[str, str]) -> list[McpTransport]:
    from mcp.client.stdio import StdioServerParameters, stdio_client

    environment = environment_for(config, variables)
    cwd = working_directory(config, directory)
    name = command[0]
    if os.sep in name and not os.path.isabs(name):
        name = os.path.join(cwd, name)
    program = shutil.which(name, path=environment.get("PATH"))
    if program is None:
        raise ToolFailedError(f"program not found: {name}")
    words = [program, *command[1:]]
    if os.name == "posix" and sys.executable:
        words = [sys.executable, "-I", "-S", supervisor.__file__, str(os.getpid()), *words]
    server = StdioServerParameters(
        command=words[0], args=words[1:], env=environment, cwd=cwd, encoding_error_handler="replace"
    )
    tail = _StderrTail()

    @asynccontextmanager
    async def connect() -> AsyncGenerator[TransportStreams]:
        with tail.file() as errors:
            async with stdio_client(server, errlog=errors) as streams:
                errors.close()  # the server has its own descriptor
                yield streams

    # An old server may end at the newer handshake; then the older one is tried.
    return [McpTransport(connect, "auto", tail.text), McpTransport(connect, "legacy", tail.text)]


def environment_for(config: McpConfig, variables: Mapping[str, str]) -> dict[str, str]:
    """Return the environment of a program: ours without the keys of model providers and the login of a server, which it
    has no use for, then ``variables``, then what its ``environment`` sets."""
    keys = model_key_variables() | SERVER_LOGIN_VARIABLES
    inherited = {name: value for name, value in os.environ.items() if name not in keys}
    return {**inherited, **variables, **config.environment}


def working_directory(config: McpConfig, directory: str) -> str:
    """Return the directory that the program runs in."""
    return os.path.join(directory, os.path.expanduser(config.cwd)) if config.cwd else directory


class _StderrTail:
    """The end of a server's standard error. A thread reads it: an unread pipe would block the server, and a file would
    grow."""

    def __init__(self) -> None:
        self._kept = b""

    def file(self) -> Any:
        """Return a file for the server to write to; what was kept before is dropped."""
        self._kept = b""
        reader, writer = os.pipe()

        def read() -> None:
            with os.fdopen(reader, "rb", buffering=0) as pipe:
                while chunk := pipe.read(1 << 14):
                    self._kept = (self._kept + chunk)[-_MAX_STDERR_BYTES:]

        threading.Thread(target=read, daemon=True, name="mcp-stderr").start()
        return os.fdopen(writer, "w")

    def text(self) -> str:
        """Return the kept text."""
        return self._kept.decode("utf-8", "replace").strip()


# HTTP.


def _remote(name: str, config: McpConfig, url: str) -> list[McpTransport]:
    from mcp.client.sse import sse_client
    from mcp.client.streamable_http import streamable_http_client

    guard = _HttpClients(name, config, url)

    @asynccontextmanager
    async def streamable() -> AsyncGenerator[TransportStreams]:
        async with guard.client() as client, streamable_http_client(url, http_client=client) as streams:
            yield streams

    @asynccontextmanager
    async def events() -> AsyncGenerator[TransportStreams]:
        async with sse_client(url, httpx_client_factory=guard.client, sse_read_timeout=3600.0) as streams:
            yield streams

    return [McpTransport(streamable, "auto", guard.explain), McpTransport(events, "legacy", guard.explain)]


class _HttpClients:
    """Creates HTTP clients with the login, and records whether the server refuses it."""

    def __init__(self, name: str, config: McpConfig, url: str) -> None:
        self._headers = dict(config.headers)
        self._status: int | None = None
        self._login = McpLogin(name, config, url) if config.uses_oauth else None

    def client(
        self,
        headers: dict[str, str] | None = None,
        timeout: httpx2.Timeout | None = None,
        auth: httpx2.Auth | None = None,
    ) -> httpx2.AsyncClient:
        """Create a client, with the parameters that the SDK passes."""

        async def record_status(response: httpx2.Response) -> None:
            self._status = response.status_code if response.status_code >= 400 else self._status

        return httpx2.AsyncClient(
            headers={**self._headers, **(headers or {})},
            # The timeout of a call limits the answer, not the transport.
            timeout=timeout or httpx2.Timeout(30.0, read=None),
            auth=self._login or auth,
            verify=ssl_context(),
            event_hooks={"response": [record_status]},
        )

    def explain(self) -> str:
        """Return the HTTP error. Raises if the server refused the login."""
        if self._login is not None and self._login.failure is not None:
            raise self._login.failure
        return f"HTTP {self._status}" if self._status else ""


# The end of a connection.


@asynccontextmanager
async def watched(
    transport: AbstractAsyncContextManager[TransportStreams], ended: asyncio.Event
) -> AsyncGenerator[TransportStreams]:
    """Wrap ``transport`` so that ``ended`` is set when the server's side ends."""
    async with transport as (read, write):
        yield _WatchedStream(read, ended), write


class _WatchedStream:
    """A stream that signals its end, and that repairs invalid tool descriptions (:func:`repair_tools`)."""

    def __init__(self, stream: ReadStream[SessionMessage | Exception], ended: asyncio.Event) -> None:
        self._stream = stream
        self._ended = ended

    @property
    def last_context(self) -> Any:
        """An attribute that the SDK reads from some of its streams."""
        return getattr(self._stream, "last_context", None)

    async def receive(self) -> SessionMessage | Exception:
        """Return the next message."""
        return await self._stream.receive()

    async def aclose(self) -> None:
        """Close the stream."""
        await self._stream.aclose()

    def __aiter__(self) -> _WatchedStream:
        return self

    async def __anext__(self) -> SessionMessage | Exception:
        try:
            item = await self._stream.__anext__()
        except BaseException:
            self._ended.set()
            raise
        result: Any = None if isinstance(item, Exception) else getattr(item.message, "result", None)
        if isinstance(result, dict) and "tools" in result:
            repair_tools(cast("dict[str, Any]", result))
        return item

    async def __aenter__(self) -> _WatchedStream:
        await self._stream.__aenter__()
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc_val: BaseException | None, exc_tb: TracebackType | None
    ) -> bool | None:
        self._ended.set()
        return await self._stream.__aexit__(exc_type, exc_val, exc_tb)
