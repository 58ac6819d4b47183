"""Server-sent events."""

from __future__ import annotations

import json
from typing import Any, NamedTuple, cast

import msgspec

from ..errors import ModelConnectionError

_BOM = b"\xef\xbb\xbf"
_decode = msgspec.json.Decoder().decode


class ServerSentEvent(NamedTuple):
    """One event; ``event`` is ``message`` where the server sent no name."""

    event: str
    data: str


class SSESplitter:
    """Splits a byte stream into events.

    Lines end in LF, CR or CRLF; several ``data`` lines are joined by LF. Comments, ``id``, ``retry`` and events without
    data are ignored. Bytes that are not UTF-8 become U+FFFD.
    """

    def __init__(self) -> None:
        self._pending: list[bytes] = []
        self._cr = False
        self._started = False

    def feed(self, chunk: bytes) -> list[ServerSentEvent]:
        """Return the events that ``chunk`` completes."""
        if self._cr or b"\r" in chunk:
            if self._cr and chunk[:1] == b"\n":
                chunk = chunk[1:]  # second half of a CRLF that was split between two chunks
                self._cr = False
            if chunk:
                self._cr = chunk[-1:] == b"\r"
            chunk = chunk.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        pending = self._pending
        if b"\n\n" not in chunk and not (chunk[:1] == b"\n" and pending and pending[-1][-1:] == b"\n"):
            # Chunks are joined only when an event is complete: an event of many chunks costs no more than its size.
            if chunk:
                pending.append(chunk)
            return []
        if pending:
            chunk = b"".join((*pending, chunk))
        *blocks, rest = chunk.split(b"\n\n")
        self._pending = [rest] if rest else []
        return self._parse(blocks)

    def close(self) -> list[ServerSentEvent]:
        """Return what is left at the end; some servers omit the last empty line."""
        rest = b"".join(self._pending)
        self._pending = []
        return self._parse([rest]) if rest else []

    def _parse(self, blocks: list[bytes]) -> list[ServerSentEvent]:
        if not self._started and blocks:
            self._started = True
            blocks[0] = blocks[0].removeprefix(_BOM)
        events: list[ServerSentEvent] = []
        for block in blocks:
            name = "message"
            data: str | None = None
            for line in block.decode("utf-8", "replace").split("\n"):
                if line.startswith("data:"):
                    value = line[6:] if line[5:6] == " " else line[5:]
                    data = value if data is None else f"{data}\n{value}"
                elif line.startswith("event:"):
                    name = (line[7:] if line[6:7] == " " else line[6:]) or "message"
                elif line == "data":
                    data = "" if data is None else data + "\n"
            if data:
                events.append(ServerSentEvent(name, data))
        return events


def json_payload(data: str, url: str = "") -> dict[str, Any]:
    """Return the JSON object in an event's ``data``; anything else raises :class:`ModelConnectionError`."""
    value: object
    try:
        value = _decode(data)
    except (msgspec.MsgspecError, UnicodeEncodeError, RecursionError):
        # Servers that cut text by UTF-16 units send lone surrogates; the next event may have the other half.
        try:
            value = json.loads(data)
        except (ValueError, RecursionError):
            value = None
    if not isinstance(value, dict):
        from .failures import BODY_LIMIT, public_url, scrub  # only here: most callers need no error texts

        body = scrub(data[:BODY_LIMIT])
        shown = body if len(body) <= 80 else f"{body[:80]}..."
        message = f"The stream contained something other than a JSON object: {shown}"
        raise ModelConnectionError(message, url=public_url(url), body=body)
    return cast("dict[str, Any]", value)
