"""One server: started when it is needed, kept as long as it lives, started again when it is needed again.

A single task holds the connection (:meth:`Server._keep`), because what the SDK opens must be closed by the task that
opened it. It leaves when the server's side ends, or when it is told to; on its way out the SDK ends the program.
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
from .transports import McpLoginRequiredError, transports, watched

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from anyio import CancelScope
    from mcp import Client
    from mcp_types import CallToolResult, Prompt

    from ...config import McpConfig
    from .conversion import Progress, ResourceContent
    from .transports import Transport

log = logging.getLogger("opensesh.tools")
T = TypeVar("T")

CONNECT_MS = 30_000
CALL_MS = 60_000
_MOST_PAGES = 100
"""How many pages of a list are read: one that never ends is no list."""
_REST = 60.0
"""Seconds before a server that could not be started is tried again; twice as long each time."""

_FORGOTTEN = "Session terminated"
"""What the SDK makes of a server that does not know the connection any more: it was started anew."""

McpServerStatus = Literal["idle", "connecting", "connected", "disabled", "untrusted", "failed", "needs_auth"]


class McpServerState(Struct, frozen=True, kw_only=True):
    """How a server is."""

    status: McpServerStatus
    """OpenCode's words, and ``idle`` (not needed so far), ``connecting`` and ``untrusted``."""
    error: str | None = None
    tools: tuple[str, ...] = ()
    """What its tools are called here."""


class _Untrusted(ToolFailedError):
    """It came with the project, and must not be used."""


class _Forgotten(Exception):
    """The server did nothing, as it does not know who asks."""


