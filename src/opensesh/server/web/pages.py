"""Declaring and rendering pages, and pages for errors.

Pages are operations as those of the API are (:mod:`opensesh.server.operations`), with the same checks of paths and
queries. Their handlers return :func:`render`, and their failures become pages as well::

    pages = Routes()


    @pages.get("/ui/projects", "ui.projects", response=None)
    async def projects_page(call: Call, query: ProjectsQuery) -> Response:
        \"\"\"Show all projects.\"\"\"
        rows = await call.state.read_history(partial(list_projects, query=query))
        return render(call, "projects.html", rows=rows)
"""

from __future__ import annotations

import gzip
import os
import re
from functools import cache
from hashlib import blake2b
from http import HTTPStatus
from importlib.resources import files
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import parse_qs

import msgspec
from markupsafe import Markup
from starlette.responses import HTMLResponse, Response
from starlette.routing import Route

from ...asgi.requests import cookie_value
from ...history.rendering.turns import template_environment
from ...text import format_bytes, format_count, pluralize
from ..operations import respond
from ..responses import error_response
from . import display

if TYPE_CHECKING:
    from jinja2 import Template
    from starlette.requests import Request

    from ..operations import Call, Operation
    from ..state import ServerState

HEADERS = (
    (
        b"content-security-policy",
        b"default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
        b"form-action 'self'; base-uri 'none'; frame-ancestors 'none'; manifest-src 'self'; "
        b"require-trusted-types-for 'script'; trusted-types opensesh",
    ),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"permissions-policy", b"camera=(), microphone=(), geolocation=(), clipboard-read=()"),
    (b"cache-control", b"no-store"),
)
"""The headers of every response under ``/ui/`` that does not set them itself."""
GZIP_HEADERS = {"content-encoding": "gzip", "vary": "accept-encoding"}
_MIN_COMPRESSED_BYTES = 2_000
_COMPRESSION_LEVEL = 2
"""The lowest levels take a millisecond for a page; the highest ones ten times that for a fifth fewer bytes."""
VIEW_COOKIE = "opensesh_view"
"""How this browser shows pages; written by the settings page."""
_VIEW_VALUES = {
    "theme": ("auto", "light", "dark"),
    "size": ("normal", "small", "large"),
    "density": ("normal", "compact"),
    "keys": ("on", "off"),
}
_TEMPLATES = (os.path.join(os.path.dirname(__file__), "templates"),)
_PACKAGES = ("opensesh.history.rendering", "opensesh.server.web")
_MEDIA_TYPES = {
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
    ".webmanifest": "application/manifest+json",
}
_IMPORT = re.compile(rb'^import (?:[^"]* from )?"\./(\w+\.js)";', re.MULTILINE)


def render(call: Call, template: str, *, status: int = 200, **values: Any) -> Response:
    """Return a page, or a fragment of one, from a template."""
    running = sum(len(engine.status()) for engine in call.state.pool.engines().values())
    context = _context(call.request) | {"running": running} | values
    return _html_response(_template(template).render(context), status)


def render_fragment(template: str, **values: Any) -> str:
    """Return a part of a page that is the same for all viewers."""
    return _template(template).render(values)


def is_fragment(call: Call) -> bool:
    """Whether a script asks for what a page contains rather than for the page."""
    return call.request.headers.get("accept", "") == "text/html-fragment"


def message_page(
    status: HTTPStatus,
    title: str,
    text: str,
    *,
    command: str = "",
    link: tuple[str, str] = ("", ""),
    detail: str = "",
    request: Request | None = None,
) -> Response:
    """Return a page that says one thing, with a command to type or a link to follow.

    It needs no sign-in. The ``request`` of a browser that is signed in gives it the bar of other pages.
    """
    template = _template("message.html")
    context = _context(request) | {"title": title, "text": text, "command": command, "link": link, "detail": detail}
    return _html_response(template.render(context), status)


def _html_response(text: str, status: int) -> Response:
    """Return a page; half a character of a record, a lone surrogate, becomes a question mark."""
    return HTMLResponse(text.encode(errors="replace"), status)


def page_route(operation: Operation, state: ServerState) -> Route:
    """Return the route that serves a page."""

    async def endpoint(request: Request) -> Response:
        try:
            response = await respond(operation, state, request)
        except Exception as error:  # every failure becomes a page, or a JSON answer to a script
            response = error_response(error)
        return _compressed(request, error_page(request, response))

    return Route(operation.path, endpoint, methods=[operation.method], name=operation.id)


