"""What a model gets to see: the next request of a session, taken apart, with the tokens of each piece."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from ..models.request import Assistant, Call, File, Reasoning, System, Text, Tool, User
from .history import History
from .projection import PRUNED
from .step import Steps
from .window import compaction_part, estimate, is_summary, usable, visible

if TYPE_CHECKING:
    from ..models.request import Request
    from ..records import Document
    from ..tools.filetimes import FileTimes
    from .runtime import Runtime

_FILE = 1_500
"""Roughly what an image or a page takes, in tokens."""


class Piece(NamedTuple):
    """One thing that is sent."""

    what: str
    tokens: int
    note: str = ""
    """``pruned``, ``summary``, or nothing."""


class Inspection(NamedTuple):
    """A request, taken apart."""

    model: str
    room: int
    """How many tokens fit; 0 where nobody knows."""
    pieces: list[Piece]
    hidden: int
    """Messages that are stored but not in view."""

    @property
    def tokens(self) -> int:
        """All of it, estimated."""
        return sum(piece.tokens for piece in self.pieces)


def inspect(runtime: Runtime, session_id: str, files: FileTimes) -> Inspection:
    """The request that the next prompt of a session would go with."""
    session = runtime.sessions.get(session_id)
    everything = runtime.sessions.messages(session_id)
    view = visible(everything)
    history = History(view)
    last = history.last_user()
    steps = Steps(runtime, session, history, files, lambda message: None)
    step = steps.plan(last.info if last else _nobody(runtime, session_id), 1)
    summaries = sum(is_summary(message.info) or compaction_part(message) is not None for message in view)
    pieces = _pieces(step.request())
    if summaries:  # the request for it and the summary itself stand right behind the system prompt
        pieces[1:3] = [piece._replace(note="summary") for piece in pieces[1:3]]
    return Inspection(step.model.ref, usable(step.model, runtime.config), pieces, len(everything) - len(view))


def _nobody(runtime: Runtime, session_id: str) -> Document:
    """A prompt for a session that has none yet."""
    model = runtime.default_model()
    return {"sessionID": session_id, "model": {"providerID": model.provider_id, "modelID": model.id}}


def _pieces(request: Request) -> list[Piece]:
    found: list[Piece] = []
    for turn in request.messages:
        match turn:
            case System(text=text):
                found.append(Piece("system prompt", estimate(text)))
            case User(content=content):
                found.append(Piece(f"user: {_begin(content)}", sum(map(_size, content))))
            case Assistant(content=content):
                found.append(Piece(f"assistant: {_begin(content)}", sum(map(_size, content))))
            case Tool(content=results):
                for result in results:
                    size = sum(map(_size, result.output))
                    pruned = result.output == (Text(text=PRUNED),)
                    found.append(Piece(f"result of {result.name}", size, "pruned" if pruned else ""))
    tools = sum(estimate(f"{tool.description}{tool.parameters}") for tool in request.tools)
    return [*found, Piece(f"{len(request.tools)} tools", tools)]


def _size(piece: Text | File | Reasoning | Call) -> int:
    match piece:
        case Text(text=text) | Reasoning(text=text):
            return estimate(text)
        case Call(input=given):
            return estimate(str(given))
        case File():
            return _FILE


def _begin(content: tuple[Text | File | Reasoning | Call, ...]) -> str:
    for piece in content:
        match piece:
            case Text(text=text):
                return " ".join(text.split())[:60]
            case Call(name=name):
                return f"calls {name}"
            case _:
                continue
    return ""
