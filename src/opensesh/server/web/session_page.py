"""One session: its transcript in chunks, what is inside its folded parts, and its figures.

Every address is a page for a browser without scripts, and a fragment for the scripts of the session page, which ask
for one with ``Accept: text/html-fragment``.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

from markupsafe import Markup
from msgspec import Meta, Struct, field
from starlette.responses import PlainTextResponse

from ...engine.budget import budget_from_environment
from ...engine.compaction_undo import newest_compaction
from ...errors import NotFoundError, RecordError
from ...history.discovery import project_title
from ...history.formats import ExportedSession, FormatOptions
from ...history.formats.markdown import MarkdownFormat
from ...history.rendering.highlighting import highlighted
from ...history.rendering.turns import RenderOptions, render_body, render_turn
from ...history.rendering.visible_text import code, prose
from ...history.search.search_filters import Filters
from ...history.search.text_search import Query
from ...history.session_changes import session_changes
from ...history.session_figures import session_figures
from ...history.session_outline import outline
from ...history.session_table import store_label
from ...history.session_turns import DamagedMessage, SessionTurns, turn_id
from ...history.transcript import ToolBlock, part_block
from ...records import dumps, object_at
from ...storage.protocol import CompositeStore
from ..operations import Call, MessageID, Routes
from ..responses import AttachmentQuery, attachment_response
from .display import session_address
from .live_page import live_facts
from .pages import is_fragment, render

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from ...history.library import Library, SessionEntry
    from ...history.session_outline import OutlineRow
    from ...history.session_turns import SessionTurn
    from ...records import Document
    from ...storage.protocol import StoredMessage

pages = Routes()
CHUNK = 50
"""Turns that are loaded together."""
_MAX_CHILD_TURNS = 50
_MAX_HITS = 200
_PROMPT_GROUP = 100
"""Prompts that are listed together; a session may have thousands."""
_SHOWN = ("reasoning", "outputs", "marks")


class SessionPageQuery(Struct, frozen=True):
    """The turns to begin with: those around ``at``, from a position on, or the newest."""

    at: MessageID | None = None
    start: Annotated[int, Meta(ge=0)] | None = field(default=None, name="from")
    show: str = ""
    """Names among ``reasoning``, ``outputs`` and ``marks``, separated by commas."""
    q: str = ""
    """Words to mark: those of the search that led here."""


class ChunkQuery(Struct, frozen=True):
    """A chunk of turns: the one at a position, or the one with a message."""

    start: Annotated[int, Meta(ge=0)] = field(default=0, name="from")
    around: MessageID | None = None
    show: str = ""


class PartQuery(Struct, frozen=True):
    """The amount of a part to show."""

    lines: str = ""
    """``all`` for an output that is otherwise cut."""


class PromptsQuery(Struct, frozen=True):
    """A group of prompts, by the number of the first from 0."""

    start: Annotated[int, Meta(ge=0)] = field(default=0, name="from")


class PanelQuery(Struct, frozen=True):
    """The width of the page: whether it has space for the map, a line for each message of the session."""

    map: bool = False


class FindQuery(Struct, frozen=True):
    """The words to find in the session."""

    q: str = ""


class TurnQuery(Struct, frozen=True):
    """The form of a turn."""

    form: str = ""
    """``markdown`` for text to copy; else the records are shown."""


class TranscriptChunk(NamedTuple):
    """Rendered turns, from a position to before another."""

    start: int
    end: int
    html: Markup


class SessionView:
    """A session as the pages read it."""

    def __init__(self, call: Call, library: Library) -> None:
        self.library = library
        self.entry: SessionEntry = library.session(call.session_id)
        self.id = self.entry.id
        self.turns = SessionTurns(library.store, self.id, call.state.turn_orders)
        self.address = session_address(self.id)

    def options(self, show: str) -> RenderOptions:
        """Return how turns are rendered; ``show`` is a list of names, of which unknown ones are ignored."""
        shown = frozenset(show.split(",")) & frozenset(_SHOWN)
        return RenderOptions(address=self.address, show=shown, directory=self.entry.record.directory)

    def chunk(self, start: int, options: RenderOptions) -> TranscriptChunk:
        """Render the chunk that begins at a position."""
        # The turn before decides whether the first one is a further step, or begins a day.
        first = max(start - 1, 0)
        turns = self.turns.read(first, start + CHUNK - first)
        html = Markup("").join(self._rendered(turns, first, start, options))
        return TranscriptChunk(start, start + len(turns) - (start - first), html)

    def _rendered(
        self, turns: Sequence[SessionTurn], first: int, start: int, options: RenderOptions
    ) -> Iterator[Markup]:
        revert = self.entry.record.revert
        reverted_from = self._position(revert.message_id) if revert is not None else None
        previous: StoredMessage | None = None
        for position, turn in enumerate(turns, first):
            if position >= start:
                if position == reverted_from:
                    yield self._revert_mark(position)
                if isinstance(turn, DamagedMessage):
                    yield _damage_notice(turn_id(turn), turn.path, turn.reason)
                else:
                    is_reverted = reverted_from is not None and position >= reverted_from
                    placed = options._replace(position=position)
                    yield render_turn(turn, placed, previous=previous, is_reverted=is_reverted)
            previous = turn if not isinstance(turn, DamagedMessage) else None
        for damage in self.turns.damage:
            yield _damage_notice("", damage.path, damage.reason)
        self.turns.damage.clear()

    def _position(self, message_id: str) -> int | None:
        try:
            return self.turns.position(message_id)
        except NotFoundError:
            return None

    def _revert_mark(self, position: int) -> Markup:
        count = self.turns.total - position
        words = f"reverted from here: {count} message{'s' if count > 1 else ''}"
        template = Markup(
            '<div class="cut-mark warn" data-revert><span>{}</span>'
            '<button type="button" data-action="unrevert">Unrevert</button></div>\n'
        )
        return template.format(words)


def _damage_notice(message_id: str, path: str, reason: str) -> Markup:
    identity = Markup(' id="t-{}"').format(message_id) if message_id else ""
    template = Markup('<p class="damage"{}>A record cannot be read: {} ({}). <a href="/ui/doctor">Doctor</a></p>\n')
    return template.format(identity, code(path), prose(reason))


@pages.get("/ui/session/{sessionID}", "ui.session", response=None)
async def session_page(call: Call, query: SessionPageQuery) -> object:
    """Show a session, from the newest turns on or at one of them."""
    event = call.state.streams.event_id(call.state.bus.last)  # before reading: what happens meanwhile is sent again

    def read(library: Library) -> dict[str, Any]:
        view = SessionView(call, library)
        options = view.options(query.show)
        total = view.turns.total
        last = max((total - 1) // CHUNK, 0) * CHUNK
        if query.at is not None:
            starts = [view.turns.position(query.at) // CHUNK * CHUNK]
            starts += [start for start in (starts[0] + CHUNK,) if start <= last]
        elif query.start is not None:
            starts = [min(query.start, last) // CHUNK * CHUNK]
        else:
            # A few turns would not fill the window.
            starts = [last - CHUNK, last] if last and total - last < CHUNK // 2 else [last]
        chunks = [view.chunk(start, options) for start in starts]
        return session_head(view) | {
            "chunks": chunks,
            "total": total,
            "chunk_size": CHUNK,
            "at": query.at,
            "q": query.q,
            "show": sorted(options.show),
            "earlier": max(starts[0] - CHUNK, 0) if starts[0] else None,
            "later": chunks[-1].end if chunks[-1].end < total else None,
            "live": live_facts(call.state, view.entry.record, library.store.messages(view.id, last=20)),
            "event": event,
        }

    return render(call, "session.html", **await call.state.read_history(read))


def session_head(view: SessionView) -> dict[str, Any]:
    """Return what the heads of all pages about a session show."""
    record = view.entry.record
    original = str(object_at(record.document, "fork").get("sessionID") or "")
    projects = {project.id: project for project in view.library.projects}
    project = projects.get(record.project_id)
    is_merged = isinstance(view.library.store, CompositeStore)
    return {
        "session": record,
        "address": view.address,
        "project": project_title(project) if project is not None else record.directory,
        "origins": [(store_label(store), store) for store in view.entry.origins] if is_merged else [],
        "parent": _linked_session(view.library, record.parent_id),
        "original": _linked_session(view.library, original),
    }


def _linked_session(library: Library, session_id: str | None) -> tuple[str, str] | None:
    """Return the id and the title of another session; ``None`` if there is none."""
    if not session_id:
        return None
    try:
        return session_id, library.session(session_id).title or session_id
    except (NotFoundError, RecordError):
        return session_id, f"{session_id} (not here)"


@pages.get("/ui/session/{sessionID}/turns", "ui.session.turns", response=None)
async def session_chunk(call: Call, query: ChunkQuery) -> object:
    """Show one chunk of turns."""

    def read(library: Library) -> TranscriptChunk:
        view = SessionView(call, library)
        start = query.start if query.around is None else view.turns.position(query.around)
        return view.chunk(start // CHUNK * CHUNK, view.options(query.show))

    return render(call, "session_chunk.html", chunk=await call.state.read_history(read))


@pages.get("/history/sessions/{sessionID}/live-turns", "history.liveTurns", response=dict[str, Any])
async def live_turns(call: Call, query: ChunkQuery) -> object:
    """Return a chunk of turns with the event after which a stream continues them.

    It is for pages that have lost events, and belongs to the API: after a restart of the server, a page has no cookie
    any more that permits to read pages.
    """
    event = call.state.streams.event_id(call.state.bus.last)

    def read(library: Library) -> Document:
        view = SessionView(call, library)
        chunk = view.chunk(query.start // CHUNK * CHUNK, view.options(query.show))
        return {
            "html": str(chunk.html),
            "from": chunk.start,
            "to": chunk.end,
            "total": view.turns.total,
            "event": event,
        }

    return await call.state.read_history(read)


@pages.get("/ui/session/{sessionID}/parts/{partID}", "ui.session.part", response=None)
async def session_part(call: Call, query: PartQuery) -> object:
    """Show what is inside a folded part; for the call of a subagent, with the subagent's turns."""

    def read(library: Library) -> dict[str, Any]:
        view = SessionView(call, library)
        message_id, part = view.turns.find_part(call.parameters["partID"])
        options = view.options("reasoning,outputs")
        body = render_body(part, options, whole=query.lines == "all")
        block = part_block(part)
        if isinstance(block, ToolBlock) and block.session:
            body += _child_turns(call, library, block.session)
        return session_head(view) | {"body": body, "message": message_id, "part": part}

    values = await call.state.read_history(read)
    return render(call, "session_part_body.html" if is_fragment(call) else "session_part.html", **values)


