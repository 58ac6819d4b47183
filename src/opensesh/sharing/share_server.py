"""The share server, as a command or inside of another program: OpenCode's share protocol, and a page for each share.

::

    POST   /api/share            {sessionID}      -> {id, url, secret}
    POST   /api/share/ID/sync    {secret, data}
    DELETE /api/share/ID         {secret}
    GET    /api/share/ID/data                     -> [{type, data}, ...]
    GET    /share/ID                              a page for people

No endpoint lists shares: a share can only be found by its random id.
"""

from __future__ import annotations

import asyncio
import ipaddress
import math
import os
import re
import time
from contextlib import asynccontextmanager, contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import urlsplit

import uvicorn
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.responses import HTMLResponse, Response
from starlette.routing import Route

from ..asgi.connections import connection_limit, limited_protocol
from ..asgi.listening import accepted_hosts, bracketed, listen
from ..asgi.requests import AcceptedOrigins, BodyError, read_body
from ..errors import RecordError, UsageError
from ..history.formats import ExportedSession, FormatOptions
from ..history.formats.html_page import HtmlFormat, page_policy
from ..records import Document, as_list, as_object, dumps_compact, loads
from ..storage import paths
from ..storage.protocol import ignore_damage
from ..tools.web_addresses import is_loopback
from .items import ShareItem, assemble, read_item
from .share_settings import DEFAULT_PORTS, normalize_server_url
from .share_store import HTTPError, ShareLimits, ShareStore

if TYPE_CHECKING:
    import socket
    from collections.abc import AsyncGenerator, Callable, Generator

    from starlette.requests import Request
    from starlette.types import ASGIApp, Message, Receive, Scope, Send


_SHARE_ID = re.compile(r"[A-Za-z0-9_-]{8,64}")
_SESSION_ID = re.compile(r"[A-Za-z0-9_-]{1,200}")
_MAX_ADDRESSES = 10_000
_HEADERS = (
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"x-robots-tag", b"noindex, nofollow"),
    (b"cache-control", b"no-store"),  # a share that was removed must disappear at once
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"cross-origin-opener-policy", b"same-origin"),
)
_NO_FORMS = "form-action 'none'; frame-ancestors 'none'"
_TEXT_PAGE_POLICY = f"default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; {_NO_FORMS}"
_TEXT_PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}</title>
<style>
:root {{ color-scheme: light dark; }}
body {{ font: 16px/1.55 system-ui, -apple-system, "Segoe UI", Roboto, "Noto Sans", sans-serif; max-width: 36rem;
  margin: 18vh auto 0; padding: 0 1.25rem; }}
