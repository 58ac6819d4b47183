"""Access control of the server: checks of Host, Origin and password before anything else, and CORS.

The checks, in this order:

1. Host: a request must name this server, or a page could rebind its own DNS name to this machine.
2. Origin, and what browsers say about the site of a request: a page elsewhere may not change anything, nor open a
   stream or a terminal. A request that only reads and lacks ``Sec-Fetch-Site``, which current browsers send, is
   answered as by OpenCode, but without the CORS header that would let a page read the answer.
3. The password, if there is one.

Every request that may change something is logged, with who sent it.
"""

from __future__ import annotations

import base64
import binascii
import hmac
import logging
import os
import re
import time
from typing import TYPE_CHECKING
from urllib.parse import parse_qs

from starlette.responses import Response

from ..asgi.requests import AcceptedOrigins
from ..storage import paths
from ..storage.disk import append_to_log
from .responses import RequestError, error_response
from .web.page_access import is_page_path
from .web.pages import HEADERS as PAGE_HEADERS

if TYPE_CHECKING:
    from collections.abc import Iterable

    from starlette.types import ASGIApp, Message, Receive, Scope, Send

    from .web.page_access import PageAccess

log = logging.getLogger("opensesh.server")

_LOCAL_ORIGIN = re.compile(
    r"http://(localhost|127\.0\.0\.1):\d{1,5}|tauri://localhost|https?://tauri\.localhost|oc://renderer"
)
_LOOPBACK_NAMES = frozenset({"localhost", "127.0.0.1", "[::1]"})
_SAFE_METHODS = ("GET", "HEAD", "OPTIONS")
_STREAMS = ("/event", "/global/event", "/history/events", "/tui/control/next")
_METHODS = "GET,HEAD,PUT,POST,DELETE,PATCH"
_SECURITY_HEADERS = ((b"x-content-type-options", b"nosniff"), (b"referrer-policy", b"no-referrer"))


class Credentials:
    """The user name and password of a server, compared in constant time."""

    def __init__(self, username: str, password: str) -> None:
        self._password = os.fsencode(password)
        self._expected = os.fsencode(f"{username}:{password}")

    def accepts_password(self, password: str) -> bool:
        """Whether a word is the password."""
        return hmac.compare_digest(password.encode(errors="surrogatepass"), self._password)

    def accept(self, authorization: str, query_string: str) -> bool:
        """Whether a request has them: as Basic authorization, or as ``auth_token`` in the query."""
        scheme, _, token = authorization.partition(" ")
        tokens = [token] if scheme.lower() == "basic" else []
        if not tokens and "auth_token=" in query_string:
            tokens = parse_qs(query_string).get("auth_token", [])[:1]
        for value in tokens:
            try:
                sent = base64.b64decode(value.strip(), validate=True)
            except (binascii.Error, ValueError):
                return False
            return hmac.compare_digest(sent, self._expected)
        return False


