"""Client of a share server: OpenCode's share protocol over HTTP.

Every failure is a :class:`~opensesh.errors.ShareError` that names the server and says whether a retry may help. A
secret goes only to the server that issued it: requests with one do not follow redirects.
"""

from __future__ import annotations

import asyncio
import re
from hashlib import blake2b
from typing import TYPE_CHECKING, Any

from ..errors import NotFoundError, RecordError, ShareError, UsageError
from ..history.import_export.import_sources import SourceSession, session_from_document
from ..models.failures import retry_after_ms
from ..records import Document, Share, as_list, as_object, dumps_compact, loads, object_at, view
from ..storage import keys
from ..storage.protocol import Damage, log_damage
from ..text import error_text
from .items import ShareItem, assemble, read_item, tombstone

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator

    import httpx2

    from ..redaction import Redactor

    DescribeModel = Callable[[str, str], Document]
    """Returns what a share page needs to know about a model, by provider id and model id."""

_LINK = re.compile(r"(?P<server>https?://[^\s?#]+?)/share/(?P<id>[A-Za-z0-9_-]{1,200})/?")
_ID = re.compile(r"[A-Za-z0-9_-]{1,200}")
_LEGACY_SERVER = "https://api.opencode.ai"
"""Where OpenCode shared to until 1.0.90."""
_MAX_RESPONSE_BYTES = 1 << 16
_MAX_SESSION_BYTES = 1 << 28
_TOTAL_SECONDS = 600.0
"""How long a whole answer may take. A server that sends a byte now and then never exceeds the limit of one read."""
_BATCH_BYTES = 1 << 20
_BATCH_ITEMS = 1_000


class ShareServer:
    """A share server. An async context manager; otherwise close it after use."""

    def __init__(self, base: str, *, timeout: float = 30.0, total_seconds: float = _TOTAL_SECONDS) -> None:
        self.base = base
        self._timeout = timeout
        self._total_seconds = total_seconds
        self._client: httpx2.AsyncClient | None = None

    async def __aenter__(self) -> ShareServer:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def create(self, session_id: str) -> Share:
        """Create an empty share."""
        response = as_object(await self._request("POST", "/api/share", {"sessionID": session_id})) or {}
        try:
            share = view({name: response.get(name) for name in ("id", "url", "secret")}, Share)
        except RecordError as error:
            raise ShareError(f"{self.base} did not return a share: {error.message}") from None
        if not _ID.fullmatch(share.id or "") or not share.secret or not share.url.startswith(("http://", "https://")):
            raise ShareError(f"{self.base} did not return a valid share")
        return share

    async def sync(self, share: Share, items: Iterable[ShareItem]) -> None:
        """Store items on the server, replacing those with the same keys."""
        body = {"secret": share.secret, "data": [item.document for item in items]}
        await self._request("POST", f"/api/share/{_checked_id(share.id or '')}/sync", body)

    async def remove(self, share: Share, session_id: str) -> None:
        """Delete a share. A share that does not exist is not an error; one that can be read afterwards is."""
        if share.id is None:
            await self._request("POST", "/share_delete", {"sessionID": session_id, "secret": share.secret})
            return
        try:
            await self._request("DELETE", f"/api/share/{_checked_id(share.id)}", {"secret": share.secret})
            remaining = await self.data(share.id)
        except ShareError as error:
            if error.is_gone:
                return
            raise
        if remaining:
            raise ShareError(f"{self.base} confirmed the removal of {share.url} but still serves it", retryable=True)

    async def data(self, share_id: str) -> list[ShareItem]:
        """Return all items of a share, without those of unknown types. Needs no secret."""
        path = f"/api/share/{_checked_id(share_id)}/data"
        values = as_list(await self._request("GET", path, None, limit=_MAX_SESSION_BYTES))
        if values is None:
            raise ShareError(f"{self.base}{path} did not return a session")
        return [item for item in map(read_item, values) if item is not None]

    async def aclose(self) -> None:
        """Close the connections."""
        if self._client is not None:
            client, self._client = self._client, None
            await client.aclose()

    async def _request(self, method: str, path: str, body: Any, *, limit: int = _MAX_RESPONSE_BYTES) -> Any:
        import httpx2  # most commands never send a request

        url = self.base + path
        sent = None if body is None else dumps_compact(body)
        headers = {"content-type": "application/json"} if sent is not None else {}
        try:
            if self._client is None:
                from ..models.transport import proxy_errors, ssl_context

                verify = ssl_context() if self.base.startswith("https:") else True
                with proxy_errors():
                    self._client = httpx2.AsyncClient(verify=verify, timeout=self._timeout)
            async with (
                asyncio.timeout(self._total_seconds),
                self._client.stream(
                    method, url, content=sent, headers=headers, follow_redirects=method == "GET"
                ) as response,
            ):
                content = bytearray()
                async for chunk in response.aiter_bytes():
                    content += chunk
                    if len(content) > limit:
                        raise ShareError(f"the response of {url} is larger than {limit:,} bytes")
                data = bytes(content)
        except httpx2.InvalidURL as error:
            raise ShareError(f"{url} is not a valid URL: {error}") from None
        except (httpx2.TimeoutException, TimeoutError):
            raise ShareError(f"{self.base} did not answer in time", retryable=True) from None
        except (httpx2.HTTPError, OSError) as error:
            raise ShareError(f"{self.base} cannot be reached: {error_text(error)}", retryable=True) from None
        if not response.is_success:
            raise _status_error(response, data, url)
        try:
            return loads(data, url) if data.strip() else None
        except RecordError:
            if method != "GET" and path != "/api/share":
                return None  # the status says that it succeeded, and the body does not matter
            raise ShareError(f"{url} did not return JSON") from None


