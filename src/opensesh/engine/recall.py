"""What a session holds beyond what its model sees, for the model to look up."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from msgspec.structs import replace

from ..errors import RecordError
from ..models.request import Text, User
from ..records import Completed, Failed, FilePart, Part, TextPart, ToolPart, dumps_compact, read_part
from ..tools.services import HiddenMessage
from .projection import COMPACTION_PROMPT, clean
from .pruning import is_pruned
from .window import compaction_part, visible

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from ..models.request import ModelMessage
    from ..sessions import Sessions
    from ..storage.protocol import StoredMessage

_HINT = (
    "\n\n<system-reminder>\nWhat follows is a summary. The messages it stands for are kept word for word: where the "
    "summary does not say exactly what you need, look it up with the recall tool.\n</system-reminder>"
)


class HiddenHistory:
    """The originals of one session."""

    def __init__(self, sessions: Sessions, session_id: str) -> None:
        self._sessions = sessions
        self._session_id = session_id

    async def all(self) -> Sequence[HiddenMessage]:
        """What was summed up or pruned, oldest first."""
        return await asyncio.to_thread(self._read)

    def _read(self) -> list[HiddenMessage]:
        everything = self._sessions.messages(self._session_id)
        shown = {id(message) for message in visible(everything)}
        return [
            original
            for number, message in enumerate(everything, 1)
            for original in _originals(message, number, covered=id(message) not in shown)
        ]


def has_past(messages: Iterable[StoredMessage]) -> bool:
    """Whether there is anything to look up: a summary is in view, or an output that was pruned."""
    for at, message in enumerate(messages):
        if (at == 0 and compaction_part(message)) or any(is_pruned(part) for part in message.parts):
            return True
    return False


def add_recall_hint(turns: tuple[ModelMessage, ...]) -> tuple[ModelMessage, ...]:
    """The conversation with a word about the originals in front of its summary, if it begins with one."""
    first = turns[0]
    if not isinstance(first, User) or first.content[0] != Text(text=COMPACTION_PROMPT):
        return turns
    pointed = Text(text=COMPACTION_PROMPT + _HINT)
    return (replace(first, content=(pointed, *first.content[1:])), *turns[1:])


def _originals(message: StoredMessage, number: int, *, covered: bool) -> Iterator[HiddenMessage]:
    speaker = "assistant" if message.info.get("role") == "assistant" else "user"
    for document in message.parts:
        if not covered and not is_pruned(document):
            continue
        try:
            part = read_part(document)
        except RecordError:
            continue
        text = _text(part)
        if isinstance(part, ToolPart):
            name = part.call_id or part.id
            yield HiddenMessage(number=number, speaker=speaker, text=text, call_id=name, tool=part.tool)
        elif text:
            yield HiddenMessage(number=number, speaker=speaker, text=text)


def _text(part: Part) -> str:
    match part:
        case TextPart(text=text) if not part.ignored:
            return clean(text).strip()
        case FilePart():
            return f"(attached: {part.filename or part.mime})"
        case ToolPart():
            return f"{dumps_compact(part.state.input).decode()}\n{_outcome(part)}"
        case _:
            return ""


def _outcome(part: ToolPart) -> str:
    match part.state:
        case Completed(output=output):
            return clean(output)
        case Failed(error=error):
            return clean(error)
        case _:
            return "(never finished)"
