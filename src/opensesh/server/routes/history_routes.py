"""One session of the history: its figures, turns, outline, parts, changed files, exports. An extension of opensesh.

Answers have an ``ETag``; a request with ``If-None-Match`` gets 304 if nothing has changed. Lists have at most ``limit``
items; ``next`` is passed as ``after`` to get the following ones.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, Literal

from msgspec import Meta, Struct, field
from starlette.responses import StreamingResponse

from ...engine.cancellation import run_in_thread_uncancellable
from ...history.formats import FORMATS, FormatOptions
from ...history.import_export.exporting import Export, Selection
from ...history.library import Library
from ...history.session_changes import prompt_changes, session_changes
from ...history.session_outline import outline, outline_document
from ...history.session_turns import DamagedMessage, SessionTurns
from ...history.transcript import TranscriptOptions, transcript_message
from ..operations import Call, MessageID, Routes
from ..responses import AttachmentQuery, answer_with_etag, attachment_response, call_redactor, history_answer

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ...history.session_turns import SessionTurn
    from ...history.transcript import Block
    from ...records import Document, Session

routes = Routes()


class ContextQuery(Struct, frozen=True):
    """A request to a model: the number of a step from 1, or a message; the next request if absent."""

    step: str | None = None


class ExportQuery(Struct, frozen=True):
    """Options of an export."""

    format: Literal["jsonl", "json", "opencode", "markdown", "html", "prompts", "hf"] = "json"
    redact: bool = False
    children: bool = False


class TurnsQuery(Struct, frozen=True):
    """A range of messages, by position or around one of them; the newest ones if neither is given."""

    start: Annotated[int, Meta(ge=0)] | None = field(default=None, name="from")
    around: MessageID | None = None
    limit: Annotated[int, Meta(ge=1, le=100)] = 50
    outputs: bool = False
    """Include the output of tools."""


class ChangesQuery(Struct, frozen=True):
    """The prompt whose changes to return; those of the whole session if absent."""

    prompt: MessageID | None = None


@routes.get("/history/sessions/{name}", "history.session", response=dict[str, Any], errors=(400, 404))
async def get_history(call: Call) -> object:
    """Get a session with its totals. It is named by id, the beginning or end of an id, a slug, or ``last``."""

    def read(library: Library) -> Document:
        entry = library.session(call.parameters["name"])
        totals = entry.totals
        return _row(entry.record) | {
            "messages": totals.messages,
            "prompts": totals.prompts,
            "cost": {"stored": str(totals.cost), "inclusive": str(entry.inclusive_cost)},
            "subagents": [child.id for child in entry.children()],
            "origins": entry.origins,
            "record": entry.record.document,
        }

    return await history_answer(call, read)


@routes.get("/history/sessions/{name}/context", "history.context", response=dict[str, Any], errors=(400, 404))
async def get_context(call: Call, query: ContextQuery) -> object:
    """Get what a model is sent in a step of a session, and its size in tokens."""
    library = Library(store=call.state.store)
    session = (await run_in_thread_uncancellable(library.session, call.parameters["name"])).record
    async with call.state.session_engine(session.id, call.directory) as engine:
        inspection = await engine.context(session.id, query.step)
    return answer_with_etag(call, inspection.document())


@routes.get("/history/sessions/{name}/export", "history.export", response=dict[str, Any], errors=(400, 404))
async def export_session(call: Call, query: ExportQuery) -> object:
    """Export a session."""

    def prepare() -> tuple[str, Iterator[bytes]]:
        store = call.state.store
        session_id = Library(store=store).session(call.parameters["name"]).id
        selection = Selection(ids=(session_id,), children=query.children)
        export = Export(store, selection, query.format, FormatOptions(), redactor=redactor)
        export.check_single_file()  # before the response begins
        return f"{session_id}{export.format.suffix}", export.file_chunks()

    redactor = await call_redactor(call) if query.redact else None
    name, chunks = await run_in_thread_uncancellable(prepare)
    headers = {
        "content-disposition": f'attachment; filename="{name}"',
        "content-security-policy": "sandbox; default-src 'none'; style-src 'unsafe-inline'; img-src data:",
    }
    return StreamingResponse(chunks, headers=headers, media_type=FORMATS[query.format].media_type)


@routes.get("/history/sessions/{name}/turns", "history.turns", response=dict[str, Any], errors=(400, 404))
async def get_turns(call: Call, query: TurnsQuery) -> object:
    """Get messages of a session as blocks: text, reasoning, tool calls, files, markers."""

    def read(library: Library) -> Document:
        turns = _turns(call, library)
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
        turns = _turns(call, library)
        messages = library.store.messages(turns.session_id, report=library.report)
        return outline_document(outline(messages), turns.revision(turns.total))

    return await history_answer(call, read)


@routes.get("/history/sessions/{name}/parts/{partID}", "history.part", response=dict[str, Any], errors=(400, 404))
async def get_part(call: Call) -> object:
    """Get one part as it is stored."""
    return await history_answer(call, partial(_part, call))


@routes.get("/history/sessions/{name}/parts/{partID}/file", "history.part.file", response=bytes, errors=(400, 404))
async def get_part_file(call: Call, query: AttachmentQuery) -> object:
    """Get the file in a part: PNG, JPEG, GIF and WebP as pictures, everything else as a download."""
    return attachment_response(await call.state.read_history(partial(_part, call)), query.attachment)


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


def _turns(call: Call, library: Library) -> SessionTurns:
    """Return the turns of the session that the path names."""
    return SessionTurns(library.store, library.session(call.parameters["name"]).id, call.state.turn_orders)


def _part(call: Call, library: Library) -> Document:
    """Return the part that the path names."""
    return _turns(call, library).find_part(call.parameters["partID"])[1]


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


def _row(session: Session) -> Document:
    return {
        "id": session.id,
        "slug": session.slug or None,
        "title": session.title,
        "project": session.project_id,
        "directory": session.directory,
        "parent": session.parent_id,
        "created": session.time.created,
        "updated": session.updated,
        "archived": session.time.archived,
        "share": session.share.url if session.share is not None and session.share.url else None,
    }
