"""A built web interface in a folder of the user's, served beside the API.

Files of the folder are served under their path. A navigation to any other address gets ``index.html``, in which the
interface finds its way. Every other unknown address gets a JSON error, because clients of the API must get no page.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from starlette.responses import FileResponse

from ..errors import UsageError

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response

_HEADERS = {"content-security-policy": "frame-ancestors 'none'", "cache-control": "no-cache"}


class WebInterface:
    """The files of one folder."""

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
            return FileResponse(path, headers=_HEADERS)
        if "text/html" in request.headers.get("accept", ""):
            return FileResponse(self._index, headers=_HEADERS)
        return None
