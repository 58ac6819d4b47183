"""Receives the browser that an authorization server sends back, on an address of this machine."""

from __future__ import annotations

import asyncio
import html
import secrets
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import parse_qsl, urlsplit

from .oauth import OAuthError, is_loopback

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from .oauth import Grant

_REQUEST_SECONDS = 10.0
_HEADERS = """Content-Type: text/html; charset=utf-8
Content-Security-Policy: default-src 'none'; style-src 'unsafe-inline'
Cache-Control: no-store
Connection: close"""
_PAGE = """<!DOCTYPE html><html lang="en"><meta charset="utf-8"><title>opensesh</title>
<body style="font: 16px/1.5 system-ui, sans-serif; max-width: 32em; margin: 4em auto"><h1>{title}</h1><p>{text}</p>"""
_FAILED = "Authorization failed"


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
