"""The login to one MCP server: its token is sent with every request, renewed when the server refuses it, and obtained
with the user's browser.

The SDK's own OAuth client is not used: it holds a lock while a request is answered, forgets when a stored token expires
and who issued it, reads answers of any size from any address, and waits for the user inside of a request.
"""

from __future__ import annotations

import asyncio
import html
import json
import secrets
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Literal, NamedTuple
from urllib.parse import parse_qsl, urlsplit

import httpx2
import msgspec

from ...config.schema import McpOAuthConfig
from ...errors import ToolFailedError
from ..web_addresses import is_loopback
from . import oauth
from .oauth import OAuthError
from .saved_logins import SavedClient, SavedLogin, SavedTokens, renewal_lock, save_login, saved_login

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from ...config import McpConfig
    from .oauth import Grant


_PROBE = {
    "jsonrpc": "2.0",
    "id": 0,
    "method": "initialize",
    "params": {
        "protocolVersion": "2025-06-18",
        "capabilities": {},
        "clientInfo": {"name": "opensesh", "version": "1"},
    },
}
_LOST_CLIENT = ("invalid_client", "unauthorized_client")
_REQUEST_SECONDS = 10.0
_HEADERS = """Content-Type: text/html; charset=utf-8
Content-Security-Policy: default-src 'none'; style-src 'unsafe-inline'
Cache-Control: no-store
Connection: close"""
_PAGE = """<!DOCTYPE html><html lang="en"><meta charset="utf-8"><title>opensesh</title>
<body style="font: 16px/1.5 system-ui, sans-serif; max-width: 32em; margin: 4em auto"><h1>{title}</h1><p>{text}</p>"""
_FAILED = "Authorization failed"


class McpLoginRequiredError(ToolFailedError):
    """A remote server requires a login. ``status`` is OpenCode's word for what is missing."""

    def __init__(self, message: str, status: Literal["needs_auth", "needs_client_registration"] = "needs_auth") -> None:
        super().__init__(message)
        self.status: Literal["needs_auth", "needs_client_registration"] = status


class McpLogin(httpx2.Auth):
    """Authenticates the requests to one server."""

    def __init__(self, name: str, config: McpConfig, url: str) -> None:
        self.failure: ToolFailedError | None = None
        """Why the last request was refused, after the server has been asked."""
        self._name = name
        self._url = url
        self._headers = config.headers
        self._settings = config.oauth if isinstance(config.oauth, McpOAuthConfig) else McpOAuthConfig()
        self._tokens: SavedTokens | None = None
        self._loaded = False

    async def async_auth_flow(self, request: httpx2.Request) -> AsyncGenerator[httpx2.Request, httpx2.Response]:
        """Send the token; if it is refused, renew it and send the request once more."""
        if not self._loaded:
            self._tokens = (await asyncio.to_thread(saved_login, self._name, self._url)).tokens
            self._loaded = True
        tokens = self._tokens
        if tokens is not None:
            request.headers["Authorization"] = f"Bearer {tokens.access_token}"
        response = yield request
        if response.status_code != 401:
            self.failure = None
            return
        if self.failure is not None:
            return  # as before: the SDK makes several requests to connect
        challenge = oauth.parse_challenge(response.headers.get("www-authenticate"))
        # An error in here would be lost in a task of the SDK.
        try:
            tokens = await asyncio.to_thread(self._renew, tokens, challenge)
        except ToolFailedError as error:
            self.failure = error
            return
        self._tokens = tokens
        request.headers["Authorization"] = f"Bearer {tokens.access_token}"
        response = yield request
        if response.status_code == 401:
            self.failure = self._required("it refuses the token that it has just issued")

    def begin(self) -> oauth.Grant | None:
        """Prepare a login that the user confirms in a browser; ``None`` if the server requires none. Blocks."""
        oauth.check_address(self._url, self._url)
        challenge = self._probe()
        if challenge is None:
            return None
        return oauth.begin(self._url, self._settings, oauth.discover(self._url, challenge), challenge)

    def finish(self, grant: oauth.Grant, code: str) -> None:
        """Exchange the code of the authorization server for tokens, and keep them. Blocks."""
        tokens = grant.redeem(code)
        client = None if self._settings.client_id else grant.client
        save_login(self._name, SavedLogin(tokens=tokens, client_info=client, server_url=self._url))

    def _renew(self, refused: SavedTokens | None, challenge: oauth.Challenge) -> SavedTokens:
        with renewal_lock(self._name):
            login = saved_login(self._name, self._url)
            tokens = login.tokens
            if tokens is not None and tokens != refused and not tokens.expired:
                return tokens  # another process has renewed it, or logged in
            endpoints = oauth.discover(self._url, challenge)
            client = login.client_info if login.client_info is not None and not login.client_info.expired else None
            if self._settings.client_id:
                client = SavedClient(client_id=self._settings.client_id, client_secret=self._settings.client_secret)
            if tokens is None or tokens.refresh_token is None or client is None:
                if self._settings.client_id is None and endpoints.registration_endpoint is None:
                    raise McpLoginRequiredError(oauth.NO_REGISTRATION, "needs_client_registration")
                raise self._required("it requires a login" if tokens is None else "the login has expired")
            try:
                renewed = oauth.renew(endpoints, client, self._url, tokens)
            except oauth.RejectedError as error:
                if error.code in _LOST_CLIENT:
                    login = msgspec.structs.replace(login, client_info=None)
                elif error.code != "invalid_grant":
                    raise
                save_login(self._name, msgspec.structs.replace(login, tokens=None))
                raise self._required("the login has expired") from error
            save_login(self._name, msgspec.structs.replace(login, tokens=renewed))
            return renewed

    def _required(self, why: str) -> McpLoginRequiredError:
        return McpLoginRequiredError(
            f"{why}: log in with 'opensesh mcp auth {self._name}', or put a token into mcp.{self._name}.headers"
        )

    def _probe(self) -> oauth.Challenge | None:
        """Return what the server asks for when it gets no token; ``None`` if it requires none."""
        accept = {"accept": "application/json, text/event-stream", "content-type": "application/json"}
        status = 0
        with oauth.client_for(self._url, {**self._headers, **accept}) as client:
            for method, content in (("POST", json.dumps(_PROBE)), ("GET", None)):  # the older transport knows no POST
                try:
                    with client.stream(method, self._url, content=content) as response:
                        status = response.status_code
                        if status == 401:
                            return oauth.parse_challenge(response.headers.get("www-authenticate"))
                        if status == 200:
                            return None
                except httpx2.HTTPError as error:
                    raise oauth.OAuthError(f"it cannot be reached: {str(error) or type(error).__name__}") from error
        raise oauth.OAuthError(f"it answers with HTTP {status}, and does not ask for a login")


