"""The ways to reach a server: a program's standard input and output, or HTTP, the newer form of it before the older."""

from __future__ import annotations

import os
import shutil
import sys
import threading
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from ...errors import ToolFailedError
from . import supervisor
from .conversion import mend_tools
from .login import login

if TYPE_CHECKING:
    import asyncio
    from collections.abc import AsyncGenerator, Callable, Mapping
    from contextlib import AbstractAsyncContextManager
    from types import TracebackType

    import httpx2
    from mcp.client._transport import ReadStream, TransportStreams
    from mcp.shared.message import SessionMessage

    from ...config import McpConfig

_TAIL = 2_000
"""How many of the last bytes that a server wrote to its standard error are kept."""


class McpLoginRequiredError(ToolFailedError):
    """A remote server wants to know who asks."""


class Transport(NamedTuple):
    """One way, to be tried."""

    open: Callable[[], AbstractAsyncContextManager[TransportStreams]]
    mode: str
    """``auto`` finds out which protocol the server speaks, ``legacy`` begins with the older one."""
    explain: Callable[[], str]
    """What the server itself had to say, after it failed."""


def transports(name: str, config: McpConfig, directory: str, variables: Mapping[str, str]) -> list[Transport]:
    """The ways to reach a server, the best first. Raises what says why there is none."""
    if is_remote(config):
        if not config.url:
            raise ToolFailedError(f"mcp.{name} in the configuration has no url")
        return _remote(name, config, config.url)
    if not config.command:
        raise ToolFailedError(f"mcp.{name} in the configuration has no command")
    return _local(config, config.command, directory, variables)


def is_remote(config: McpConfig) -> bool:
    """Whether it is an address rather than a program."""
    return config.type == "remote" or (config.type is None and bool(config.url))


# -- a program ---------------------------------------------------------------------------------------------------------


def _local(config: McpConfig, command: list[str], directory: str, variables: Mapping[str, str]) -> list[Transport]:
    from mcp.client.stdio import StdioServerParameters, stdio_client

    environment = {**os.environ, **variables, **config.environment}
    place = working_directory(config, directory)
    found = _program(command[0], place, environment.get("PATH"))
    words = [found, *command[1:]]
    if os.name == "posix" and sys.executable:
        words = [sys.executable, "-I", "-S", supervisor.__file__, str(os.getpid()), *words]
    server = StdioServerParameters(
        command=words[0], args=words[1:], env=environment, cwd=place, encoding_error_handler="replace"
    )
    tail = _Tail()

    @asynccontextmanager
    async def opened() -> AsyncGenerator[TransportStreams]:
        with tail.file() as errors:
            async with stdio_client(server, errlog=errors) as streams:
                errors.close()  # the server has its own
                yield streams

    # One that breaks off at the newer greeting, which it cannot know, is greeted as servers used to be.
    return [Transport(opened, "auto", tail.text), Transport(opened, "legacy", tail.text)]


def working_directory(config: McpConfig, directory: str) -> str:
    """Where a program runs, in a session that works in ``directory``."""
    return os.path.join(directory, os.path.expanduser(config.cwd)) if config.cwd else directory


def _program(name: str, directory: str, path: str | None) -> str:
    if os.sep in name and not os.path.isabs(name):
        name = os.path.join(directory, name)
    found = shutil.which(name, path=path)
    if found is None:
        raise ToolFailedError(f"there is no program {name}")
    return found


class _Tail:
    """The end of what a server writes to its standard error. A thread reads it: a pipe nobody reads stops the server,
    and a file would grow."""

    def __init__(self) -> None:
        self._kept = b""

    def file(self) -> Any:
        """Where a server may write, from the beginning."""
        self._kept = b""
        reader, writer = os.pipe()
        threading.Thread(target=self._read, args=(reader,), daemon=True, name="mcp-stderr").start()
        return os.fdopen(writer, "w")

    def _read(self, reader: int) -> None:
        with os.fdopen(reader, "rb", buffering=0) as pipe:
            while chunk := pipe.read(1 << 14):
                self._kept = (self._kept + chunk)[-_TAIL:]

    def text(self) -> str:
        """What there is of it."""
        return self._kept.decode("utf-8", "replace").strip()