def _child_turns(call: Call, library: Library, session_id: str) -> Markup:
    """Render the turns of a subagent's session, or its first ones."""
    try:
        entry = library.session(session_id)
    except NotFoundError:
        return Markup('<p class="note">The session of the subagent is not here.</p>')
    address = session_address(entry.id)
    turns = SessionTurns(library.store, entry.id, call.state.turn_orders)
    options = RenderOptions(address=address, directory=entry.record.directory)
    rendered: list[Markup] = []
    previous: StoredMessage | None = None
    for turn in turns.read(0, _MAX_CHILD_TURNS):
        if not isinstance(turn, DamagedMessage):
            rendered.append(render_turn(turn, options, previous=previous))
            previous = turn
    rest = turns.total - _MAX_CHILD_TURNS
    more = f"{rest} more messages: open the whole session" if rest > 0 else "open as a session"
    template = Markup('<div class="child" data-address="{0}">{1}<a class="load" href="{0}">{2}</a></div>')
    return template.format(address, Markup("").join(rendered), more)


@pages.get("/ui/session/{sessionID}/parts/{partID}/file", "ui.session.file", response=None)
async def session_file(call: Call, query: AttachmentQuery) -> object:
    """Send the file in a part: a picture as one, anything else as a download."""

    def read(library: Library) -> Document:
        return SessionView(call, library).turns.find_part(call.parameters["partID"])[1]

    return attachment_response(await call.state.read_history(read), query.attachment)


