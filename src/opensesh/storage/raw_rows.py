"""Rows of a store in tables, for repairs: what is wrong with them, and replacing any of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, runtime_checkable

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ..records import Document


class RawRow(NamedTuple):
    """A row: its path ``<table>/<key>``, its columns, and the record that it holds as far as it can be read."""

    path: str
    columns: dict[str, Any]
    record: Document
    fault: str
    """Why the program that owns the table could not read the row; empty if it could."""


@runtime_checkable
class RawRows(Protocol):
    """A store in tables whose rows can be examined and replaced one by one."""

    def rows(self, table: str) -> Iterator[RawRow]:
        """Iterate over the rows of a table; over none if the store does not have that table."""
        ...

    def row_of(self, table: str, record: Document, columns: dict[str, Any]) -> bytes:
        """Return the row, as JSON, with a record in place of the one it has; raise ``RecordError`` if it is wrong."""
        ...

    def read_row(self, path: str) -> bytes | None:
        """Return a row as JSON; ``None`` if there is none."""
        ...

    def change_rows(self, changes: Sequence[tuple[str, bytes | None]]) -> None:
        """Replace, insert or (``None``) delete rows, all in one transaction, and nothing that belongs to them."""
        ...

    def structural_damage(self) -> list[str]:
        """Return what is wrong with the file itself, which cannot be repaired row by row."""
        ...