h1 {{ font-size: 1.4rem; margin: 0 0 .4rem; }}
p {{ margin: .4rem 0; opacity: .75; }}
</style>
</head>
<body>
<h1>{title}</h1>
<p>{text}</p>
</body>
</html>
"""
PORT = 4097
_MAX_CONNECTIONS = 200


class RateLimit(NamedTuple):
    """A token bucket: ``burst`` requests at once, then ``per_second``."""

    burst: float
    per_second: float


RATE_LIMITS = {"create": RateLimit(30, 0.5), "sync": RateLimit(200, 20), "read": RateLimit(200, 20)}


class RateLimits:
    """Counts requests by kind and client address."""

    def __init__(
        self, limits: dict[str, RateLimit] | None = None, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._limits = limits or RATE_LIMITS
        self._clock = clock
        self._buckets: dict[tuple[str, str], tuple[float, float]] = {}

    def wait_seconds(self, kind: str, address: str) -> int:
        """Count a request; return how many seconds the client has to wait, 0 if the request is accepted."""
        limit, now, key = self._limits[kind], self._clock(), (kind, address)
        tokens, since = self._buckets.pop(key, (limit.burst, now))
        tokens = min(limit.burst, tokens + (now - since) * limit.per_second)
        self._buckets[key] = (tokens - 1 if tokens >= 1 else tokens, now)
        if len(self._buckets) > _MAX_ADDRESSES:
            del self._buckets[next(iter(self._buckets))]  # the least recently used
        return 0 if tokens >= 1 else math.ceil((1 - tokens) / limit.per_second)


def share_app(
    shares: ShareStore, *, hosts: frozenset[str], public_url: str = "", rates: RateLimits | None = None
) -> ASGIApp:
    """Return an ASGI application that serves the shares of one store.

    ``hosts`` are the accepted values of the Host header, with ports: a web page elsewhere cannot reach the server
    through a DNS name of its own. Links begin with ``public_url``, or with the host of the request.
    """
    endpoints = ShareEndpoints(shares, public_url, rates or RateLimits())
    routes = [
        Route("/", endpoints.about, methods=["GET"]),
        Route("/share/{share_id}", endpoints.page, methods=["GET"]),
        Route("/api/share", endpoints.create, methods=["POST"]),
        Route("/api/share/{share_id}", endpoints.remove, methods=["DELETE"]),
        Route("/api/share/{share_id}/sync", endpoints.sync, methods=["POST"]),
        Route("/api/share/{share_id}/data", endpoints.data, methods=["GET"]),
    ]
    return HostOriginMiddleware(Starlette(routes=routes, exception_handlers={HTTPError: _error_response}), hosts)


class HostOriginMiddleware:
    """Rejects requests for other hosts or from other origins, and adds the headers of every response."""

    def __init__(self, app: ASGIApp, hosts: frozenset[str]) -> None:
        self._app = app
        self._accepted = AcceptedOrigins(hosts)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message.get("headers", ()), *_HEADERS]
            await send(message)

        headers = dict(scope["headers"])
        host, origin = (headers.get(name, b"").decode("latin-1") for name in (b"host", b"origin"))
        app = self._app
        if not self._accepted.accepts_host(host):
            app = _json({"error": "unknown host"}, 421)
        elif origin and not self._accepted.accepts_origin(origin):
            app = _json({"error": "requests from other origins are not allowed"}, 403)
        await app(scope, receive, send_with_headers)


class ShareEndpoints:
    """The handlers of the routes."""

    def __init__(self, shares: ShareStore, public_url: str, rates: RateLimits) -> None:
        self._shares = shares
        self._public_url = public_url
        self._rates = rates

    async def about(self, request: Request) -> Response:
        return _text_page("Shared sessions", "This server shows sessions to those who were given a link to one.")

    async def create(self, request: Request) -> Response:
        self._check_rate(request, "create")
        session_id = (await self._body(request, 4096)).get("sessionID")
        if not isinstance(session_id, str) or not _SESSION_ID.fullmatch(session_id):
            raise HTTPError(400, "sessionID should be the id of a session")
        share_id, secret = await run_in_threadpool(self._shares.create, session_id)
        base = self._public_url or f"{request.url.scheme}://{request.headers['host']}"
        return _json({"id": share_id, "url": f"{base}/share/{share_id}", "secret": secret})

    async def sync(self, request: Request) -> Response:
        self._check_rate(request, "sync")
        body = await self._body(request, self._shares.limits.body)
        values = as_list(body.get("data"))
        if values is None:
            raise HTTPError(400, "data should be a list of items")
        items = [item for item in map(read_item, values) if item is not None]  # ignores types of newer clients
        await run_in_threadpool(self._shares.put, _share_id(request), _secret(body), items)
        return _json({})

    async def remove(self, request: Request) -> Response:
        self._check_rate(request, "sync")
        body = await self._body(request, 4096)
        await run_in_threadpool(self._shares.remove, _share_id(request), _secret(body))
        return _json({})

    async def data(self, request: Request) -> Response:
        self._check_rate(request, "read")
        content = await run_in_threadpool(self._shares.data, _share_id(request))
        return Response(content, media_type="application/json")

    async def page(self, request: Request) -> Response:
        self._check_rate(request, "read")
        try:
            return await run_in_threadpool(lambda: session_page(self._shares.items(_share_id(request))))
        except HTTPError as error:
            text = "It was never shared here, or the user who shared it has removed it."
            return _text_page("No such session", text, error.status)

    def _check_rate(self, request: Request, kind: str) -> None:
        wait = self._rates.wait_seconds(kind, request.client.host if request.client else "")
        if wait:
            raise HTTPError(429, f"too many requests; try again in {wait} s", wait=wait)

    async def _body(self, request: Request, limit: int) -> Document:
        try:
            content = await read_body(request, limit)
        except BodyError as error:
            raise HTTPError(error.status, error.reason) from None
        try:
            body = as_object(await run_in_threadpool(loads, content))
        except RecordError:
            body = None
        if body is None:
            raise HTTPError(400, "expected a JSON object")
        return body


def session_page(items: list[ShareItem]) -> Response:
    """Render a shared session as a page."""
    session = assemble(items, report=ignore_damage)
    if session is None:
        return _text_page("Nothing here yet", "This session was shared a moment ago, and its content is on its way.")
    session_id, project_id = (str(session.info.get(field, "")) for field in ("id", "projectID"))
    exported = ExportedSession(session_id, project_id, session.info, session.messages)
    page = HtmlFormat(FormatOptions(utc=True), note="Shared with opensesh. Times are in UTC.", user="User")
    # The page contains the same policy; a header also covers form-action and frame-ancestors.
    headers = {"content-security-policy": f"{page_policy()}; {_NO_FORMS}"}
    return HTMLResponse(b"".join(page.chunks(exported)), headers=headers)


def _text_page(title: str, text: str, status: int = 200) -> Response:
    content = _TEXT_PAGE.format(title=title, text=text)
    return HTMLResponse(content, status, headers={"content-security-policy": _TEXT_PAGE_POLICY})


def _share_id(request: Request) -> str:
    share_id = request.path_params["share_id"]
    if not _SHARE_ID.fullmatch(share_id):
        raise HTTPError(404, "there is no such share")
    return share_id


def _secret(body: Document) -> str:
    secret = body.get("secret")
    if not isinstance(secret, str):
        raise HTTPError(403, "wrong secret for this share")
    return secret


async def _error_response(request: Request, error: Exception) -> Response:
    if not isinstance(error, HTTPError):
        raise error
    response = _json({"error": error.reason}, error.status)
    if error.wait:
        response.headers["retry-after"] = str(error.wait)
    return response


def _json(value: Any, status: int = 200) -> Response:
    return Response(dumps_compact(value), status, media_type="application/json")


class ShareServerOptions(NamedTuple):
    """The options of a share server."""

    folder: str
    host: str = "127.0.0.1"
    port: int = PORT
    """0 for any free port."""
    public_url: str = ""
    """The URL under which clients reach the server; links begin with it."""
    remote: bool = False
    """Whether to accept connections from other machines; otherwise ``host`` must be a loopback address."""
    proxies: tuple[str, ...] = ()
    """Addresses and networks of reverse proxies whose X-Forwarded-For header is trusted."""
    limits: ShareLimits | None = None
    rates: RateLimits | None = None


def default_folder() -> str:
    """Return the folder for shares that is used unless another is given."""
    return os.path.join(os.path.dirname(paths.data()), "opensesh", "shares")


@asynccontextmanager
async def share_server(options: ShareServerOptions) -> AsyncGenerator[str]:
    """Run a server until the block ends; yields the URL to configure as ``enterprise.url``."""
    server, listener, url = _prepare(options)
    async with asyncio.TaskGroup() as group:
        group.create_task(server.serve(sockets=[listener]))
        try:
            while not server.started:
                await asyncio.sleep(0.005)
            yield url
        finally:
            server.should_exit = True


def serve(options: ShareServerOptions, on_ready: Callable[[str], None]) -> None:
    """Run a server until interrupted; ``on_ready`` is called with its URL once it accepts connections."""
    server, listener, _ = _prepare(options, on_ready)
    server.run(sockets=[listener])


def _prepare(
    options: ShareServerOptions, on_ready: Callable[[str], None] | None = None
) -> tuple[uvicorn.Server, socket.socket, str]:
    public_url = normalize_server_url(options.public_url) if options.public_url else ""
    proxies = [network for proxy in options.proxies for network in _proxy_networks(proxy)]
    if not options.remote and not is_loopback(options.host):
        raise UsageError(
            f"{options.host} can be reached from other machines, and every client may store data here. Use "
            "--allow-remote if that is intended, behind a reverse proxy with TLS"
        )
    listener = listen(options.host, options.port)
    port = listener.getsockname()[1]
    url = public_url or f"http://{bracketed(options.host)}:{port}"
    try:
        shares = ShareStore(options.folder, options.limits)
    except BaseException:
        listener.close()
        raise
    hosts = _accepted_hosts(options.host, port, public_url)
    config = uvicorn.Config(
        share_app(shares, hosts=hosts, public_url=public_url, rates=options.rates),
        log_level="warning",
        access_log=False,
        server_header=False,
        date_header=False,
        proxy_headers=bool(proxies),
        forwarded_allow_ips=proxies,
        lifespan="off",
        ws="none",
        http=limited_protocol(connection_limit(_MAX_CONNECTIONS)),
        timeout_keep_alive=30,
        timeout_graceful_shutdown=5,
    )

    class UvicornServer(uvicorn.Server):
        @contextmanager
        def capture_signals(self) -> Generator[None]:
            if on_ready is None:
                yield
                return
            with super().capture_signals():
                on_ready(url)  # the socket is listening, so a client that connects now is served in a moment
                yield

        async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
            await super().shutdown(sockets)
            shares.close()

    return UvicornServer(config), listener, url


def _accepted_hosts(host: str, port: int, public_url: str) -> frozenset[str]:
    """Return the accepted values of the Host header."""
    hosts = set(accepted_hosts(host, port))
    if public_url:
        parts = urlsplit(public_url)
        name = bracketed(parts.hostname or "")
        # Clients leave out the default port.
        hosts |= {f"{name}:{parts.port}"} if parts.port else {name, f"{name}:{DEFAULT_PORTS[parts.scheme]}"}
    return frozenset(hosts)


def _proxy_networks(proxy: str) -> list[str]:
    """Return an address or a network as IPv4 and IPv6 listeners see it."""
    try:
        network = ipaddress.ip_network(proxy)
    except ValueError as error:
        raise UsageError(f"a trusted proxy must be an address or a network: {error}") from None
    if network.version == 6:
        return [str(network)]
    return [str(network), f"::ffff:{network.network_address}/{96 + network.prefixlen}"]