def _status_error(response: httpx2.Response, data: bytes, url: str) -> ShareError:
    status = response.status_code
    wait_ms = retry_after_ms(response.headers, limited=False)
    text = " ".join(data[:200].decode("utf-8", "replace").split())
    detail = f": {text}" if text and "<" not in text else ""  # an error page would not help
    return ShareError(
        f"{url} answered {status} {response.reason_phrase}".rstrip() + detail,
        status=status,
        retryable=status in (408, 425, 429) or status >= 500,
        wait=None if wait_ms is None else wait_ms / 1000,
    )


def _checked_id(share_id: str) -> str:
    if not _ID.fullmatch(share_id):
        raise ShareError(f"{share_id!r} is not a valid share id")
    return share_id


def server_of(share: Share, *, default: str) -> str:
    """Return the base URL of the server that issued a share, by its link; ``default`` if the link does not name it."""
    if share.id is None:
        return _LEGACY_SERVER
    link = _LINK.fullmatch(share.url)
    return link["server"] if link and link["id"] == share.id else default


async def fetch_shared_session(link: str, *, report: Callable[[Damage], None] = log_damage) -> SourceSession:
    """Return the session behind a share link, ready to be imported."""
    match = _LINK.fullmatch(link)
    if match is None:
        raise UsageError(f"{link} is not a share link; expected something like https://example.org/share/NAME")
    async with ShareServer(match["server"]) as server:
        try:
            items = await server.data(match["id"])
        except ShareError as error:
            if error.is_gone:
                raise NotFoundError(f"nothing is shared at {link}, or not any more", url=link) from None
            raise
    session = assemble(items, report=report)
    if session is None:
        raise NotFoundError(f"there is no session at {link} yet", url=link)
    messages = [{"info": message.info, "parts": message.parts} for message in session.messages]
    source = session_from_document({"info": session.info, "messages": messages}, link, report=report)
    if source is None:
        raise NotFoundError(f"there is no session at {link}", url=link)
    return source._replace(related=[(keys.diff(source.id), session.diff)] if session.diff else [])


