"""Read texts from the stores: the cache keeps none, so what is shown or matched is read again."""

from __future__ import annotations

from contextlib import suppress
from itertools import groupby
from typing import TYPE_CHECKING, NamedTuple

from ...errors import RecordError, StoreError
from ..cache.cache_layers import feeds_with, most_complete
from . import extract
from .text_layer import TEXT

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from sqlite3 import Connection

    from ...records import Document
    from ...storage.protocol import ChangeFeed
    from .extract import ExtractedText

_BATCH_PARTS = 200


class PartLocation(NamedTuple):
    """Where a text is."""

    id: int
    """The number of the part in the cache."""
    session: str
    message: str
    """Empty for a session's title."""
    part: str
    """Empty for a title and for the error of a message."""
    role: str
    title: str


class PartTexts:
    """Reads the current texts of parts."""

    def __init__(self, db: Connection, feeds: Sequence[ChangeFeed]) -> None:
        self._db = db
        self._feeds = feeds

    def few(self, locations: Iterable[PartLocation]) -> Iterator[tuple[PartLocation, ExtractedText | None]]:
        """Read parts one by one, in order; ``None`` for one that no longer exists."""
        for location in locations:
            if not location.message:
                yield location, extract.of_title(location.title)
                continue
            copies = [_read_part(feed, location) for feed in feeds_with(self._db, TEXT, self._feeds, location.session)]
            record = most_complete(
                "part" if location.part else "message", [copy for copy in copies if copy is not None]
            )
            yield location, _extract(location, record)

    def many(self, locations: Iterable[PartLocation]) -> Iterator[tuple[PartLocation, ExtractedText | None]]:
        """Read any number of parts in batches; the order within a session may change."""
        for session, group in groupby(locations, key=lambda location: location.session):
            batch: list[PartLocation] = []
            for location in group:
                batch.append(location)
                if len(batch) >= _BATCH_PARTS:
                    yield from self._batch(session, batch)
                    batch = []
            yield from self._batch(session, batch)

    def _batch(
        self, session: str, locations: Sequence[PartLocation]
    ) -> Iterator[tuple[PartLocation, ExtractedText | None]]:
        parts = {(location.message, location.part): location for location in locations if location.part}
        yield from self.few(location for location in locations if not location.part)
        if not parts:
            return
        holding = feeds_with(self._db, TEXT, self._feeds, session)
        if len(holding) != 1:
            yield from self.few(parts.values())
            return
        for message, name, record in _read_parts(holding[0], session, list(parts)):
            location = parts.pop((message, name))
            yield location, _extract(location, record)
        for location in parts.values():
            yield location, None


def _read_part(feed: ChangeFeed, location: PartLocation) -> Document | None:
    try:
        return feed.part(location.session, location.message, location.part)
    except StoreError:  # nothing to show
        return None


def _read_parts(
    feed: ChangeFeed, session: str, names: Sequence[tuple[str, str]]
) -> Iterator[tuple[str, str, Document]]:
    try:
        for record in feed.parts(session, names):
            with suppress(RecordError):
                yield record.message_id, record.id, record.document()
    except StoreError:
        return


def fields_of(text: ExtractedText | None) -> dict[str, str]:
    """Return the texts by field."""
    return dict(zip(extract.COLUMNS, text.fields, strict=True)) if text else {}


def _extract(location: PartLocation, record: Document | None) -> ExtractedText | None:
    if record is None:
        return None
    return extract.of_part(record, location.role) if location.part else extract.of_message(record)