class AccessMiddleware:
    """Rejects requests that may not use the server, and adds the headers of every response."""

    def __init__(
        self,
        app: ASGIApp,
        hosts: Iterable[str],
        origins: Iterable[str],
        credentials: Credentials | None,
        pages: PageAccess,
    ) -> None:
        """``hosts`` are accepted beside the names of this machine's loopback, which have any port: a client may reach
        the server through a forwarded one."""
        hosts = frozenset(hosts)
        with_port = [host for host in hosts if re.search(r":\d+$", host)]
        self._app = app
        self._accepted = AcceptedOrigins(with_port, origins, _LOOPBACK_NAMES | hosts.difference(with_port))
        self._credentials = credentials
        self._pages = pages

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] not in ("http", "websocket"):
            await self._app(scope, receive, send)
            return
        headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
        origin = headers.get("origin", "")
        is_local = _LOCAL_ORIGIN.fullmatch(origin) is not None
        is_accepted = bool(origin) and (is_local or self._accepted.accepts_origin(origin))
        is_preflight = scope["type"] == "http" and scope["method"] == "OPTIONS"
        response = self._rejection(scope, headers, is_accepted=is_accepted)
        if response is None and is_preflight:
            response = _preflight(headers, is_accepted=is_accepted)
        is_page = is_page_path(scope["path"])
        added = [(b"vary", b"Origin")] if response is None or response.status_code != 401 else []
        if is_accepted and added and not is_page:
            added.append((b"access-control-allow-origin", origin.encode("latin-1")))

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                sent = message.get("headers", ())
                names = {name for name, _ in sent}
                more = (*_SECURITY_HEADERS, *PAGE_HEADERS) if is_page else _SECURITY_HEADERS
                message["headers"] = [*sent, *added, *(header for header in more if header[0] not in names)]
                if scope["method"] not in _SAFE_METHODS:
                    log_access(scope["method"], scope["path"], message["status"], self._client(scope, headers))
            await send(message)

        if response is None:
            await self._app(scope, receive, send_with_headers)
        elif scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": 1008, "reason": "not allowed"})
        else:
            await response(scope, receive, send_with_headers)

    def _client(self, scope: Scope, headers: dict[str, str]) -> str:
        """Return who sends a request: a browser that is signed in, or a program by its address and its name."""
        browser = self._pages.authorizes(headers)
        if browser is not None:
            return f"browser {browser.id}"
        program = headers.get("user-agent", "").partition(" ")[0][:80]
        return f"{(scope.get('client') or ('',))[0]} {program}".strip()

    def _rejection(self, scope: Scope, headers: dict[str, str], *, is_accepted: bool) -> Response | None:
        """Return the response to a request that is not allowed; ``None`` if it is."""
        if not self._accepted.accepts_host(headers.get("host", "")):
            message = "the Host header does not name this server; --allowed-host accepts more names"
            return error_response(RequestError(403, "ForbiddenError", message))
        if is_page_path(scope["path"]):
            return self._pages.rejection(scope, headers)
        if not is_accepted and _is_cross_site(scope, headers):
            return error_response(RequestError(403, "ForbiddenError", "requests of other web pages are not allowed"))
        if self._pages.rejects_change(scope, headers):
            message = "pages change the history only with the cookie and the key of a signed-in browser"
            return error_response(RequestError(403, "ForbiddenError", message))
        if self._is_authorized(scope, headers):
            return None
        unauthorized = Response("Unauthorized", 401, {"www-authenticate": 'Basic realm="Secure Area"'})
        unauthorized.headers["content-type"] = "application/octet-stream"
        return unauthorized

    def _is_authorized(self, scope: Scope, headers: dict[str, str]) -> bool:
        """Whether a request needs no password, has it, or comes from a page of a signed-in browser."""
        if self._credentials is None or scope.get("method") == "OPTIONS":
            return True
        query_string = scope.get("query_string", b"").decode("latin-1")
        return (
            self._credentials.accept(headers.get("authorization", ""), query_string)
            or self._pages.authorizes(headers) is not None
            or self._pages.redirects(scope, headers)
        )


def _is_cross_site(scope: Scope, headers: dict[str, str]) -> bool:
    """Whether a request comes from a page of another site and is more than a read."""
    is_read = scope["type"] == "http" and scope["method"] in _SAFE_METHODS and scope["path"] not in _STREAMS
    if headers.get("sec-fetch-site", "none") not in ("none", "same-origin"):
        is_link = headers.get("sec-fetch-mode") == "navigate" and headers.get("sec-fetch-dest") == "document"
        return not (is_link and is_read)
    return "origin" in headers and not is_read


def _preflight(headers: dict[str, str], *, is_accepted: bool) -> Response:
    response = Response(status_code=204)
    if is_accepted or "origin" not in headers:
        response.headers["access-control-allow-methods"] = _METHODS
        requested = headers.get("access-control-request-headers")
        if requested:
            response.headers["access-control-allow-headers"] = requested
            response.headers["vary"] = "Access-Control-Request-Headers"
    return response


def access_log_path() -> str:
    """Return the path of the access log: which browser or program changed something through the server, and when."""
    return os.path.join(paths.state(), "access.log")


def log_access(method: str, path: str, status: int, client: str) -> None:
    """Append a line to the access log; without the query, which may contain a password, and without the body."""
    line = f"{time.strftime('%Y-%m-%dT%H:%M:%S%z')} {method} {path} {status} {client}"
    try:
        # A path may contain line ends and characters that a terminal obeys, and so may the name of a program.
        append_to_log(access_log_path(), line.encode("unicode_escape") + b"\n")
    except OSError as error:  # a log that cannot be written does not stop the server
        log.info("the access log cannot be written: %s", error)