def error_page(request: Request, response: Response) -> Response:
    """Return the page for a response that is an error; any other response, and one to a script, as it is."""
    media_type = response.headers.get("content-type", "")
    wants_page = request.method in ("GET", "HEAD") and "text/html" in request.headers.get("accept", "")
    if response.status_code < 400 or not media_type.startswith("application/json") or not wants_page:
        return response
    document = msgspec.json.decode(bytes(response.body))
    issues = " ".join(f"{'.'.join(map(str, issue['path']))}: {issue['message']}" for issue in document.get("error", ()))
    status = HTTPStatus(response.status_code)
    is_session = status == 404 and request.url.path.startswith("/ui/session/")
    return message_page(
        status,
        {404: "Not found", 400: "This address is not valid"}.get(status, "This page could not be made"),
        "This session does not exist. If it was removed, it may be in the trash."
        if is_session
        else document.get("data", {}).get("message", "") or issues,
        detail=f"{status.value} {document.get('name', status.phrase)}, {request.method} {request.url.path}",
        link=("/ui/trash", "Open the trash") if is_session else ("/ui/", "All sessions"),
        request=request,
    )


def accepts_gzip(request: Request) -> bool:
    """Whether the browser reads what is compressed with gzip."""
    return "gzip" in request.headers.get("accept-encoding", "")


def _compressed(request: Request, response: Response) -> Response:
    """Return a text response compressed with gzip, which matters over SSH.

    The size of a compressed response can reveal a secret in it to a site that chooses other words in it (BREACH).
    Responses with the key of a browser are JSON, and stay as they are; and no other site can request a page with the
    cookie.
    """
    is_text = response.headers.get("content-type", "").startswith("text/") and hasattr(response, "body")
    if is_text and accepts_gzip(request) and "content-encoding" not in response.headers:
        content = bytes(response.body)
        if len(content) >= _MIN_COMPRESSED_BYTES:
            response.body = gzip.compress(content, _COMPRESSION_LEVEL, mtime=0)
            response.headers.update(GZIP_HEADERS | {"content-length": str(len(response.body))})
    return response


def _module_script(name: str, *, is_blocking: bool = False) -> Markup:
    """Return the elements that load a script, and everything that it imports at the same time. What the page shows
    first waits for a script that ``is_blocking``."""
    folder = static_folder()
    preload = Markup('<link rel="modulepreload" href="{}/{}">\n')
    script = Markup('<script type="module" src="{}/{}"{}></script>').format(
        folder, name, Markup(' blocking="render"') if is_blocking else ""
    )
    return Markup("").join([*(preload.format(folder, imported) for imported in imported_scripts(name)), script])


def _template(name: str) -> Template:
    return template_environment(_TEMPLATES).get_template(
        name,
        globals={
            **display.FUNCTIONS,
            "format_bytes": format_bytes,
            "format_count": format_count,
            "module_script": _module_script,
            "pluralize": pluralize,
        },
    )


def _context(request: Request | None) -> dict[str, Any]:
    cookie = cookie_value(request.headers, VIEW_COOKIE) if request is not None else ""
    view = {name: values[0] for name, values in parse_qs(cookie).items()}
    return {
        "static": static_folder(),
        "path": request.url.path if request is not None else "",
        "running": 0,
        "is_signed_in": request is not None and "opensesh.browser" in request.scope,
        "view": {name: view.get(name) if view.get(name) in known else known[0] for name, known in _VIEW_VALUES.items()},
    }


# -- scripts, styles and pictures, in memory, under an address that changes with their content -------------------------


class StaticFile(NamedTuple):
    """A file and its media type."""

    content: bytes
    compressed: bytes
    """The content compressed with gzip."""
    media_type: str


@cache
def static_files() -> dict[str, StaticFile]:
    """Return the files of the ``static`` folders, by name."""
    by_name: dict[str, StaticFile] = {}
    for package in _PACKAGES:
        for file in files(package).joinpath("static").iterdir():
            media_type = _MEDIA_TYPES.get("." + file.name.rpartition(".")[2])
            if media_type is not None:
                content = file.read_bytes()
                by_name[file.name] = StaticFile(content, gzip.compress(content, mtime=0), media_type)
    return by_name


@cache
def static_folder() -> str:
    """Return the path under which the files are served: one for all of them, because scripts import each other."""
    digest = blake2b(digest_size=8)
    for name, file in sorted(static_files().items()):
        digest.update(name.encode() + b"\0" + file.content + b"\0")
    return f"/ui/static/{digest.hexdigest()}"


@cache
def imported_scripts(name: str) -> tuple[str, ...]:
    """Return the scripts that a script imports, and that those import. A browser that is given all of them does not
    have to read one to know of the next."""
    imported: dict[str, None] = {}
    waiting = [name]
    while waiting:
        for match in _IMPORT.findall(static_files()[waiting.pop()].content):
            if (script := match.decode()) not in imported:
                imported[script] = None
                waiting.append(script)
    return tuple(imported)
