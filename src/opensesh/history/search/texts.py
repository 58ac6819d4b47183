"""The texts behind the index: it keeps none, so what is shown or looked through is read from the stores."""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING, NamedTuple

from ...errors import StoreError
from . import extract
from .feeds import Document, Feed, fullest, holders

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from sqlite3 import Connection

    from .extract import Extract

_MANY = 200


class Place(NamedTuple):
    """Where a text is."""

    id: int
    """In the index."""
    session: str
    message: str
    """Empty for a session's title."""
    part: str
    """Empty for a title, and for what went wrong with a message."""
    role: str
    title: str


class Texts:
    """Reads parts again, as they are now."""

    def __init__(self, db: Connection, feeds: Sequence[Feed]) -> None:
        self._db = db
        self._feeds = feeds

    def few(self, places: Iterable[Place]) -> Iterator[tuple[Place, Extract | None]]:
        """What is in each, in order; ``None`` for what is gone by now."""
        for place in places:
            if not place.message:
                yield place, extract.of_title(place.title)
                continue
            copies = [_part(feed, place) for feed in holders(self._db, self._feeds, place.session)]
            record = fullest("part" if place.part else "message", [copy for copy in copies if copy is not None])
            yield place, _taken(place, record)

    def many(self, places: Iterable[Place]) -> Iterator[tuple[Place, Extract | None]]:
        """The same for any number of them, in batches; the order within a session may change."""
        for session, group in groupby(places, key=lambda place: place.session):
            batch: list[Place] = []
            for place in group:
                batch.append(place)
                if len(batch) >= _MANY:
                    yield from self._batch(session, batch)
                    batch = []
            yield from self._batch(session, batch)

    def _batch(self, session: str, places: Sequence[Place]) -> Iterator[tuple[Place, Extract | None]]:
        parts = {(place.message, place.part): place for place in places if place.part}
        yield from self.few(place for place in places if not place.part)
        if not parts:
            return
        holding = holders(self._db, self._feeds, session)
        if len(holding) != 1:
            yield from self.few(parts.values())
            return
        for message, name, record in _parts(holding[0], session, list(parts)):
            place = parts.pop((message, name))
            yield place, _taken(place, record)
        for place in parts.values():
            yield place, None


def _part(feed: Feed, place: Place) -> Document | None:
    try:
        return feed.part(place.session, place.message, place.part)
    except StoreError:  # what cannot be read any more has nothing to show
        return None


def _parts(feed: Feed, session: str, names: Sequence[tuple[str, str]]) -> Iterator[tuple[str, str, Document]]:
    try:
        yield from feed.parts(session, names)
    except StoreError:
        return


def fields_of(found: Extract | None) -> dict[str, str]:
    """What is in it, by field."""
    return dict(zip(extract.COLUMNS, found.fields, strict=True)) if found else {}


def _taken(place: Place, record: Document | None) -> Extract | None:
    if record is None:
        return None
    return extract.of_part(record, place.role) if place.part else extract.of_message(record)