class ShareChannel:
    """Sends items to one share, redacted, and only those that the server does not have. For one task at a time."""

    def __init__(
        self,
        server: ShareServer,
        share: Share,
        *,
        redactor: Redactor | None,
        describe_model: DescribeModel | None = None,
    ) -> None:
        self.share = share
        self.redactor = redactor
        self.too_large: list[str] = []
        """Keys of items that the server does not accept because of their size."""
        self._server = server
        self._describe_model = describe_model
        self._models: dict[tuple[str, str], Document] = {}
        self._digests: dict[str, bytes] = {}
        """Digests of what the server has, by key."""

    async def send(self, items: Iterable[ShareItem]) -> int:
        """Send the items that the server does not have; return how many were sent."""
        count = 0
        for batch in _batches(self._new_items(items)):
            count += await self._send_batch(batch)
        return count

    async def update(self, items: Collection[ShareItem], *, incomplete: Collection[str] = ()) -> int:
        """Compare with what the server has, send what is new and empty what was removed; return how many were sent.

        ``items`` are all items of the session except those with the keys ``incomplete``, which are left as they are.
        """
        try:
            stored = await self._server.data(self.share.id or "")
        except ShareError as error:
            if error.retryable:
                raise
            stored = []  # a server may refuse to list its data and still accept new data, so everything is sent
        self._digests = {item.key: _digest(dumps_compact(item.data)) for item in stored}
        keys = {item.key for item in items} | set(incomplete)
        removed = [tombstone(item) for item in stored if item.type in ("part", "session_diff") and item.key not in keys]
        return await self.send([*items, *removed])

    def _new_items(self, items: Iterable[ShareItem]) -> Iterator[tuple[ShareItem, bytes, int]]:
        """Yield the redacted items that the server does not have, each with its digest and size."""
        for item in items:
            yield from self._if_new(item)
            model = object_at(item.data, "model") if item.type == "message" else {}
            ref = str(model.get("providerID", "")), str(model.get("modelID", ""))
            is_prompt = item.type == "message" and item.data.get("role") == "user"
            if self._describe_model is not None and is_prompt and all(ref) and ref not in self._models:
                self._models[ref] = self._describe_model(*ref)
        if self._models:
            yield from self._if_new(ShareItem("model", list(self._models.values())))

    def _if_new(self, item: ShareItem) -> Iterator[tuple[ShareItem, bytes, int]]:
        redacted = item if self.redactor is None else item._replace(data=self.redactor.value(item.data))
        content = dumps_compact(redacted.data)
        digest = _digest(content)
        if self._digests.get(redacted.key) != digest:
            yield redacted, digest, len(content)

    async def _send_batch(self, batch: list[tuple[ShareItem, bytes, int]]) -> int:
        try:
            await self._server.sync(self.share, [item for item, _, _ in batch])
        except ShareError as error:
            if error.status != 413:
                raise
        else:
            self._digests.update((item.key, digest) for item, digest, _ in batch)
            return len(batch)
        # Too large for the server: send each half. A single item that is too large is not sent again.
        if len(batch) == 1:
            item, digest, _ = batch[0]
            self.too_large.append(item.key)
            self._digests[item.key] = digest
            return 0
        middle = len(batch) // 2
        return await self._send_batch(batch[:middle]) + await self._send_batch(batch[middle:])


def _batches(items: Iterable[tuple[ShareItem, bytes, int]]) -> Iterator[list[tuple[ShareItem, bytes, int]]]:
    batch: dict[str, tuple[ShareItem, bytes, int]] = {}
    total = 0
    for item, digest, size in items:
        if batch and (total + size > _BATCH_BYTES or len(batch) >= _BATCH_ITEMS):
            yield list(batch.values())
            batch, total = {}, 0
        batch[item.key] = (item, digest, size)
        total += size
    if batch:
        yield list(batch.values())


def _digest(content: bytes) -> bytes:
    return blake2b(content, digest_size=16).digest()