@pages.get("/ui/session/{sessionID}/panel", "ui.session.panel", response=None)
async def session_panel(call: Call, query: PanelQuery) -> object:
    """Show the figures of a session: context, cost, tokens, to do, files, subagents, prompts."""

    def read(library: Library) -> dict[str, Any]:
        view = SessionView(call, library)
        messages = library.store.messages(view.id, report=library.report)
        rows = list(outline(messages))
        return session_head(view) | {
            "figures": session_figures(library, view.entry, messages),
            "files": session_changes(library.store, view.id, messages),
            "map_lines": "\n".join(f"{_map_kind(row)} {row.size} {row.id}" for row in rows) if query.map else "",
            "prompts": (prompts := prompts_of(rows)),
            "groups": range(0, max(len(prompts), 1), _PROMPT_GROUP),
            "group_size": _PROMPT_GROUP,
            "total": len(messages),
            "is_compacted": newest_compaction(messages) is not None,
            "budget": budget_from_environment(os.environ).session,
        }

    values = await call.state.read_history(read)
    return render(call, "session_panel_fragment.html" if is_fragment(call) else "session_panel.html", **values)


def _map_kind(row: OutlineRow) -> str:
    """Return what a message is on the map of its session."""
    if "c" in row.flags:
        return "compaction"
    is_failed = "e" in row.flags and "a" not in row.flags
    return "error" if is_failed else "prompt" if row.role == "user" else "answer"


