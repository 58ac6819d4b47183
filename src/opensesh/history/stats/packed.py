"""Values of many sessions, kept small: each is packed, and made anew whenever it is asked for.

A session's account takes some kilobytes as objects, and some hundred bytes packed. Whoever goes through all of them
holds one at a time.
"""

from __future__ import annotations

import marshal
from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeVar

T = TypeVar("T")


def pack(value: Any) -> bytes:
    """Plain tuples, lists, texts and numbers as bytes."""
    return marshal.dumps(value)


def unpack(data: bytes) -> Any:
    """What was packed."""
    return marshal.loads(data)  # noqa: S302 - our own, from a file whose sum was right


class Packed(Mapping[str, T]):
    """Packed values by name."""

    def __init__(
        self, packed: Mapping[str, bytes], made: Callable[[Any], T], places: Mapping[str, str] | None = None
    ) -> None:
        """``made`` makes a value of what was packed; ``places`` says where a name's is, if that is not its name."""
        self._packed = packed
        self._made = made
        self._places = places

    def __getitem__(self, name: str) -> T:
        place = name if self._places is None else self._places[name]
        return self._made(unpack(self._packed[place]))

    def __iter__(self) -> Iterator[str]:
        return iter(self._packed if self._places is None else self._places)

    def __len__(self) -> int:
        return len(self._packed if self._places is None else self._places)

    def __contains__(self, name: object) -> bool:
        return name in (self._packed if self._places is None else self._places)
