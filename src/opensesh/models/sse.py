"""Server-sent events: bytes in, events out."""

from __future__ import annotations

from typing import Any, NamedTuple, cast

import msgspec

from ..errors import ModelConnectionError

_BOM = b"\xef\xbb\xbf"
_decode = msgspec.json.Decoder().decode


class ServerSentEvent(NamedTuple):
    """One event. ``event`` is ``message`` where the server gave it no name."""

    event: str
    data: str


class SSESplitter:
    """Splits a byte stream into events, wherever the network happened to cut it.

    Lines may end in LF, CR or CRLF; several ``data`` lines are joined by LF; comments, ``id`` and ``retry`` are
    passed over. An event without data is none. Bytes that are not UTF-8 become U+FFFD.
    """

    def __init__(self) -> None:
        self._pending: list[bytes] = []
        self._cr = False
        self._begun = False

    def feed(self, chunk: bytes) -> list[ServerSentEvent]:
        """The events that ``chunk`` completes."""
        if self._cr or b"\r" in chunk:
            chunk = self._line_feeds(chunk)
        pending = self._pending
        if b"\n\n" not in chunk and not (chunk[:1] == b"\n" and pending and pending[-1][-1:] == b"\n"):
            # Joined only when an event is complete, so that one of many chunks costs no more than its size.
            if chunk:
                pending.append(chunk)
            return []
        if pending:
            chunk = b"".join((*pending, chunk))
        *blocks, rest = chunk.split(b"\n\n")
        self._pending = [rest] if rest else []
        return self._parse(blocks)

    def close(self) -> list[ServerSentEvent]:
        """What is left at the end: servers that forget the last empty line are understood."""
        rest = b"".join(self._pending)
        self._pending = []
        return self._parse([rest]) if rest else []

    def _line_feeds(self, chunk: bytes) -> bytes:
        if self._cr and chunk[:1] == b"\n":
            chunk = chunk[1:]  # the other half of a CRLF whose CR ended the chunk before
            self._cr = False
        if chunk:
            self._cr = chunk[-1:] == b"\r"
        return chunk.replace(b"\r\n", b"\n").replace(b"\r", b"\n")

    def _parse(self, blocks: list[bytes]) -> list[ServerSentEvent]:
        if not self._begun and blocks:
            self._begun = True
            blocks[0] = blocks[0].removeprefix(_BOM)
        events = [_parse_block(block.decode("utf-8", "replace")) for block in blocks]
        return [event for event in events if event is not None]


def _parse_block(block: str) -> ServerSentEvent | None:
    name = "message"
    data: str | None = None
    for line in block.split("\n"):
        if line.startswith("data:"):
            value = line[6:] if line[5:6] == " " else line[5:]
            data = value if data is None else f"{data}\n{value}"
        elif line.startswith("event:"):
            name = (line[7:] if line[6:7] == " " else line[6:]) or "message"
        elif line == "data":
            data = "" if data is None else data + "\n"
    return ServerSentEvent(name, data) if data else None


def json_payload(data: str, url: str = "") -> dict[str, Any]:
    """The JSON object in an event's ``data``. Anything else is a broken stream: :class:`ModelConnectionError`."""
    value: object
    try:
        value = _decode(data)
    except (msgspec.MsgspecError, UnicodeEncodeError, RecursionError):
        value = _read_leniently(data)
    if not isinstance(value, dict):
        raise _no_object(data, url)
    return cast("dict[str, Any]", value)


def _no_object(data: str, url: str) -> ModelConnectionError:
    from .failures import BODY_LIMIT, public_url, scrub

    said = scrub(data[:BODY_LIMIT])
    shown = said if len(said) <= 80 else f"{said[:80]}..."
    message = f"The stream held something that is no JSON object: {shown}"
    return ModelConnectionError(message, url=public_url(url), body=said)


def _read_leniently(data: str) -> object:
    """JSON with half a character in it, which servers that cut text by UTF-16 units do send."""
    import json

    try:
        value: object = json.loads(data)
        return json.loads(replace_surrogates(json.dumps(value, ensure_ascii=False)))
    except (ValueError, RecursionError):
        return None


def replace_surrogates(text: str) -> str:
    """``text`` with surrogate pairs joined and lone halves replaced by U+FFFD, so that it can be encoded."""
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
