"""Identifiers: mint them, decode them, and put them in their true order.

An identifier is ``<prefix>_<12 hex digits><14 base-62 characters>``. The hex digits are the low 48 bits of
``milliseconds * 4096 + counter``, inverted for sessions so that the newest sorts first by name. Only 36 bits of the
clock survive that, so the field starts over every 795 days: it did on 2026-08-14T11:19:55.136Z, and does next on
2028-10-17. Two raw identifiers therefore say nothing about which is older. :func:`order` and :func:`instant` take a
moment the identifier is known to be near, and answer correctly within 397 days of it.
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

    Prefix = Literal["ses", "msg", "prt", "per", "que", "usr", "pty", "tool"]

ERA_MS = 1 << 36
"""How many milliseconds pass before the clock in an identifier starts over."""

_FIELD = 1 << 48
_HALF = _FIELD >> 1
_ALPHABET = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
_BASE62 = bytes(ord(_ALPHABET[byte % 62]) for byte in range(256))


def now_ms() -> int:
    """The time as records keep it: whole milliseconds since 1970, UTC."""
    return time.time_ns() // 1_000_000


class IdGenerator:
    """Mints identifiers that ascend for as long as it lives.

    The order holds between threads, and when the clock stands still or runs backwards: the counter then goes on from
    the last identifier. One minter serves a process (:func:`ascending`, :func:`descending`); tests make their own.
    """

    def __init__(self, clock: Callable[[], int] = now_ms, entropy: Callable[[int], bytes] = os.urandom) -> None:
        self._clock = clock
        self._entropy = entropy
        self._last = 0
        self._lock = Lock()

    def ascending(self, prefix: Prefix, given: str | None = None) -> str:
        """A new identifier that sorts after all before it, or ``given`` if its prefix is right."""
        return check(given, prefix) if given else self._mint(prefix, self._next())

    def descending(self, prefix: Prefix, given: str | None = None) -> str:
        """A new identifier that sorts before all before it, or ``given`` if its prefix is right."""
        return check(given, prefix) if given else self._mint(prefix, ~self._next())

    def _next(self) -> int:
        with self._lock:
            self._last = max(self._clock() * 4096 + 1, self._last + 1)
            return self._last

    def _mint(self, prefix: Prefix, value: int) -> str:
        return f"{prefix}_{value % _FIELD:012x}{self._entropy(14).translate(_BASE62).decode()}"


_process = IdGenerator()
ascending = _process.ascending
descending = _process.descending


def check(given: str, prefix: Prefix) -> str:
    """``given``, unchanged, if it carries ``prefix``; OpenCode asks no more of a client's identifier."""
    if not isinstance(given, str):  # pyright: ignore[reportUnnecessaryIsInstance] - whoever has no type checker
        raise InvalidIDError(f"an identifier is text; this is a {type(given).__name__}, so try its .id", prefix=prefix)
    if not given.startswith(prefix):
        raise InvalidIDError(f"{given!r} is not a {prefix}_... identifier", id=given, prefix=prefix)
    return given


def timestamp_of(identifier: str, near: int | None = None) -> int:
    """The millisecond at which ``identifier`` was minted, in the era closest to ``near`` (default: now)."""
    return _unwrap(identifier, now_ms() if near is None else near) >> 12


def order(identifier: str, near: int) -> tuple[int, str]:
    """A sort key, oldest first, for identifiers minted around ``near``.

    Identifiers that are not ours (a client may name its own) are placed at ``near``, by name.
    """
    try:
        return _unwrap(identifier, near), identifier
    except InvalidIDError:
        return near * 4096, identifier


def spans_wraparound(identifiers: list[str]) -> bool:
    """Whether these identifiers of one kind may lie on both sides of a wrap, so that their names do not sort by time.

    Judged by the first and the last by name; true also when one of those cannot be decoded.
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
    raise InvalidIDError(f"{identifier!r} holds no time: expected <prefix>_<12 hex digits>...", id=identifier)
