"""Access control of the web pages.

Cookies do not know ports: a page of another server on this machine can send requests here with the cookie. Therefore
the cookie permits to read pages only, and changes need the key as well, which only pages of this origin know.
"""

from __future__ import annotations

from http import HTTPStatus
from typing import TYPE_CHECKING

from ..responses import RequestError, error_response
from .browsers import has_key, is_same_origin
from .pages import message_page

if TYPE_CHECKING:
    from starlette.responses import Response
    from starlette.types import Scope

    from .browsers import Browser, Browsers

_SAFE_METHODS = ("GET", "HEAD")
_CONTROL_PATH = "/ui/tickets"
_ENTRY_PATH = "/ui/enter"


def is_page_path(path: str) -> bool:
    """Whether an address is of the pages."""
    return path == "/ui" or path.startswith("/ui/")


class PageAccess:
    """The rules for the pages of one server."""

    def __init__(self, browsers: Browsers, *, has_root: bool) -> None:
        """With ``has_root``, a navigation to ``/`` leads to the pages."""
        self._browsers = browsers
        self._has_root = has_root

    def redirects(self, scope: Scope, headers: dict[str, str]) -> bool:
        """Whether a request only leads to the pages, for which it needs no password."""
        return self._has_root and scope["path"] == "/" and _is_navigation(scope, headers)

    def rejection(self, scope: Scope, headers: dict[str, str]) -> Response | None:
        """Return the response to a request for a page that is not allowed; ``None`` if it is."""
        path = scope["path"]
        is_elsewhere = headers.get("sec-fetch-site", "none") not in ("none", "same-origin")
        if is_elsewhere and _is_navigation(scope, headers):
            return None if path == _ENTRY_PATH else _link_from_elsewhere(scope)
        is_read = scope.get("method") in _SAFE_METHODS
        reason = _foreign_reason(path, headers, is_read=is_read)
        if reason:
            return _forbidden(reason)
        if path in (_ENTRY_PATH, _CONTROL_PATH) or path.startswith("/ui/static/"):
            return None
        browser = self._browsers.identify(headers)
        if browser is None:
            return _not_signed_in() if is_read else _forbidden("this browser is not signed in")
        scope["opensesh.browser"] = browser
        if is_read or has_key(browser, headers):
            return None
        return _forbidden("the key of this browser is missing; 'opensesh web' signs it in again")

    def rejects_change(self, scope: Scope, headers: dict[str, str]) -> bool:
        """Whether a request of a page would change the history without being allowed to.

        OpenCode's API accepts the pages of every local port; its extension here need not.
        """
        is_change = scope["path"].startswith("/history/") and scope.get("method") not in (*_SAFE_METHODS, "OPTIONS")
        is_page = "origin" in headers or headers.get("sec-fetch-site", "none") != "none"
        return is_change and is_page and self.authorizes(headers) is None

    def authorizes(self, headers: dict[str, str]) -> Browser | None:
        """Return the browser that a request to the API comes from, if it is signed in and has its key."""
        browser = self._browsers.identify(headers) if "cookie" in headers else None
        return browser if browser is not None and has_key(browser, headers) and is_same_origin(headers) else None


def _is_navigation(scope: Scope, headers: dict[str, str]) -> bool:
    return scope.get("method") in _SAFE_METHODS and headers.get("sec-fetch-mode") == "navigate"


def _foreign_reason(path: str, headers: dict[str, str], *, is_read: bool) -> str:
    """Return why a request cannot come from a page of this server, or from a program where one is needed."""
    if path == _CONTROL_PATH:
        is_browser = "origin" in headers or "sec-fetch-site" in headers
        return "tickets are for programs" if is_browser else ""
    is_foreign = "origin" in headers or headers.get("sec-fetch-site", "none") != "none"
    if is_foreign and not is_same_origin(headers):
        return "requests of other web pages are not allowed"
    return "" if is_read or is_same_origin(headers) else "a change needs the Origin header of this server"


def _forbidden(reason: str) -> Response:
    return error_response(RequestError(403, "ForbiddenError", reason))


def _link_from_elsewhere(scope: Scope) -> Response:
    address = scope["raw_path"].decode("latin-1")
    if query := scope.get("query_string", b"").decode("latin-1"):
        address += f"?{query}"
    return message_page(
        HTTPStatus.UNAUTHORIZED,
        "A link from another site",
        "Another site or program led here. Your sign-in is not used for such links, so that no other page can act in "
        "your name.",
        link=(address, "Open this page"),
    )


def _not_signed_in() -> Response:
    return message_page(
        HTTPStatus.UNAUTHORIZED,
        "Not signed in",
        "Pages are shown only to browsers that were signed in from a terminal of this machine. Run this command there:",
        command="opensesh web",
        link=("/ui/enter", "Enter a code"),
    )
