"""The share server's answers: OpenCode's share protocol, and a page to read for each share.

::

    POST   /api/share            {sessionID}      -> {id, url, secret}
    POST   /api/share/ID/sync    {secret, data}
    DELETE /api/share/ID         {secret}
    GET    /api/share/ID/data                     -> [{type, data}, ...]
    GET    /share/ID                              a page for people

Nothing lists shares: whoever does not know a name does not find it.
"""

from __future__ import annotations

import asyncio
import re
from typing import TYPE_CHECKING, Any

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.requests import ClientDisconnect
from starlette.responses import HTMLResponse, Response
from starlette.routing import Route

from ..errors import RecordError
from ..records import as_list, as_object, dumps_compact, loads
from .items import read_item
from .page import PLAIN_POLICY, about_page, missing_page, policy, session_page
from .rates import RateLimits
from .share_store import HTTPError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from starlette.requests import Request
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

    from ..records import Document
    from .share_store import ShareStore

    Handler = Callable[[Request], Awaitable[Response]]

_NAME = re.compile(r"[A-Za-z0-9_-]{8,64}")
_SESSION = re.compile(r"[A-Za-z0-9_-]{1,200}")
_PATIENCE = 60.0
"""Seconds for a request to arrive whole."""
_HEADERS = (
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"x-robots-tag", b"noindex, nofollow"),
    (b"cache-control", b"no-store"),  # a share that was taken down is gone at once
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"cross-origin-opener-policy", b"same-origin"),
)


def share_app(
    shares: ShareStore, *, hosts: frozenset[str], public: str = "", rates: RateLimits | None = None
) -> ASGIApp:
    """An ASGI application that serves the shares of one store.

    ``hosts`` are the names under which it may be asked, with their ports, so that no page elsewhere can reach it under
    a name of its own. ``public`` is the address that links begin with; without one, the address that was asked.
    """
    answers = ShareEndpoints(shares, public, rates or RateLimits())
    routes = [
        Route("/", answers.about, methods=["GET"]),
        Route("/share/{name}", answers.page, methods=["GET"]),
        Route("/api/share", answers.create, methods=["POST"]),
        Route("/api/share/{name}", answers.remove, methods=["DELETE"]),
        Route("/api/share/{name}/sync", answers.sync, methods=["POST"]),
        Route("/api/share/{name}/data", answers.data, methods=["GET"]),
    ]
    return HostOriginMiddleware(Starlette(routes=routes, exception_handlers={HTTPError: _refused}), hosts)


class HostOriginMiddleware:
    """Turns away who asks for another host or comes from another site, and sends the headers that all answers have."""

    def __init__(self, app: ASGIApp, hosts: frozenset[str]) -> None:
        self._app = app
        self._hosts = hosts

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def marked(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message.get("headers", ()), *_HEADERS]
            await send(message)

        refusal = self._refusal(dict(scope["headers"]))
        await (refusal or self._app)(scope, receive, marked)

    def _refusal(self, headers: dict[bytes, bytes]) -> Response | None:
        if headers.get(b"host", b"").decode("latin-1").lower() not in self._hosts:
            return _json({"error": "this server does not go by that name"}, 421)
        origin = headers.get(b"origin", b"").decode("latin-1")
        if origin and origin.lower().partition("://")[2] not in self._hosts:
            return _json({"error": "not from another site"}, 403)
        return None


class ShareEndpoints:
    def __init__(self, shares: ShareStore, public: str, rates: RateLimits) -> None:
        self._shares = shares
        self._public = public
        self._rates = rates

    async def about(self, request: Request) -> Response:
        return HTMLResponse(about_page(), headers={"content-security-policy": PLAIN_POLICY})

    async def create(self, request: Request) -> Response:
        self._admit(request, "create")
        session = (await self._body(request, 4096)).get("sessionID")
        if not isinstance(session, str) or not _SESSION.fullmatch(session):
            raise HTTPError(400, "sessionID should be the id of a session")
        name, secret = await run_in_threadpool(self._shares.create, session)
        base = self._public or f"{request.url.scheme}://{request.headers['host']}"
        return _json({"id": name, "url": f"{base}/share/{name}", "secret": secret})

    async def sync(self, request: Request) -> Response:
        self._admit(request, "sync")
        body = await self._body(request, self._shares.limits.body)
        sent = as_list(body.get("data"))
        if sent is None:
            raise HTTPError(400, "data should be a list of items")
        items = [item for item in map(read_item, sent) if item is not None]  # newer kinds are passed over
        await run_in_threadpool(self._shares.put, _name(request), _secret(body), items)
        return _json({})

    async def remove(self, request: Request) -> Response:
        self._admit(request, "sync")
        body = await self._body(request, 4096)
        await run_in_threadpool(self._shares.remove, _name(request), _secret(body))
        return _json({})

    async def data(self, request: Request) -> Response:
        self._admit(request, "read")
        content = await run_in_threadpool(self._shares.data, _name(request))
        return Response(content, media_type="application/json")

    async def page(self, request: Request) -> Response:
        self._admit(request, "read")
        try:
            content = await run_in_threadpool(lambda: session_page(self._shares.items(_name(request))))
        except HTTPError as refused:
            headers = {"content-security-policy": PLAIN_POLICY}
            return HTMLResponse(missing_page(), status_code=refused.status, headers=headers)
        return HTMLResponse(content, headers={"content-security-policy": policy()})

    def _admit(self, request: Request, kind: str) -> None:
        wait = self._rates.wait(kind, request.client.host if request.client else "")
        if wait:
            raise HTTPError(429, f"too many requests; try again in {wait} s", wait=wait)

    async def _body(self, request: Request, most: int) -> Document:
        length = request.headers.get("content-length", "")
        if length.isdecimal() and int(length) > most:
            raise HTTPError(413, f"more than {most:,} bytes")
        pieces: list[bytes] = []
        size = 0
        try:
            async with asyncio.timeout(_PATIENCE):
                async for piece in request.stream():
                    size += len(piece)
                    if size > most:
                        raise HTTPError(413, f"more than {most:,} bytes")
                    pieces.append(piece)
        except (TimeoutError, ClientDisconnect):
            raise HTTPError(408, "the request did not arrive in time") from None
        return await run_in_threadpool(_decoded, b"".join(pieces))


def _decoded(content: bytes) -> Document:
    try:
        body = as_object(loads(content))
    except RecordError:
        body = None
    if body is None:
        raise HTTPError(400, "expected a JSON object")
    return body


def _name(request: Request) -> str:
    name = request.path_params["name"]
    if not _NAME.fullmatch(name):
        raise HTTPError(404, "there is no such share")
    return name


def _secret(body: Document) -> str:
    secret = body.get("secret")
    if not isinstance(secret, str):
        raise HTTPError(403, "that is not the secret of this share")
    return secret


async def _refused(request: Request, error: Exception) -> Response:
    if not isinstance(error, HTTPError):
        raise error
    answer = _json({"error": error.reason}, error.status)
    if error.wait:
        answer.headers["retry-after"] = str(error.wait)
    return answer


def _json(value: Any, status: int = 200) -> Response:
    return Response(dumps_compact(value), status, media_type="application/json")
