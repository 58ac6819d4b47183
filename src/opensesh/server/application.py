"""The ASGI application of the server."""

from __future__ import annotations

import os
from contextlib import asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.responses import FileResponse, RedirectResponse

from ..bus import Bus
from ..engine.cancellation import run_in_thread_uncancellable
from ..engine.opening import open_engine
from ..engine.pool import EnginePool
from ..engine.settings import Settings
from ..errors import UsageError
from ..sessions.settling import settle
from ..storage import open_store
from .access import AccessMiddleware, Credentials
from .operations import starlette_route
from .responses import RequestError, error_response
from .routes import all_operations
from .routes.pty_routes import websocket_route
from .state import ServerState
from .web.all_pages import all_pages
from .web.page_access import PageAccess
from .web.pages import error_page, page_route

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Iterable

    from starlette.requests import Request
    from starlette.responses import Response
    from starlette.types import ASGIApp

    from .state import ServerOptions

_KEPT_EVENTS = 8192
"""How many events a slow or reconnecting client can be behind."""
_INTERFACE_HEADERS = {"content-security-policy": "frame-ancestors 'none'", "cache-control": "no-cache"}


def application(options: ServerOptions, url: str, hosts: Iterable[str]) -> tuple[ASGIApp, ServerState]:
    """Return the application of a server at ``url``, and the state of its requests. ``hosts`` are the accepted values
    of the Host header beside loopback names."""
    interface = WebInterface(options.web_ui) if options.web_ui else None
    bus = Bus(keep=_KEPT_EVENTS)
    store = settle(open_store(options.store))
    settings = Settings(
        owner=f"opensesh serve at {url}",
        opencode_events=True,
        snapshot_start_seconds=5.0,  # clients of OpenCode expect steps that begin with their snapshot
        unanswered_warning_seconds=None,
    )
    pool = EnginePool(partial(open_engine, store=store, settings=settings, bus=bus))
    credentials = Credentials(options.username, options.password) if options.password else None
    state = ServerState(pool, bus, store, os.path.realpath(options.directory), credentials)
    state.browsers.cookie_name = f"opensesh_{url.rpartition(':')[2]}"

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncGenerator[None]:
        try:
            async with pool:
                yield
        finally:
            await state.terminals.close()
            state.streams.close()
            await run_in_thread_uncancellable(state.history.close)
            store.close()

    async def not_found(request: Request, error: Exception) -> Response:
        page = interface.response(request) if interface is not None else None
        if page is not None:
            return page
        if request.url.path in ("/", "/ui") and request.headers.get("sec-fetch-mode") == "navigate":
            return RedirectResponse("/ui/")
        status = error.status_code if isinstance(error, HTTPException) else 404
        message = f"there is no operation {request.method} {request.url.path}"
        response = error_response(RequestError(status, "NotFoundError", message))
        return error_page(request, response) if request.url.path.startswith("/ui/") else response

    app = Starlette(
        routes=[
            websocket_route(state),
            *(starlette_route(operation, state) for operation in all_operations()),
            *(page_route(operation, state) for operation in all_pages()),
        ],
        exception_handlers={404: not_found, 405: not_found, HTTPException: not_found},
        lifespan=lifespan,
    )
    app.router.redirect_slashes = False
    pages = PageAccess(state.browsers, has_root=interface is None)
    return AccessMiddleware(app, [*hosts, *options.allowed_hosts], options.cors, credentials, pages), state


class WebInterface:
    """A built web interface in a folder of the user's, served beside the API.

    Files of the folder are served under their path. A navigation to any other address gets ``index.html``, in which the
    interface finds its way. Every other unknown address gets a JSON error, because clients of the API must get no page.
    """

    def __init__(self, folder: str) -> None:
        self._folder = os.path.realpath(os.path.expanduser(folder))
        self._index = os.path.join(self._folder, "index.html")
        if not os.path.isfile(self._index):
            raise UsageError(f"{folder} has no index.html; --web-ui needs the folder of a built web interface")

    def response(self, request: Request) -> Response | None:
        """Return the file or page for an address that is not of the API; ``None`` if there is none."""
        if request.method not in ("GET", "HEAD"):
            return None
        name = request.url.path.lstrip("/")
        path = os.path.realpath(os.path.join(self._folder, name)) if "\0" not in name else ""
        if name and path.startswith(self._folder + os.sep) and os.path.isfile(path):
            return FileResponse(path, headers=_INTERFACE_HEADERS)
        if "text/html" in request.headers.get("accept", ""):
            return FileResponse(self._index, headers=_INTERFACE_HEADERS)
        return None
