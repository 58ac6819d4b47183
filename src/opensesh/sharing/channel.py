"""The way to one share: what goes through is cleaned first, and what the server has already does not go again."""

from __future__ import annotations

from hashlib import blake2b
from typing import TYPE_CHECKING

from ..errors import ShareError
from ..records import as_object, dumps_compact
from .items import ShareItem, emptied

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator

    from ..history.import_export.redaction import Redactor
    from ..records import Document, Share
    from .client import ShareServer

    Describe = Callable[[str, str], Document]

_BATCH_BYTES = 1 << 20
_BATCH_ITEMS = 1_000


class Channel:
    """Sends to one share. For one task at a time.

    ``redactor`` takes out secrets, and counts them; ``describe`` gives what is to be known of a model by its provider's
    name and its own.
    """

    def __init__(
        self, server: ShareServer, share: Share, *, redactor: Redactor | None, describe: Describe | None = None
    ) -> None:
        self.share = share
        self.redactor = redactor
        self.too_large: list[str] = []
        """Keys of what the server would not take at any size."""
        self._server = server
        self._describe = describe
        self._models: dict[tuple[str, str], Document] = {}
        self._held: dict[str, bytes] = {}

    async def send(self, items: Iterable[ShareItem]) -> int:
        """Send what the server does not have yet; how many items that was."""
        count = 0
        for batch in _batches(self._news(items)):
            count += await self._deliver(batch)
        return count

    async def bring_up_to_date(self, items: Collection[ShareItem], *, later: Collection[str] = ()) -> int:
        """Ask the server what it has, send what is new, and empty what is gone; how many items were sent.

        ``items`` is everything there is, but for the parts named in ``later``, which are not complete.
        """
        try:
            held = await self._server.data(self.share.id or "")
        except ShareError as error:
            if error.retryable:
                raise
            held = []  # not every server has to show what it has; whether it takes any will be seen
        self._held = {item.key: _digest(item) for item in held}
        there = {item.key for item in items} | set(later)
        gone = [emptied(item) for item in held if item.type in ("part", "session_diff") and item.key not in there]
        return await self.send([*items, *gone])

    def _news(self, items: Iterable[ShareItem]) -> Iterator[tuple[ShareItem, bytes, int]]:
        for item in items:
            yield from self._new(item)
            if item.type == "message":
                self._note_model(item.data)
        if self._models:
            yield from self._new(ShareItem("model", list(self._models.values())))

    def _new(self, item: ShareItem) -> Iterator[tuple[ShareItem, bytes, int]]:
        """The item as it may leave, its digest and its size, unless the server has it."""
        cleaned = item if self.redactor is None else item._replace(data=self.redactor.value(item.data))
        content = dumps_compact(cleaned.data)
        digest = blake2b(content, digest_size=16).digest()
        if self._held.get(cleaned.key) != digest:
            yield cleaned, digest, len(content)

    def _note_model(self, message: Document) -> None:
        """Remember the model that a prompt names, to tell the server of it."""
        named = as_object(message.get("model")) or {}
        ref = str(named.get("providerID", "")), str(named.get("modelID", ""))
        if self._describe is not None and message.get("role") == "user" and all(ref) and ref not in self._models:
            self._models[ref] = self._describe(*ref)

    async def _deliver(self, batch: list[tuple[ShareItem, bytes, int]]) -> int:
        try:
            await self._server.sync(self.share, [item for item, _, _ in batch])
        except ShareError as error:
            if error.status != 413:
                raise
            return await self._deliver_less(batch)
        self._held.update((item.key, digest) for item, digest, _ in batch)
        return len(batch)

    async def _deliver_less(self, batch: list[tuple[ShareItem, bytes, int]]) -> int:
        """Too much for the server: half of it, and then the other half; one item that is too much stays here."""
        if len(batch) == 1:
            item, digest, _ = batch[0]
            self.too_large.append(item.key)
            self._held[item.key] = digest
            return 0
        middle = len(batch) // 2
        return await self._deliver(batch[:middle]) + await self._deliver(batch[middle:])


def _batches(news: Iterable[tuple[ShareItem, bytes, int]]) -> Iterator[list[tuple[ShareItem, bytes, int]]]:
    batch: dict[str, tuple[ShareItem, bytes, int]] = {}
    size = 0
    for each in news:
        if batch and (size + each[2] > _BATCH_BYTES or len(batch) >= _BATCH_ITEMS):
            yield list(batch.values())
            batch, size = {}, 0
        batch[each[0].key] = each
        size += each[2]
    if batch:
        yield list(batch.values())


def _digest(item: ShareItem) -> bytes:
    return blake2b(dumps_compact(item.data), digest_size=16).digest()
