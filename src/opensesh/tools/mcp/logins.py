"""Logging in to MCP servers with a browser, and logging out."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from ... import events
from ...errors import ToolFailedError
from ..browser import open_browser
from .login import McpLogin, listening
from .oauth import OAuthError
from .saved_logins import remove_login
from .server import McpServerState

if TYPE_CHECKING:
    from collections.abc import Callable

    from .oauth import Grant
    from .servers import McpServers


LOGIN_SECONDS = 300.0
"""How long the user may take to log in."""


class McpLogins:
    """The logins to the servers of a configuration. Of each server, only the last login that was begun can be finished.

    Nothing is sent to a server that is not trusted, nor to an address that it names.
    """

    def __init__(self, servers: McpServers, publish: events.Publish) -> None:
        self._servers = servers
        self._publish = publish
        self._pending: dict[str, tuple[McpLogin, Grant]] = {}
        self._waiting: dict[str, asyncio.Future[str]] = {}

    def supports(self, name: str) -> bool:
        """Return whether the server ``name`` can be logged in to. Raises :class:`NotFoundError`."""
        return self._servers.find(name).config.uses_oauth

    async def begin(self, name: str) -> Grant | None:
        """Begin to log in; ``None`` if the server requires no login. The user has to open the ``url`` of the result."""
        server = self._servers.find(name)
        url = server.config.url
        if not self.supports(name) or url is None:
            raise ToolFailedError(f"MCP server {name} does not support OAuth")
        self._cancel(name)
        login = McpLogin(name, server.config, url)
        await asyncio.to_thread(server.check_trust)
        grant = await asyncio.to_thread(login.begin)
        if grant is not None:
            self._pending[name] = login, grant
        return grant

    async def finish(self, name: str, code: str) -> McpServerState:
        """Finish the login that was begun, with the code that the authorization server gave, and connect.

        If the authorization server refuses the code, the state says so; the server itself stays as it was.
        """
        self._servers.find(name)
        login, grant = self._pending.pop(name, (None, None))
        if login is None or grant is None:
            raise ToolFailedError(f"No pending OAuth flow for MCP server: {name}")
        try:
            await asyncio.to_thread(login.finish, grant, code)
        except OAuthError as error:
            return McpServerState(status="failed", error=error.message)
        return await self._servers.reconnect(name)

    async def run(self, name: str, show: Callable[[str], object] = str) -> McpServerState:
        """Log in with the user's browser, and connect. ``show`` is called with the address that was opened, and an
        event is published if no browser could be opened."""
        grant = await self.begin(name)
        if grant is None:
            return await self._servers.reconnect(name)
        async with listening(grant) as redirected:
            self._waiting[name] = redirected
            show(grant.url)
            if not await asyncio.to_thread(open_browser, grant.url):
                self._publish(events.McpBrowserOpenFailed(mcp_name=name, url=grant.url))
            try:
                async with asyncio.timeout(LOGIN_SECONDS):
                    code = await redirected
            except TimeoutError:
                raise OAuthError("OAuth callback timeout - authorization took too long") from None
        return await self.finish(name, code)

    async def remove(self, name: str) -> bool:
        """Log out: forget the login, and what was begun; return whether there was a login."""
        self._servers.find(name)
        self._cancel(name)
        removed = await asyncio.to_thread(remove_login, name)
        if removed and self._servers.states[name].status == "connected":
            await self._servers.reconnect(name)
        return removed

    def _cancel(self, name: str) -> None:
        self._pending.pop(name, None)
        waiting = self._waiting.pop(name, None)
        if waiting is not None and not waiting.done():
            waiting.set_exception(OAuthError("Authorization cancelled"))
