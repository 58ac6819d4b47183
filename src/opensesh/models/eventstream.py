"""Amazon's event stream: framed, checksummed messages.

A message is its length, the length of its headers and a checksum of both; then headers, payload, and a checksum of all.
"""

from __future__ import annotations

from struct import Struct, error
from typing import NamedTuple
from uuid import UUID
from zlib import crc32

from ..errors import ModelConnectionError

LARGEST = 24 * 1024 * 1024
"""No message is larger; a length above it is noise."""

_PRELUDE = Struct("!III")
_CRC = Struct("!I")
_NUMBERS = {2: Struct("!b"), 3: Struct("!h"), 4: Struct("!i"), 5: Struct("!q"), 8: Struct("!q")}
_LENGTH = Struct("!H")

Value = bool | int | bytes | str | UUID


class Message(NamedTuple):
    """One message. Names of headers begin with a colon where they are the protocol's own."""

    headers: dict[str, Value]
    payload: bytes


class Decoder:
    """Bytes in, messages out, wherever the network cut them. What fails its checksum is
    :class:`ModelConnectionError`."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, chunk: bytes) -> list[Message]:
        """The messages that ``chunk`` completes."""
        self._buffer += chunk
        messages: list[Message] = []
        while (length := self._length()) and len(self._buffer) >= length:
            messages.append(_message(bytes(self._buffer[:length])))
            del self._buffer[:length]
        return messages

    def _length(self) -> int:
        """How long the next message is, if that is known."""
        if len(self._buffer) < _PRELUDE.size:
            return 0
        length, headers, checksum = _PRELUDE.unpack_from(self._buffer)
        if crc32(self._buffer[:8]) != checksum:
            raise ModelConnectionError(
                "The answer is no event stream, or was damaged on its way (checksum of a prelude)"
            )
        if length > LARGEST or headers > length - _PRELUDE.size - _CRC.size:
            raise ModelConnectionError(f"The stream announces an impossible message of {length} bytes")
        return length


def _message(data: bytes) -> Message:
    _, size, _ = _PRELUDE.unpack_from(data)
    body, (checksum,) = data[: -_CRC.size], _CRC.unpack_from(data, len(data) - _CRC.size)
    if crc32(body) != checksum:
        raise ModelConnectionError("The stream was damaged on its way (checksum of a message)")
    end = _PRELUDE.size + size
    try:
        return Message(_headers(body[_PRELUDE.size : end]), body[end:])
    except (error, IndexError, UnicodeDecodeError, ValueError) as problem:
        raise ModelConnectionError(f"The stream holds headers that cannot be read: {problem}") from problem


def _headers(data: bytes) -> dict[str, Value]:
    headers: dict[str, Value] = {}
    at = 0
    while at < len(data):
        start, end = at + 1, at + 1 + data[at]
        headers[data[start:end].decode()], at = _value(data, end)
    return headers


def _value(data: bytes, at: int) -> tuple[Value, int]:
    """The value whose type stands at ``at``, and where it ends."""
    kind, start = data[at], at + 1
    match kind:
        case 0 | 1:
            return kind == 0, start
        case 2 | 3 | 4 | 5 | 8:
            form = _NUMBERS[kind]
            return form.unpack_from(data, start)[0], start + form.size
        case 6 | 7:
            end = start + _LENGTH.size + _LENGTH.unpack_from(data, start)[0]
            content = data[start + _LENGTH.size : end]
            return (content.decode() if kind == 7 else content), end
        case 9:
            return UUID(bytes=data[start : start + 16]), start + 16
        case _:
            raise ValueError(f"type {kind}")
