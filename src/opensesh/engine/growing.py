"""Text that is still being written.

A piece that is added costs the same however much there is already. A growing part is stored when it begins, whenever
it has become sixteen times as long as when it was last stored (and a few thousand characters at least, for every
write is also a wait for the disk), and when it ends: so its bytes are written 1.4 times on average, and never more than
2.1 times, however long it gets. A crash loses no more than what came since.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from .. import ids
from ..records import ReasoningPart, Span, TextPart

if TYPE_CHECKING:
    from ..models.stream_events import Metadata
    from ..records import Document

_GROWTH = 16
_WORTH_A_WRITE = 4_096
_ANY = ("utf-8", "surrogatepass")


class StreamingPart:
    """A text or reasoning part under way."""

    def __init__(self, kind: Literal["text", "reasoning"], message: Document, metadata: Metadata | None) -> None:
        self.id = ids.ascending("prt")
        self.kind = kind
        self.metadata: Metadata | None = metadata
        self._message = message
        self._start = ids.now_ms()
        self._text = bytearray()  # grows where it is; many small strings leave holes all over the memory
        self._length = 0
        self._stored = 0
        self._ended: str | None = None

    @property
    def is_stored(self) -> bool:
        """Whether any of it is on disk."""
        return self._stored > 0

    @property
    def has_more(self) -> bool:
        """Whether some of it is not on disk."""
        return self._length > self._stored

    def add(self, text: str, metadata: Metadata | None) -> None:
        """Append a piece; the newest metadata counts."""
        self._text += text.encode(*_ANY)
        self._length += len(text)
        if metadata is not None:
            self.metadata = metadata

    def end(self) -> str:
        """Nothing more is added: the whole of it, without the white space models like to leave there."""
        if self._ended is None:
            self._ended = self._text.decode(*_ANY).rstrip()
            self._text.clear()
        return self._ended

    def is_due(self) -> bool:
        """Whether it has grown enough to be stored again."""
        return self._length >= (max(self._stored * _GROWTH, _WORTH_A_WRITE) if self._stored else 1)

    def document(self, *, end: bool = False) -> Document:
        """The part as it stands, to be stored."""
        self._stored = max(self._length, 1)
        own: dict[str, Any] = {
            "id": self.id,
            "session_id": self._message["sessionID"],
            "message_id": self._message["id"],
            "text": self.end() if end else self._text.decode(*_ANY),
            "time": Span(start=self._start, end=ids.now_ms() if end else None),
            "metadata": self.metadata,
        }
        return (TextPart if self.kind == "text" else ReasoningPart)(**own).document