@pages.get("/ui/session/{sessionID}/prompts", "ui.session.prompts", response=None)
async def session_prompts(call: Call, query: PromptsQuery) -> object:
    """Show one group of the prompts of a session."""

    def read(library: Library) -> dict[str, Any]:
        view = SessionView(call, library)
        prompts = prompts_of(outline(library.store.messages(view.id, report=library.report)))
        listed = prompts[query.start : query.start + _PROMPT_GROUP]
        return session_head(view) | {"prompts": listed, "start": query.start}

    values = await call.state.read_history(read)
    return render(call, "session_prompt_list.html" if is_fragment(call) else "session_prompts.html", **values)


def prompts_of(rows: Iterable[OutlineRow]) -> list[tuple[str, str]]:
    """Return the id and the beginning of each prompt."""
    return [(row.id, row.words) for row in rows if row.words]


@pages.get("/ui/session/{sessionID}/find", "ui.session.find", response=None)
async def session_find(call: Call, query: FindQuery) -> object:
    """Find words in a session: the hits in the order of the conversation."""

    def read(library: Library) -> dict[str, Any]:
        view = SessionView(call, library)
        words = query.q.strip()
        if not words:
            return session_head(view) | {"hits": [], "found": 0, "q": ""}
        results = library.search(Query(words, "words", Filters(session=view.id), _MAX_HITS))
        hits = sorted((hit for hit in results.hits if hit.message), key=lambda hit: hit.time)
        return session_head(view) | {"hits": hits, "found": results.total, "q": words}

    values = await call.state.read_history(read)
    return render(call, "session_find_hits.html" if is_fragment(call) else "session_find.html", **values)


@pages.get("/ui/session/{sessionID}/turns/{messageID}", "ui.session.turn", response=None)
async def session_turn(call: Call, query: TurnQuery) -> object:
    """Show the records of one turn, or the turn as Markdown to copy."""

    def read(library: Library) -> tuple[dict[str, Any], StoredMessage]:
        view = SessionView(call, library)
        (turn,) = view.turns.read(view.turns.position(call.parameters["messageID"]), 1)
        if isinstance(turn, DamagedMessage):
            raise RecordError(turn.reason, path=turn.path)
        return session_head(view), turn

    head, turn = await call.state.read_history(read)
    if query.form == "markdown":
        session = ExportedSession(head["session"].id, head["session"].project_id, head["session"].document, [turn])
        return PlainTextResponse("".join(MarkdownFormat(FormatOptions()).messages(session)).encode(errors="replace"))
    records = dumps({"info": turn.info, "parts": turn.parts}).decode(errors="replace")
    return render(call, "session_turn.html", records=highlighted(records, "json", 2_000), turn=turn, **head)