class _BrowserReply(NamedTuple):
    """The answer to a request, and what it means for the login."""

    status: str
    title: str
    text: str
    code: str | None = None
    error: str | None = None


@asynccontextmanager
async def listening(grant: Grant) -> AsyncGenerator[asyncio.Future[str]]:
    """Listen for the browser; yields the code that it brings, or the error.

    The code is taken only from a request with the state of this login, so that no other page can end it.
    """
    try:
        address = urlsplit(grant.redirect)
        port = address.port or 80
    except ValueError:
        raise OAuthError(f"oauth.redirectUri is not a valid address: {grant.redirect}") from None
    if address.scheme != "http" or not is_loopback(address.hostname or ""):
        raise OAuthError(f"{grant.redirect} is not an address of this machine, so that the code cannot arrive here")
    code: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with asyncio.timeout(_REQUEST_SECONDS):
                head = await reader.readuntil(b"\r\n\r\n")
                target = urlsplit(head.split(b" ", 2)[1].decode("latin-1"))
                reply = _reply(grant, target.path, dict(parse_qsl(target.query)))
                page = _PAGE.format(title=reply.title, text=html.escape(reply.text)).encode()
                lines = [f"HTTP/1.1 {reply.status}", *_HEADERS.splitlines(), f"Content-Length: {len(page)}", "", ""]
                writer.write("\r\n".join(lines).encode() + page)
                await writer.drain()
        except (OSError, TimeoutError, ValueError, IndexError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            return  # not a browser
        finally:
            writer.close()
        if reply.code and not code.done():
            code.set_result(reply.code)
        if reply.error and not code.done():
            code.set_exception(OAuthError(reply.error))

    try:
        server = await asyncio.start_server(answer, "127.0.0.1", port, limit=1 << 14)
    except OSError as error:
        reason = f"port {port} cannot be used: {error.strerror or error}"
        raise OAuthError(f"{reason}. Another login may be waiting for its browser") from error
    async with server:
        yield code


def _reply(grant: Grant, path: str, query: dict[str, str]) -> _BrowserReply:
    if path != urlsplit(grant.redirect).path:
        return _BrowserReply("404 Not Found", "Not found", "This address is not part of the login.")
    if not secrets.compare_digest(query.get("state", "").encode(), grant.state.encode()):
        return _BrowserReply("400 Bad Request", _FAILED, "This page does not belong to a login that is in progress.")
    error = None
    if "iss" in query and query["iss"].rstrip("/") != grant.endpoints.issuer.rstrip("/"):
        error = "the answer in the browser came from another authorization server"
    elif "error" in query:
        reason = query.get("error_description") or query["error"]
        error = "".join(letter for letter in reason[:300] if letter.isprintable())
    if error is not None:
        return _BrowserReply("200 OK", _FAILED, error, error=error)
    if not query.get("code"):
        return _BrowserReply("400 Bad Request", _FAILED, "The address contains no code.")
    text = "You can close this window and return to the program."
    return _BrowserReply("200 OK", "Authorization successful", text, code=query["code"])
