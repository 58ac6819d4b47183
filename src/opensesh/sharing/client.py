"""A share server as seen from here: OpenCode's share protocol over HTTP.

Whatever goes wrong is a :class:`~opensesh.errors.ShareError` that says where, and whether to try again. Secrets go to
the server that gave them and nowhere else: redirects are not followed with one.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from ..errors import RecordError, ShareError
from ..records import Share, as_list, as_object, dumps_compact, loads, view
from ..text import error_text
from .items import ShareItem, read_item

if TYPE_CHECKING:
    from collections.abc import Iterable
    from types import TracebackType

    import httpx2

LINK = re.compile(r"(?P<server>https?://[^\s?#]+?)/share/(?P<id>[A-Za-z0-9_-]{1,200})/?")
"""A link to a shared session."""
_ID = re.compile(r"[A-Za-z0-9_-]{1,200}")
_SHORT = 1 << 16
_LONG = 1 << 28
"""The most bytes an answer may have: of a few words, and of a whole session."""
_LEGACY = "https://api.opencode.ai"
"""Where OpenCode shared to until 1.0.90."""


class ShareServer:
    """One server. An async context manager, or to be closed after use."""

    def __init__(self, base: str, *, timeout: float = 30.0) -> None:
        self.base = base
        self._timeout = timeout
        self._client: httpx2.AsyncClient | None = None

    async def __aenter__(self) -> ShareServer:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    async def create(self, session_id: str) -> Share:
        """A new share, empty as yet."""
        answer = as_object(await self._ask("POST", "/api/share", {"sessionID": session_id})) or {}
        share = {name: answer.get(name) for name in ("id", "url", "secret")}
        try:
            found = view(share, Share)
        except RecordError as error:
            raise ShareError(f"{self.base} answered with something that is no share: {error.message}") from None
        if not _ID.fullmatch(found.id or "") or not found.secret or not found.url.startswith(("http://", "https://")):
            raise ShareError(f"{self.base} answered with something that is no share")
        return found

    async def sync(self, share: Share, items: Iterable[ShareItem]) -> None:
        """Put items on the server, in place of those with the same keys."""
        body = {"secret": share.secret, "data": [item.document for item in items]}
        await self._ask("POST", f"/api/share/{_name(share)}/sync", body)

    async def remove(self, share: Share, session_id: str) -> None:
        """Take a share down. One that is down already is no error; one that can still be read afterwards is."""
        if share.id is None:
            await self._ask("POST", "/share_delete", {"sessionID": session_id, "secret": share.secret})
            return
        try:
            await self._ask("DELETE", f"/api/share/{_name(share)}", {"secret": share.secret})
            held = await self.data(share.id)
        except ShareError as error:
            if error.is_gone:
                return
            raise
        if held:
            message = f"{self.base} says that it took {share.url} down, and still shows it"
            raise ShareError(message, retryable=True)

    async def data(self, share_id: str) -> list[ShareItem]:
        """All items of a share, which takes no secret; what is none is left out."""
        if not _ID.fullmatch(share_id):
            raise ShareError(f"{share_id!r} cannot be the name of a share")
        path = f"/api/share/{share_id}/data"
        answer = as_list(await self._ask("GET", path, None, most=_LONG))
        if answer is None:
            raise ShareError(f"{self.base}{path} answered with something that is no session")
        return [item for item in map(read_item, answer) if item is not None]

    async def aclose(self) -> None:
        """Close the connections."""
        if self._client is not None:
            client, self._client = self._client, None
            await client.aclose()

    async def _ask(self, method: str, path: str, body: Any, *, most: int = _SHORT) -> Any:
        import httpx2

        url = self.base + path
        content = None if body is None else dumps_compact(body)
        headers = {"content-type": "application/json"} if content is not None else {}
        try:
            client = self._connected()
            async with client.stream(
                method, url, content=content, headers=headers, follow_redirects=method == "GET"
            ) as response:
                data = await _read(response, most, url)
        except httpx2.InvalidURL as error:
            raise ShareError(f"{url} cannot be used: {error}") from None
        except httpx2.TimeoutException:
            raise ShareError(f"{self.base} did not answer in time", retryable=True) from None
        except (httpx2.HTTPError, OSError) as error:
            raise ShareError(f"{self.base} cannot be reached: {error_text(error)}", retryable=True) from None
        if not response.is_success:
            raise _refusal(response, data, url)
        try:
            return loads(data, url) if data.strip() else None
        except RecordError:
            if method != "GET" and path != "/api/share":
                return None  # done, whatever the words
            raise ShareError(f"{url} answered with something that is no JSON") from None

    def _connected(self) -> httpx2.AsyncClient:
        if self._client is None:
            import httpx2

            from ..models.transport import proxy_errors, ssl_context

            verify = ssl_context() if self.base.startswith("https:") else True
            with proxy_errors():
                self._client = httpx2.AsyncClient(verify=verify, timeout=self._timeout)
        return self._client


def server_of(share: Share, *, otherwise: str) -> str:
    """The server that gave a share, told by its link; ``otherwise`` where that does not tell."""
    if share.id is None:
        return _LEGACY
    found = LINK.fullmatch(share.url)
    return found["server"] if found and found["id"] == share.id else otherwise


async def _read(response: httpx2.Response, most: int, url: str) -> bytes:
    pieces: list[bytes] = []
    size = 0
    async for piece in response.aiter_bytes():
        size += len(piece)
        if size > most:
            raise ShareError(f"{url} answered with more than {most:,} bytes")
        pieces.append(piece)
    return b"".join(pieces)


def _refusal(response: httpx2.Response, data: bytes, url: str) -> ShareError:
    from ..models.failures import retry_after_ms

    status = response.status_code
    wait = retry_after_ms(response.headers, limited=False)
    said = " ".join(data[:200].decode("utf-8", "replace").split())
    hint = f": {said}" if said and "<" not in said else ""
    return ShareError(
        f"{url} answered {status} {response.reason_phrase}".rstrip() + hint,
        status=status,
        retryable=status in (408, 425, 429) or status >= 500,
        wait=None if wait is None else wait / 1000,
    )


def _name(share: Share) -> str:
    name = share.id or ""
    if not _ID.fullmatch(name):
        raise ShareError(f"{name!r} cannot be the name of a share")
    return name