class McpServer:
    """A server that the configuration names."""

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
        self._config = config
        self._directory = directory
        self._variables = variables
        self._publish = publish
        self._doubt = untrusted_reason
        self._told = ""
        self._connect_seconds = (config.timeout or CONNECT_MS) / 1000
        self._call_seconds = (config.timeout or timeout_ms or CALL_MS) / 1000
        self._state = McpServerState(status="idle" if config.enabled else "disabled")
        self._held: Client | None = None
        self._ended = asyncio.Event()
        self._scope: CancelScope | None = None
        self._group: asyncio.TaskGroup | None = None
        self._settled = asyncio.Event()
        self._over = asyncio.Event()
        self._closed = False
        self._stale = False
        self._tools: tuple[McpTool, ...] = ()
        self._failures = 0
        self._retry_at = 0.0

    @property
    def state(self) -> McpServerState:
        """How it is now."""
        return self._state

    @property
    def _client(self) -> Client | None:
        """The connection, if the server is there."""
        return None if self._ended.is_set() else self._held

    @property
    def tools(self) -> tuple[McpTool, ...]:
        """Its tools as of the last :meth:`refresh`; none while it is not connected."""
        return self._tools if self._client is not None else ()

    def start(self, group: asyncio.TaskGroup, *, wanted: bool = False) -> None:
        """Begin to connect, unless that is under way or done; after a failure only once some time has passed, or if
        this server in particular is ``wanted``."""
        if self._closed or not self._config.enabled or self._state.status in ("connecting", "connected"):
            return
        if not wanted and time.monotonic() < self._retry_at:
            return
        self._group = group
        self._settled, self._over = asyncio.Event(), asyncio.Event()
        self._state = McpServerState(status="connecting")
        group.create_task(self._keep(), name=f"mcp {self.name}")

    async def gone(self) -> None:
        """Wait until one that has died is gone, so that it can be started again."""
        if self._held is not None and self._ended.is_set():
            await self._over.wait()

    async def settled(self) -> None:
        """Wait until it is connected, or has failed to."""
        if self._state.status == "connecting":
            await self._settled.wait()

    def end(self) -> None:
        """Close the connection, for good; the task that holds it does so."""
        self._closed = True
        if self._scope is not None:
            self._scope.cancel()

    async def refresh(self) -> None:
        """Take up what the server says has changed."""
        if not self._stale or self._client is None:
            return
        try:
            async with asyncio.timeout(self._connect_seconds):
                await self._list(self._client)
        except Exception as error:
            log.warning("the MCP server %s changed its tools, and would not tell how: %s", self.name, _words(error))

    async def call(self, tool: str, arguments: dict[str, Any], progress: Progress) -> CallToolResult:
        """Have the server do something. One that has died since the last call is started again; one that dies during
        this call is not asked twice, since it may have done it."""
        client = await self._connected()
        try:
            return await self._call(client, tool, arguments, progress)
        except _Forgotten:
            await self._leave()
        try:
            return await self._call(await self._connected(), tool, arguments, progress)
        except _Forgotten as error:
            raise ToolFailedError(f"the MCP server {self.name} forgets who asks: {error}") from error

    async def _call(self, client: Client, tool: str, arguments: dict[str, Any], show: Progress) -> CallToolResult:
        try:
            async with asyncio.timeout(self._call_seconds) as limit:

                async def told(progress: float, total: float | None, message: str | None) -> None:
                    limit.reschedule(asyncio.get_running_loop().time() + self._call_seconds)
                    await show(message or (f"{progress:g} of {total:g}" if total else f"{progress:g}"))

                return await client.call_tool(tool, arguments, progress_callback=told)
        except TimeoutError:
            raise self._too_slow() from None
        except Exception as error:
            if str(error) == _FORGOTTEN:
                raise _Forgotten(_FORGOTTEN) from error
            raise ToolFailedError(f"the MCP server {self.name} could not do it: {self._why(error)}") from error

    async def prompts(self) -> list[Prompt]:
        """The prompts on offer."""
        client = self._client
        if client is None or client.server_capabilities.prompts is None:
            return []
        pages = await _pages(lambda cursor: self._ask(client.list_prompts(cursor=cursor)))
        return [prompt for page in pages for prompt in page.prompts]

    async def prompt(self, name: str, arguments: dict[str, str]) -> str:
        """The text of a prompt."""
        client = await self._connected()
        found = await self._ask(client.get_prompt(name, arguments))
        return "\n".join(each.content.text for each in found.messages if each.content.type == "text")

    async def read(self, uri: str) -> list[ResourceContent]:
        """A resource."""
        client = await self._connected()
        return contents((await self._ask(client.read_resource(uri))).contents)

    # -- the task that holds the connection ----------------------------------------------------------------------------

    async def _keep(self) -> None:
        try:
            ways = await asyncio.to_thread(self._ways)
            for number, wire in enumerate(ways, 1):
                if await self._hold(wire, last=number == len(ways)):
                    return
        except _Untrusted as error:
            self._refuse(error.message)
        except McpLoginRequiredError as error:
            self._fail("needs_auth", error.message)
        except Exception as error:
            self._fail("failed", _words(error))
        finally:
            self._held = None
            if self._state.status in ("connecting", "connected"):
                self._state = McpServerState(status="idle")
            self._settled.set()
            self._over.set()

    def _ways(self) -> list[Transport]:
        """In a thread: the SDK takes more than a second to import."""
        why = self._doubt()
        if why:
            raise _Untrusted(f"{why} ('opensesh plugins' shows what it is, 'opensesh plugins --trust' has it run)")
        try:
            import_module("mcp")
        except ModuleNotFoundError as error:
            if (error.name or "").partition(".")[0] != "mcp":
                raise
            raise ToolFailedError("MCP servers need the extra 'mcp': pip install 'opensesh[mcp]'") from None
        for name in ("mcp", "client"):  # the SDK's loggers: what matters of it is told by us, and not across the screen
            logging.getLogger(name).addHandler(logging.NullHandler())
        return transports(self.name, self._config, self._directory, self._variables)

    async def _hold(self, wire: Transport, *, last: bool) -> bool:
        """Connect over one wire and stay until the end; whether that was the right one."""
        import anyio
        from mcp import Client

        self._ended = ended = asyncio.Event()
        deadline = anyio.current_time() + self._connect_seconds
        connected = False
        try:
            # One scope for both: what the SDK opens inside it has to be closed inside it.
            with anyio.CancelScope(deadline=deadline) as self._scope:
                if self._closed:
                    return True
                transport = watched(wire.open(), ended)
                client = Client(transport, mode=wire.mode, message_handler=self._heard, cache=None)
                async with client:
                    await self._list(client)
                    self._scope.deadline = math.inf
                    connected = True
                    await self._serve(client, ended)
        except Exception as error:
            if connected or self._closed:
                log.debug("the MCP server %s ended badly", self.name, exc_info=True)
                return True
            said = wire.explain()
            if not last:
                return False
            raise ToolFailedError(f"{self._why(error)}{f': {said}' if said else ''}") from error
        if not connected and not self._closed:
            said = wire.explain()
            raise ToolFailedError(
                f"it was not ready within {self._connect_seconds:g} s (mcp.{self.name}.timeout in the configuration "
                f"sets how long it may take){f': {said}' if said else ''}"
            )
        return True

    async def _serve(self, client: Client, ended: asyncio.Event) -> None:
        """Be there for calls until the server's side ends."""
        self._held = client
        self._failures, self._retry_at = 0, 0.0
        self._state = McpServerState(status="connected", tools=tuple(tool.id for tool in self._tools))
        self._settled.set()
        async with asyncio.TaskGroup() as group:
            listening = group.create_task(self._listen(client))
            await ended.wait()
            listening.cancel()

    async def _listen(self, client: Client) -> None:
        """Hear of changes, from a server of the newer protocol; those of the older tell unasked."""
        from mcp.client.subscriptions import ListenNotSupportedError

        offered = client.server_capabilities.tools
        if offered is None or not offered.list_changed:
            return
        try:
            async with client.listen(tools_list_changed=True) as changes:
                async for _ in changes:
                    self._changed()
        except ListenNotSupportedError:
            return
        except Exception as error:
            log.debug("the MCP server %s no longer tells of changes: %s", self.name, error)

    async def _heard(self, message: object) -> None:
        from mcp_types import ToolListChangedNotification

        if isinstance(message, ToolListChangedNotification):
            self._changed()

    def _changed(self) -> None:
        self._stale = True
        self._publish(events.McpToolsChanged(server=self.name))

    async def _list(self, client: Client) -> None:
        self._stale = False
        found: dict[str, McpTool] = {}
        if client.server_capabilities.tools is not None:
            pages = await _pages(lambda cursor: client.list_tools(cursor=cursor, cache_mode="refresh"))
            for each in [each for page in pages for each in page.tools]:
                tool = McpTool(self, each.name, each.description or "", each.input_schema)
                if found.setdefault(tool.id, tool) is not tool:
                    log.warning("the MCP server %s has two tools that would be called %s", self.name, tool.id)
        self._tools = tuple(found.values())
        if self._state.status == "connected":
            self._state = McpServerState(status="connected", tools=tuple(found))

    async def _connected(self) -> Client:
        if self._client is None and self._group is not None:
            await self.gone()
            self.start(self._group, wanted=True)
            await self.settled()
        if self._client is None:
            raise ToolFailedError(f"the MCP server {self.name} is not there: {self._state.error or self._state.status}")
        return self._client

    async def _leave(self) -> None:
        """Close the connection, so that the next call opens another."""
        if self._scope is not None:
            self._scope.cancel()
            await self._over.wait()

    # -- what goes wrong -----------------------------------------------------------------------------------------------

    async def _ask(self, answer: Awaitable[T]) -> T:
        try:
            async with asyncio.timeout(self._call_seconds):
                return await answer
        except TimeoutError:
            raise self._too_slow() from None
        except Exception as error:
            raise ToolFailedError(f"the MCP server {self.name} could not do it: {self._why(error)}") from error

    def _too_slow(self) -> ToolFailedError:
        return ToolFailedError(
            f"the MCP server {self.name} did not answer within {self._call_seconds:g} s "
            f"(mcp.{self.name}.timeout in the configuration sets how long it may take)"
        )

    def _fail(self, status: Literal["failed", "needs_auth"], why: str) -> None:
        self._failures += 1
        self._retry_at = time.monotonic() + _REST * 2 ** (self._failures - 1)
        self._state = McpServerState(status=status, error=why)
        self._tell(why)

    def _refuse(self, why: str) -> None:
        """The next prompt asks again, as the user may have said yes meanwhile; that is no reason to say it again."""
        self._state = McpServerState(status="untrusted", error=why)
        if why != self._told:
            self._told = why
            self._tell(why)

    def _tell(self, why: str) -> None:
        log.warning("the MCP server %s cannot be used: %s", self.name, why)
        self._publish(events.McpFailed(server=self.name, error=why))

    def _why(self, error: BaseException) -> str:
        from mcp_types import CONNECTION_CLOSED

        leaf = _leaf(error)
        if getattr(leaf, "code", None) == CONNECTION_CLOSED:
            return "it ended in the middle of it" if self._settled.is_set() else "it ended before it was ready"
        return _words(leaf)


class _Page(Protocol):
    @property
    def next_cursor(self) -> str | None: ...


P = TypeVar("P", bound=_Page)


async def _pages(ask: Callable[[str | None], Awaitable[P]]) -> list[P]:
    """The pages of a list, asked for one by one; each says where the next begins."""
    pages = [await ask(None)]
    while (cursor := pages[-1].next_cursor) and len(pages) < _MOST_PAGES:
        pages.append(await ask(cursor))
    return pages


def _leaf(error: BaseException) -> BaseException:
    """What was wrong first, of several things that were."""
    while isinstance(error, BaseExceptionGroup):
        inner = cast("BaseExceptionGroup[BaseException]", error)
        error = inner.exceptions[0]
    return error


def _words(error: BaseException) -> str:
    leaf = _leaf(error)
    return leaf.message if isinstance(leaf, OpenseshError) else str(leaf) or type(leaf).__name__
