"""One MCP server: started when it is first needed, and again when it is needed after it ended.

A single task owns the connection (:meth:`McpServer._run`), because what the SDK opens must be closed by the task that
opened it. The task ends when the server's side ends or when it is cancelled; the SDK then ends the program.
"""

from __future__ import annotations

import asyncio
import logging
import math
import time
from importlib import import_module
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeVar, cast

from msgspec import Struct

from ... import events
from ...errors import OpenseshError, ToolFailedError
from .conversion import McpTool, contents
from .login import McpLoginRequiredError
from .saved_logins import logins_stamp
from .transports import transports, watched

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from anyio import CancelScope
    from mcp import Client
    from mcp_types import CallToolResult, Prompt, Resource

    from ...config import McpConfig
    from .conversion import Progress, ResourceContent
    from .transports import McpTransport

log = logging.getLogger("opensesh.tools")
T = TypeVar("T")

DEFAULT_CONNECT_TIMEOUT_MS = 30_000
DEFAULT_CALL_TIMEOUT_MS = 60_000
_MAX_PAGES = 100
"""Pages read of a list, in case a server never ends it."""
_RETRY_DELAY_SECONDS = 60.0
"""Delay before a server that failed to start is tried again; doubled each time."""

_SESSION_LOST = "Session terminated"
"""The SDK's message when a restarted server does not know the session."""

_Failure = Literal["failed", "needs_auth", "needs_client_registration"]
McpServerStatus = Literal["idle", "connecting", "connected", "disabled", "untrusted"] | _Failure


class McpServerState(Struct, frozen=True, kw_only=True):
    """State of a server."""

    status: McpServerStatus
    """OpenCode's values, and ``idle`` (not needed so far), ``connecting`` and ``untrusted``."""
    error: str | None = None
    tools: tuple[str, ...] = ()
    """Names of its tools, as the model sees them."""


class _Untrusted(ToolFailedError):
    """The project's configuration names the server, and the user has not trusted it."""


class _SessionLost(Exception):
    """The server does not know the session, and did nothing."""