# -- HTTP --------------------------------------------------------------------------------------------------------------


def _remote(name: str, config: McpConfig, url: str) -> list[Transport]:
    from mcp.client.sse import sse_client
    from mcp.client.streamable_http import streamable_http_client

    guard = _Guard(name, config, url)

    @asynccontextmanager
    async def streamable() -> AsyncGenerator[TransportStreams]:
        async with guard.client() as client, streamable_http_client(url, http_client=client) as streams:
            yield streams

    @asynccontextmanager
    async def events() -> AsyncGenerator[TransportStreams]:
        async with sse_client(url, httpx_client_factory=guard.client, sse_read_timeout=3600.0) as streams:
            yield streams

    return [Transport(streamable, "auto", guard.explain), Transport(events, "legacy", guard.explain)]


class _Guard:
    """Makes HTTP clients that carry the login, and notices when a server does not take it."""

    def __init__(self, name: str, config: McpConfig, url: str) -> None:
        self._name = name
        self._headers = dict(config.headers)
        self._refused = False
        self._status: int | None = None
        self._expired = False
        if config.oauth is not False and not any(each.lower() == "authorization" for each in self._headers):
            found = login(name, url)
            self._expired = found.expired
            if found.token is not None:
                self._headers["Authorization"] = f"Bearer {found.token.reveal()}"

    def client(
        self,
        headers: dict[str, str] | None = None,
        timeout: httpx2.Timeout | None = None,
        auth: httpx2.Auth | None = None,
    ) -> httpx2.AsyncClient:
        """A client, as the SDK asks for one."""
        import httpx2

        from ...models.transport import ssl_context

        return httpx2.AsyncClient(
            headers={**self._headers, **(headers or {})},
            # How long an answer may take is for the call to say, not for the wire.
            timeout=timeout or httpx2.Timeout(30.0, read=None),
            auth=auth,
            verify=ssl_context(),
            event_hooks={"response": [self._note]},
        )

    async def _note(self, response: httpx2.Response) -> None:
        self._status = response.status_code if response.status_code >= 400 else self._status
        self._refused |= response.status_code == 401

    def explain(self) -> str:
        """Raises :class:`McpLoginRequiredError` where that is what is wrong."""
        if self._refused:
            why = "the login has expired" if self._expired else "it wants a login"
            raise McpLoginRequiredError(
                f"{why}: log in with 'opencode mcp auth {self._name}', or put a token into mcp.{self._name}.headers"
            )
        return f"HTTP {self._status}" if self._status else ""


# -- and when it ends --------------------------------------------------------------------------------------------------


@asynccontextmanager
async def watched(
    transport: AbstractAsyncContextManager[TransportStreams], ended: asyncio.Event
) -> AsyncGenerator[TransportStreams]:
    """``transport``, with word of when the server's side of it ends."""
    async with transport as (read, write):
        yield _Watched(read, ended), write


class _Watched:
    """A stream that tells of its end, and on which a tool that is described badly does not cost the others."""

    def __init__(self, stream: ReadStream[SessionMessage | Exception], ended: asyncio.Event) -> None:
        self._stream = stream
        self._ended = ended

    @property
    def last_context(self) -> Any:
        """What the SDK looks for on some of its streams."""
        return getattr(self._stream, "last_context", None)

    async def receive(self) -> SessionMessage | Exception:
        """The next one."""
        return await self._stream.receive()

    async def aclose(self) -> None:
        """Read no more."""
        await self._stream.aclose()

    def __aiter__(self) -> _Watched:
        return self

    async def __anext__(self) -> SessionMessage | Exception:
        try:
            item = await self._stream.__anext__()
        except BaseException:
            self._ended.set()
            raise
        result: Any = None if isinstance(item, Exception) else getattr(item.message, "result", None)
        if isinstance(result, dict) and "tools" in result:
            mend_tools(cast("dict[str, Any]", result))
        return item

    async def __aenter__(self) -> _Watched:
        await self._stream.__aenter__()
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc_val: BaseException | None, exc_tb: TracebackType | None
    ) -> bool | None:
        self._ended.set()
        return await self._stream.__aexit__(exc_type, exc_val, exc_tb)
