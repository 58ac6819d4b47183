"""What is in one session: its turns by position, its outline, its parts, and the files that it changed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

from msgspec import Meta, Struct, field

from ...history.session_changes import prompt_changes, session_changes
from ...history.session_outline import outline, outline_document
from ...history.session_turns import DamagedMessage, SessionTurns
from ...history.transcript import TranscriptOptions, transcript_message
from ..attachments import attachment_response
from ..history_answers import history_answer
from ..operations import Call, Routes
from ..parameters import MessageID

if TYPE_CHECKING:
    from ...history.library import Library
    from ...history.session_turns import SessionTurn
    from ...history.transcript import Block
    from ...records import Document

routes = Routes()


class TurnsQuery(Struct, frozen=True):
    """Which messages, by position or around one of them; the newest ones if neither is given."""

    start: Annotated[int, Meta(ge=0)] | None = field(default=None, name="from")
    around: MessageID | None = None
    limit: Annotated[int, Meta(ge=1, le=100)] = 50
    outputs: bool = False
    """With the output of tools."""


class ChangesQuery(Struct, frozen=True):
    """Of which prompt; of the whole session if absent."""

    prompt: MessageID | None = None


class ChangedFileQuery(Struct, frozen=True):
    """Which of the files that a tool returned; absent for the file of a file part."""

    attachment: Annotated[int, Meta(ge=0)] | None = None


@routes.get("/history/sessions/{name}/turns", "history.turns", response=dict[str, Any], errors=(400, 404))
async def get_turns(call: Call, query: TurnsQuery) -> object:
    """Get messages of a session as blocks: text, reasoning, tool calls, files, markers."""

    def read(library: Library) -> Document:
        turns = session_turns(call, library, call.parameters["name"])
        start = query.start
        if query.around is not None:
            start = max(turns.position(query.around) - query.limit // 2, 0)
        elif start is None:
            start = max(turns.total - query.limit, 0)
        page = turns.read(start, query.limit)
        return {
            "from": start,
            "total": turns.total,
            "revision": turns.revision(start + len(page)),
            "items": [_turn(turn, outputs=query.outputs) for turn in page],
        }

    return await history_answer(call, read)


@routes.get("/history/sessions/{name}/outline", "history.outline", response=dict[str, Any], errors=(400, 404))
async def get_outline(call: Call) -> object:
    """Get an array for each message of a session: id, role, time, size, flags, cost, first words of a prompt."""

    def read(library: Library) -> Document:
        turns = session_turns(call, library, call.parameters["name"])
        messages = library.store.messages(turns.session_id, report=library.report)
        return outline_document(outline(messages), turns.revision(turns.total))

    return await history_answer(call, read)


@routes.get("/history/sessions/{name}/parts/{partID}", "history.part", response=dict[str, Any], errors=(400, 404))
async def get_part(call: Call) -> object:
    """Get one part as it is stored."""

    def read(library: Library) -> Document:
        turns = session_turns(call, library, call.parameters["name"])
        return turns.find_part(call.parameters["partID"])[1]

    return await history_answer(call, read)


@routes.get("/history/sessions/{name}/parts/{partID}/file", "history.part.file", response=bytes, errors=(400, 404))
async def get_part_file(call: Call, query: ChangedFileQuery) -> object:
    """Get the file in a part: PNG, JPEG, GIF and WebP as pictures, everything else as a download."""

    def read(library: Library) -> Document:
        turns = session_turns(call, library, call.parameters["name"])
        return turns.find_part(call.parameters["partID"])[1]

    return attachment_response(await call.state.read_history(read), query.attachment)


@routes.get("/history/sessions/{name}/changes", "history.changes", response=dict[str, Any], errors=(400, 404))
async def get_changes(call: Call, query: ChangesQuery) -> object:
    """Get the files that a session or one of its prompts changed."""

    def read(library: Library) -> Document:
        session_id = library.session(call.parameters["name"]).id
        messages = library.store.messages(session_id, report=library.report)
        files = (
            prompt_changes(messages, query.prompt)
            if query.prompt is not None
            else session_changes(library.store, session_id, messages)
        )
        return {"files": [file.document() for file in files], "total": len(files)}

    return await history_answer(call, read)


def session_turns(call: Call, library: Library, name: str) -> SessionTurns:
    """Return the turns of the session that is called ``name``."""
    return SessionTurns(library.store, library.session(name).id, call.state.turn_orders)


def _turn(turn: SessionTurn, *, outputs: bool) -> Document:
    if isinstance(turn, DamagedMessage):
        return {"id": turn.id, "damage": {"path": turn.path, "reason": turn.reason}}
    message = transcript_message(turn, TranscriptOptions.everything()._replace(outputs=outputs))
    blocks = [_block(block) for block in message.blocks]
    fields = {name: value for name, value in message._asdict().items() if name != "is_aborted"}
    return {**fields, "blocks": blocks, "failure": message.failure or None}


def _block(block: Block) -> Document:
    kind = type(block).__name__.removesuffix("Block").lower()
    fields = {name: value for name, value in block._asdict().items() if name != "child" and value not in ("", None, ())}
    if "attachments" in fields:
        fields["attachments"] = [_block(attachment) for attachment in fields["attachments"]]
    return {"type": kind, **fields}