class McpServer:
    """A configured MCP server."""

    def __init__(
        self,
        name: str,
        config: McpConfig,
        *,
        directory: str,
        variables: Mapping[str, str],
        publish: events.Publish,
        timeout_ms: int | None = None,
        untrusted_reason: Callable[[], str] = str,
    ) -> None:
        """``timeout_ms`` applies to calls if the server's own configuration sets none.

        ``untrusted_reason`` is called in a thread before each start; a non-empty result forbids the start.
        """
        self.name = name
        self.config = config
        self.is_enabled = config.enabled
        self._directory = directory
        self._variables = variables
        self._publish = publish
        self._untrusted_reason = untrusted_reason
        self._reported_reason = ""
        self._connect_seconds = (config.timeout or DEFAULT_CONNECT_TIMEOUT_MS) / 1000
        self._call_seconds = (config.timeout or timeout_ms or DEFAULT_CALL_TIMEOUT_MS) / 1000
        self.state = McpServerState(status="idle" if config.enabled else "disabled")
        self._open_client: Client | None = None
        self._explain: Callable[[], str] = str
        self._ended = asyncio.Event()
        self._scope: CancelScope | None = None
        self._group: asyncio.TaskGroup | None = None
        self._settled = asyncio.Event()
        self._finished = asyncio.Event()
        self._closed = False
        self._stale = False
        self._tools: tuple[McpTool, ...] = ()
        self._failures = 0
        self._retry_at = 0.0
        self._logins_stamp = 0

    @property
    def _client(self) -> Client | None:
        """The client, while the server is connected."""
        return None if self._ended.is_set() else self._open_client

    @property
    def tools(self) -> tuple[McpTool, ...]:
        """Its tools as of the last :meth:`refresh`; empty while it is not connected."""
        return self._tools if self._client is not None else ()

    def start(self, group: asyncio.TaskGroup, *, required: bool = False) -> None:
        """Start to connect, unless connecting or connected.

        After a failure, only after a delay, after a login, or with ``required``.
        """
        if self._closed or not self.is_enabled or self.state.status in ("connecting", "connected"):
            return
        has_new_login = self.state.status == "needs_auth" and logins_stamp() != self._logins_stamp
        if not required and not has_new_login and time.monotonic() < self._retry_at:
            return
        self._group = group
        self._settled, self._finished = asyncio.Event(), asyncio.Event()
        self.state = McpServerState(status="connecting")
        group.create_task(self._run(), name=f"mcp {self.name}")

    async def wait_until_gone(self) -> None:
        """Wait until a server that ended is cleaned up, so that it can be started again."""
        if self._open_client is not None and self._ended.is_set():
            await self._finished.wait()

    async def settled(self) -> None:
        """Wait until it is connected or has failed to connect."""
        if self.state.status == "connecting":
            await self._settled.wait()

    def end(self) -> None:
        """Close the connection for good."""
        self._closed = True
        if self._scope is not None:
            self._scope.cancel()

    def enable(self) -> None:
        """Allow it to start now, although the configuration disables it or it has failed."""
        self.is_enabled = True
        self._retry_at = 0.0
        if self.state.status == "disabled":
            self.state = McpServerState(status="idle")

    async def disable(self) -> None:
        """Close the connection, and do not start it again before :meth:`enable`."""
        self.is_enabled = False
        if self._scope is not None and self.state.status in ("connecting", "connected"):
            self._scope.cancel()
            await self._finished.wait()
        self.state = McpServerState(status="disabled")

    async def refresh(self) -> None:
        """Read the tools again if the server reported a change."""
        if not self._stale or self._client is None:
            return
        try:
            async with asyncio.timeout(self._connect_seconds):
                await self._list(self._client)
        except Exception as error:
            log.warning("cannot list the changed tools of the MCP server %s: %s", self.name, _message_of(error))

    async def call(self, tool: str, arguments: dict[str, Any], progress: Progress) -> CallToolResult:
        """Call a tool. A server that ended since the last call is started again; one that ends during this call is not
        called twice, because it may have done the work."""
        client = await self._connected()
        try:
            return await self._call(client, tool, arguments, progress)
        except _SessionLost:
            if self._scope is not None:  # close the connection, so that a new one is opened
                self._scope.cancel()
                await self._finished.wait()
        try:
            return await self._call(await self._connected(), tool, arguments, progress)
        except _SessionLost as error:
            raise ToolFailedError(f"the MCP server {self.name} lost the session: {error}") from error

    async def _call(self, client: Client, tool: str, arguments: dict[str, Any], show: Progress) -> CallToolResult:
        try:
            async with asyncio.timeout(self._call_seconds) as limit:

                async def on_progress(progress: float, total: float | None, message: str | None) -> None:
                    limit.reschedule(asyncio.get_running_loop().time() + self._call_seconds)
                    await show(message or (f"{progress:g} of {total:g}" if total else f"{progress:g}"))

                return await client.call_tool(tool, arguments, progress_callback=on_progress)
        except TimeoutError:
            raise self._too_slow() from None
        except Exception as error:
            if str(error) == _SESSION_LOST:
                raise _SessionLost(_SESSION_LOST) from error
            self._check_login()
            raise ToolFailedError(f"the MCP server {self.name} failed: {self._reason(error)}") from error

    async def prompts(self) -> list[Prompt]:
        """Return the prompts that the server offers."""
        client = self._client
        if client is None or client.server_capabilities.prompts is None:
            return []
        pages = await _pages(lambda cursor: self._ask(client.list_prompts(cursor=cursor)))
        return [prompt for page in pages for prompt in page.prompts]

    async def prompt(self, name: str, arguments: dict[str, str]) -> str:
        """Return the text of a prompt."""
        client = await self._connected()
        result = await self._ask(client.get_prompt(name, arguments))
        return "\n".join(message.content.text for message in result.messages if message.content.type == "text")

    async def resources(self) -> list[Resource]:
        """Return the resources that the server offers."""
        client = self._client
        if client is None or client.server_capabilities.resources is None:
            return []
        pages = await _pages(lambda cursor: self._ask(client.list_resources(cursor=cursor)))
        return [resource for page in pages for resource in page.resources]

    async def read(self, uri: str) -> list[ResourceContent]:
        """Read a resource."""
        client = await self._connected()
        return contents((await self._ask(client.read_resource(uri))).contents)

    # The task that owns the connection.

    async def _run(self) -> None:
        try:
            candidates = await asyncio.to_thread(self._load_transports)
            for number, transport_option in enumerate(candidates, 1):
                if await self._connect_and_serve(transport_option, last=number == len(candidates)):
                    return
        except _Untrusted as error:
            self.state = McpServerState(status="untrusted", error=error.message)
            if error.message != self._reported_reason:  # each prompt checks again; the warning is not repeated
                self._reported_reason = error.message
                self._report(error.message)
        except McpLoginRequiredError as error:
            self._fail(error.status, error.message)
        except Exception as error:
            self._fail("failed", _message_of(error))
        finally:
            self._open_client = None
            if self.state.status in ("connecting", "connected"):
                self.state = McpServerState(status="idle")
            self._settled.set()
            self._finished.set()

    def check_trust(self) -> None:
        """Raise if the server must not be used. Blocks."""
        why = self._untrusted_reason()
        if why:
            raise _Untrusted(f"{why} ('opensesh plugins' shows it, 'opensesh plugins --trust' trusts it)")

    def _load_transports(self) -> list[McpTransport]:
        """Return the transports to try. Runs in a thread: the SDK takes more than a second to import."""
        self.check_trust()
        try:
            import_module("mcp")
        except ModuleNotFoundError as error:
            if (error.name or "").partition(".")[0] != "mcp":
                raise
            install = "pip install 'mcp>=2,<3' (with pipx: pipx inject opensesh 'mcp>=2,<3')"
            raise ToolFailedError(f"MCP servers need the package mcp: {install}") from None
        for name in ("mcp", "client"):  # the SDK's loggers would print to the terminal; what matters is logged here
            logging.getLogger(name).addHandler(logging.NullHandler())
        return transports(self.name, self.config, self._directory, self._variables)

    async def _connect_and_serve(self, transport_option: McpTransport, *, last: bool) -> bool:
        """Connect over one transport and serve calls until the end; return false if the next transport should be
        tried."""
        import anyio
        from mcp import Client
        from mcp_types import ToolListChangedNotification

        async def on_message(message: object) -> None:
            if isinstance(message, ToolListChangedNotification):
                self._tools_changed()

        self._ended = ended = asyncio.Event()
        self._explain = transport_option.explain
        deadline = anyio.current_time() + self._connect_seconds
        connected = False
        try:
            # One scope for connecting and serving: the SDK must close what it opened in the same scope.
            with anyio.CancelScope(deadline=deadline) as self._scope:
                if self._closed:
                    return True
                transport = watched(transport_option.open(), ended)
                client = Client(transport, mode=transport_option.mode, message_handler=on_message, cache=None)
                async with client:
                    await self._list(client)
                    self._scope.deadline = math.inf
                    connected = True
                    await self._serve(client, ended)
        except Exception as error:
            if connected or self._closed:
                log.debug("the MCP server %s ended badly", self.name, exc_info=True)
                return True
            explanation = transport_option.explain()
            if not last:
                return False
            raise ToolFailedError(f"{self._reason(error)}{f': {explanation}' if explanation else ''}") from error
        if not connected and not self._closed:
            explanation = transport_option.explain()
            raise ToolFailedError(
                f"it was not ready within {self._connect_seconds:g} s (mcp.{self.name}.timeout in the configuration "
                f"sets how long it may take){f': {explanation}' if explanation else ''}"
            )
        return True

    async def _serve(self, client: Client, ended: asyncio.Event) -> None:
        """Serve calls until the server's side ends."""
        self._open_client = client
        self._failures, self._retry_at = 0, 0.0
        self.state = McpServerState(status="connected", tools=tuple(tool.id for tool in self._tools))
        self._settled.set()
        async with asyncio.TaskGroup() as group:
            listening = group.create_task(self._listen(client))
            await ended.wait()
            listening.cancel()

    async def _listen(self, client: Client) -> None:
        """Subscribe to changes, from a server of the newer protocol; older ones notify without a subscription."""
        from mcp.client.subscriptions import ListenNotSupportedError

        offered = client.server_capabilities.tools
        if offered is None or not offered.list_changed:
            return
        try:
            async with client.listen(tools_list_changed=True) as changes:
                async for _ in changes:
                    self._tools_changed()
        except ListenNotSupportedError:
            return
        except Exception as error:
            log.debug("the MCP server %s stopped reporting changes: %s", self.name, error)

    def _tools_changed(self) -> None:
        self._stale = True
        self._publish(events.McpToolsChanged(server=self.name))

    async def _list(self, client: Client) -> None:
        self._stale = False
        tools: dict[str, McpTool] = {}
        if client.server_capabilities.tools is not None:
            pages = await _pages(lambda cursor: client.list_tools(cursor=cursor, cache_mode="refresh"))
            for listed in [listed for page in pages for listed in page.tools]:
                read_only = listed.annotations is not None and listed.annotations.read_only_hint is True
                tool = McpTool(self, listed.name, listed.description or "", listed.input_schema, read_only=read_only)
                if tools.setdefault(tool.id, tool) is not tool:
                    log.warning("the MCP server %s has two tools named %s", self.name, tool.id)
        self._tools = tuple(tools.values())
        if self.state.status == "connected":
            self.state = McpServerState(status="connected", tools=tuple(tools))

    async def _connected(self) -> Client:
        if self._client is None and self._group is not None:
            await self.wait_until_gone()
            self.start(self._group, required=True)
            await self.settled()
        if self._client is None:
            raise ToolFailedError(
                f"the MCP server {self.name} is not connected: {self.state.error or self.state.status}"
            )
        return self._client

    # Failures.

    async def _ask(self, answer: Awaitable[T]) -> T:
        try:
            async with asyncio.timeout(self._call_seconds):
                return await answer
        except TimeoutError:
            raise self._too_slow() from None
        except Exception as error:
            raise ToolFailedError(f"the MCP server {self.name} failed: {self._reason(error)}") from error

    def _check_login(self) -> None:
        """Raise, and close the connection, if the server has begun to refuse the login."""
        try:
            self._explain()
        except McpLoginRequiredError as error:
            self._fail(error.status, error.message)
            if self._scope is not None:
                self._scope.cancel()
            raise

    def _too_slow(self) -> ToolFailedError:
        return ToolFailedError(
            f"the MCP server {self.name} did not answer within {self._call_seconds:g} s "
            f"(mcp.{self.name}.timeout in the configuration sets how long it may take)"
        )

    def _fail(self, status: _Failure, why: str) -> None:
        self._failures += 1
        self._retry_at = time.monotonic() + _RETRY_DELAY_SECONDS * 2 ** (self._failures - 1)
        self._logins_stamp = logins_stamp()
        self.state = McpServerState(status=status, error=why)
        self._report(why)

    def _report(self, why: str) -> None:
        log.warning("the MCP server %s cannot be used: %s", self.name, why)
        self._publish(events.McpFailed(server=self.name, error=why))

    def _reason(self, error: BaseException) -> str:
        from mcp_types import CONNECTION_CLOSED

        leaf = _leaf(error)
        if getattr(leaf, "code", None) == CONNECTION_CLOSED:
            return "it ended during the call" if self._settled.is_set() else "it ended before it was ready"
        return _message_of(leaf)


class _ListPage(Protocol):
    @property
    def next_cursor(self) -> str | None: ...


P = TypeVar("P", bound=_ListPage)


async def _pages(ask: Callable[[str | None], Awaitable[P]]) -> list[P]:
    """Read all pages of a list."""
    pages = [await ask(None)]
    while (cursor := pages[-1].next_cursor) and len(pages) < _MAX_PAGES:
        pages.append(await ask(cursor))
    return pages


def _leaf(error: BaseException) -> BaseException:
    """Return the first error of nested exception groups."""
    while isinstance(error, BaseExceptionGroup):
        inner = cast("BaseExceptionGroup[BaseException]", error)
        error = inner.exceptions[0]
    return error


def _message_of(error: BaseException) -> str:
    leaf = _leaf(error)
    return leaf.message if isinstance(leaf, OpenseshError) else str(leaf) or type(leaf).__name__
