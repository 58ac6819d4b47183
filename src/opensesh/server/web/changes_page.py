"""The files that a session or one of its prompts changed, with as many lines around the changes as are asked for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple
from urllib.parse import urlencode

from markupsafe import Markup
from msgspec import Meta, Struct

from ...errors import NotFoundError
from ...history.rendering.diff_html import diff_html, split_diff_html
from ...history.session_changes import FileSummary, OpenedLines, prompt_changes, session_changes
from ...history.session_outline import outline
from ...text import pluralize
from ..operations import Call, ChosenMessageID, Routes
from .pages import is_fragment, render
from .session_page import SessionView, prompts_of, session_head

if TYPE_CHECKING:
    from ...history.library import Library

pages = Routes()
_MAX_UNFOLDED_CHANGES = 2_000
_STEP_LINES = 20
"""Lines that are opened above or below a change at once."""
_END = 10**9


class ChangesPageQuery(Struct, frozen=True):
    """The prompt whose changes to show (the whole session if absent), and the layout."""

    prompt: ChosenMessageID = ""
    view: Literal["", "split"] = ""
    """``split`` for old and new lines side by side."""
    file: str = ""
    """A file of which more lines are shown than those around its changes."""
    lines: Annotated[str, Meta(pattern=r"^(\d{1,9}-\d{1,9}(,\d{1,9}-\d{1,9})*)?$", max_length=4_000)] = ""
    """Which lines of its old text, as ``0-20,80-100``; all of them if absent."""


@pages.get("/ui/session/{sessionID}/changes", "ui.session.changes", response=None)
async def session_changes_page(call: Call, query: ChangesPageQuery) -> object:
    """Show the files that a session or one of its prompts changed."""
    opened = _opened_lines(query)

    def read(library: Library) -> dict[str, Any]:
        view = SessionView(call, library)
        messages = library.store.messages(view.id, report=library.report)
        files = (
            prompt_changes(messages, query.prompt, opened)
            if query.prompt
            else session_changes(library.store, view.id, messages, opened)
        )
        address = f"{view.address}/changes"
        shown = [_shown(address, query, file, number) for number, file in enumerate(files, 1)]
        return session_head(view) | {
            "files": shown,
            "layout": query.view,
            "additions": sum(file.additions for file in files),
            "deletions": sum(file.deletions for file in files),
            "prompts": prompts_of(outline(messages)),
            "prompt": query.prompt,
            "most": _MAX_UNFOLDED_CHANGES,
        }

    values = await call.state.read_history(read)
    if not is_fragment(call):
        return render(call, "session_changes.html", **values)
    shown = next((shown for shown in values["files"] if shown.file.path == query.file), None)
    if shown is None:
        raise NotFoundError(f"{query.file} was not changed", path=query.file)
    return render(call, "session_changed_file.html", shown=shown, layout=query.view)


class ShownFile(NamedTuple):
    """A changed file, and what its part of the page needs."""

    file: FileSummary
    diff: Markup
    anchor: str
    whole: str
    """The address of the page with all lines of the file; empty if none are left out."""


class _Gaps:
    """The lines that the diff of a file leaves out, as links that open some or all of them."""

    def __init__(self, address: str, query: ChangesPageQuery, file: FileSummary, anchor: str) -> None:
        self._address = address
        self._parameters = {"prompt": query.prompt, "view": query.view, "file": file.path}
        self._anchor = anchor
        self._opened = query.lines if query.file == file.path else ""
        self._file = file
        self.count = 0

    def address(self, lines: str = "") -> str:
        """Return the address of the page with more lines of the file."""
        return f"{self._address}?{urlencode(self._parameters | {'lines': lines})}#{self._anchor}"

    def __call__(self, start: int, end: int | None) -> Markup:
        """Return the links for the lines from one on, to before another or to the end."""
        stop = self._file.old_lines if end is None else end
        size = stop - start
        if size <= 0:
            return Markup("")
        self.count += 1
        links: list[Markup] = []
        if size > _STEP_LINES and start:
            links.append(self._link("\N{DOWNWARDS ARROW} {}", start, start + _STEP_LINES))
        if size > _STEP_LINES and end is not None:
            links.append(self._link("\N{UPWARDS ARROW} {}", stop - _STEP_LINES, stop))
        links.append(self._link("all {}" if links else "\N{UP DOWN ARROW} {}", start, stop))
        return Markup(" ").join(["", *links])

    def _link(self, label: str, start: int, stop: int) -> Markup:
        address = self.address(",".join(filter(None, (self._opened, f"{start}-{stop}"))))
        template = Markup('<a class="load all" title="Show lines {} to {}" href="{}">{}</a>')
        return template.format(start + 1, stop, address, label.format(pluralize(stop - start, "line")))


def _shown(address: str, query: ChangesPageQuery, file: FileSummary, number: int) -> ShownFile:
    anchor = f"f-{number}"
    gaps = _Gaps(address, query, file, anchor)
    render_diff = split_diff_html if query.view else diff_html
    diff = render_diff(file.diff, gaps if file.old_lines else None) if file.diff else Markup("")
    return ShownFile(file, diff, anchor, gaps.address() if gaps.count else "")


def _opened_lines(query: ChangesPageQuery) -> OpenedLines | None:
    if not query.file:
        return None
    ranges = [edges.split("-") for edges in query.lines.split(",")] if query.lines else [("0", str(_END))]
    return OpenedLines(query.file, tuple((int(start), int(end)) for start, end in ranges))
