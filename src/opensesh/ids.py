"""Identifiers: generating, decoding and ordering them.

An identifier is ``<prefix>_<12 hex digits><14 base-62 characters>``. The hex digits are the low 48 bits of
``milliseconds * 4096 + counter``, inverted for sessions so that the newest sorts first by name. This keeps only 36 bits
of the clock, so the field wraps around every 795 days: on 2026-08-14T11:19:55.136Z, and next on 2028-10-17. Comparing
two raw identifiers therefore does not tell which is older. :func:`order` and :func:`timestamp_of` take a time near the
identifier's own, and are correct within 397 days of it.
"""

from __future__ import annotations

import os
import time
from threading import Lock

from .errors import InvalidIDError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Literal

    Prefix = Literal["ses", "msg", "prt", "evt", "per", "que", "usr", "pty", "tool"]

ERA_MS = 1 << 36
"""Milliseconds until the clock in an identifier wraps around."""

LATEST_MS = 253_402_300_799_999
"""The last millisecond of the year 9999. Later times in a record are mistakes, which calendars cannot show."""

_FIELD = 1 << 48
_HALF = _FIELD >> 1
_ALPHABET = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
_CROCKFORD = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
_BASE62 = bytes(ord(_ALPHABET[byte % 62]) for byte in range(256))


def now_ms() -> int:
    """Return the current time in milliseconds since 1970, UTC."""
    return time.time_ns() // 1_000_000


class IdGenerator:
    """Generates ascending identifiers.

    The order holds across threads, and if the clock stands still or steps back: the counter then continues from the
    last identifier. A process has one generator (:func:`ascending`, :func:`descending`); tests make their own.
    """

    def __init__(self, clock: Callable[[], int] = now_ms, entropy: Callable[[int], bytes] = os.urandom) -> None:
        self._clock = clock
        self._entropy = entropy
        self._last = 0
        self._lock = Lock()

    def ascending(self, prefix: Prefix, identifier: str | None = None, *, not_before: int = 0) -> str:
        """Return a new identifier that sorts after all earlier ones, or ``identifier`` if its prefix is right.

        ``not_before`` is a time that it must have at least, in milliseconds, where the clock may be behind others.
        """
        return check(identifier, prefix) if identifier else self._format(prefix, max(self._next(), not_before * 4096))

    def descending(self, prefix: Prefix, identifier: str | None = None) -> str:
        """Return a new identifier that sorts before all earlier ones, or ``identifier`` if its prefix is right."""
        return check(identifier, prefix) if identifier else self._format(prefix, ~self._next())

    def _next(self) -> int:
        with self._lock:
            self._last = max(self._clock() * 4096 + 1, self._last + 1)
            return self._last

    def _format(self, prefix: Prefix, value: int) -> str:
        return f"{prefix}_{value % _FIELD:012x}{self._entropy(14).translate(_BASE62).decode()}"


def ulid() -> str:
    """Return a new ULID, which OpenCode uses for tool calls that no model made."""
    value = now_ms() << 80 | int.from_bytes(os.urandom(10))
    return "".join(_CROCKFORD[value >> shift & 31] for shift in range(125, -1, -5))


_process = IdGenerator()
ascending = _process.ascending
descending = _process.descending


def check(identifier: str, prefix: Prefix) -> str:
    """Return ``identifier`` if it has the prefix, or raise; OpenCode accepts any identifier of a client that has it."""
    if not isinstance(identifier, str):
        kind = type(identifier).__name__
        raise InvalidIDError(f"an identifier is text; this is a {kind}, so try its .id", prefix=prefix)
    if not identifier.startswith(prefix):
        raise InvalidIDError(f"{identifier!r} is not a {prefix}_... identifier", id=identifier, prefix=prefix)
    return identifier


def timestamp_of(identifier: str, near: int | None = None) -> int:
    """Return the creation time of ``identifier`` in milliseconds, in the era closest to ``near`` (default: now)."""
    return _unwrap(identifier, now_ms() if near is None else near) >> 12


def order(identifier: str, near: int) -> tuple[int, str]:
    """Return a sort key, oldest first, for identifiers generated around ``near``.

    Identifiers in another format (clients may choose their own) sort at ``near``, by name.
    """
    try:
        return _unwrap(identifier, near), identifier
    except InvalidIDError:
        return near * 4096, identifier


def spans_wraparound(identifiers: list[str]) -> bool:
    """Whether identifiers of one kind may lie on both sides of a wraparound, so that their names do not sort by time.

    It compares the first and the last by name, and is true if one of them cannot be decoded.
    """
    if not identifiers:
        return False
    try:
        return _field(max(identifiers)) - _field(min(identifiers)) >= _HALF
    except InvalidIDError:
        return True


def _unwrap(identifier: str, near: int) -> int:
    centre = near * 4096
    field = _field(identifier)
    if identifier.startswith("ses"):
        field = ~field
    return centre + (field - centre + _HALF) % _FIELD - _HALF


def _field(identifier: str) -> int:
    start = identifier.find("_") + 1
    digits = identifier[start : start + 12]
    try:
        if start and len(digits) == 12 and digits.isalnum() and digits.isascii():
            return int(digits, 16)
    except ValueError:
        pass
    raise InvalidIDError(f"{identifier!r} has no time: expected <prefix>_<12 hex digits>...", id=identifier)
