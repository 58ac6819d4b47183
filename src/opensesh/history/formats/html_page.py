"""HTML format: a session as one self-contained page, without other files, network access or foreign scripts.

The content security policy of a page allows only its own script. All session content is escaped as well; without the
escaping a script in a session would still not run.
"""

from __future__ import annotations

import os
from base64 import b64encode
from functools import cache
from hashlib import sha256
from typing import TYPE_CHECKING, Literal, NamedTuple, cast

from markupsafe import Markup

from ...records import Document, object_at
from ...text import pluralize
from ..formatting import text, when
from ..rendering.turns import RenderOptions, render_message, template_environment
from ..rendering.visible_text import prose
from ..session_outline import prompt_words
from ..transcript import ToolBlock, TranscriptMessage, TranscriptOptions, transcript_messages

if TYPE_CHECKING:
    from collections.abc import Iterator

    from jinja2 import Template

    from . import ExportedSession, FormatOptions

_NOTE = "Exported by opensesh. This page holds everything it shows and asks nothing of the network."
_FOLDERS = tuple(
    os.path.join(os.path.dirname(__file__), *words) for words in (("page",), ("..", "rendering", "static"))
)


class HtmlFormat:
    """One page a session."""

    suffix = ".html"
    delimiters = None
    nests = True
    part_types = None

    def __init__(self, options: FormatOptions, *, note: str = _NOTE, user: str = "You") -> None:
        """``note`` is the footer of the page, ``user`` the name it shows for the user."""
        self._options = options
        self._note = note
        self._user = user

    def chunks(self, session: ExportedSession) -> Iterator[bytes]:
        """Render one page, a chunk at a time."""
        summary = _Summary()
        variables = {
            "id": session.id,
            "title": _title(session),
            "directory": text(session.info, "directory"),
            "created": self._time(session, "created"),
            "updated": self._time(session, "updated"),
            "turns": self._turns(session, summary),
            "summary": summary,  # complete after the last turn, therefore rendered after it
            "policy": page_policy(),
            "note": self._note,
            "indexed": self._options.indexed,
        }
        for chunk in page_template("session.html").generate(variables):
            yield chunk.encode(errors="replace")

    def _time(self, session: ExportedSession, name: str) -> str:
        return when(object_at(session.info, "time").get(name), utc=self._options.utc)

    def _turns(self, session: ExportedSession, summary: _Summary) -> Iterator[Markup]:
        """Render the messages; a subagent session follows the call that started it, others come at the end."""
        children = {child.id: child for child in session.children}

        def render_child(session_id: str) -> Markup:
            child = children.pop(session_id, None)
            if child is None:
                return Markup("")
            turns = Markup("").join(self._turns(child, summary.below()))
            template = Markup('<details class="child"><summary>Subagent: {}</summary>\n{}</details>\n')
            return template.format(prose(_title(child)), turns)

        options = RenderOptions(
            user=self._user,
            utc=self._options.utc,
            tools=cast('Literal["", "skip", "summary"]', self._options.tools),
            reasoning=self._options.reasoning,
            child=render_child,
        )
        previous: TranscriptMessage | None = None
        for message in transcript_messages(session.messages, TranscriptOptions.everything()):
            summary.count(message)
            yield render_message(message, options, previous=previous)
            previous = message
        for session_id in list(children):
            yield render_child(session_id)


class _Prompt(NamedTuple):
    id: str
    text: str


class _Summary:
    """Totals and prompts of a session, counted while it is rendered."""

    def __init__(self, parent: _Summary | None = None) -> None:
        self._parent = parent
        self.prompts: list[_Prompt] = []
        self.messages = self.calls = self.tokens = 0
        self.cost = 0.0

    def below(self) -> _Summary:
        """Return the summary of a subagent's session, whose figures count here as well."""
        return _Summary(self)

    def count(self, message: TranscriptMessage) -> None:
        """Add a message."""
        if words := prompt_words(message):
            self.prompts.append(_Prompt(message.id, words))
        self._add(message, sum(isinstance(block, ToolBlock) for block in message.blocks))

    def _add(self, message: TranscriptMessage, calls: int) -> None:
        self.messages += 1
        self.calls += calls
        self.tokens += message.tokens
        self.cost += message.cost
        if self._parent is not None:
            self._parent._add(message, calls)

    @property
    def totals(self) -> list[str]:
        """The totals, as texts."""
        words = [pluralize(self.messages, "message"), pluralize(self.calls, "tool call")]
        words += [pluralize(self.tokens, "token")] if self.tokens else []
        return [*words, f"${self.cost:,.2f}"] if self.cost else words


def _title(session: ExportedSession) -> str:
    return text(session.info, "title") or session.id


def page_template(name: str) -> Template:
    """Return a template of the exported pages."""
    return template_environment(_FOLDERS).get_template(name, globals={"prose": prose})


@cache
def page_policy() -> str:
    """Return the content security policy of a page: embedded images, and the one script of the page."""
    script = page_template("page.js").render()
    digest = b64encode(sha256(script.encode()).digest()).decode()
    return (
        f"default-src 'none'; img-src data:; style-src 'unsafe-inline'; script-src 'sha256-{digest}'; base-uri 'none'"
    )


def index_page(rows: list[Document]) -> Iterator[bytes]:
    """Render the page that lists exported sessions."""
    for chunk in page_template("index.html").generate(rows=rows, policy=page_policy()):
        yield chunk.encode(errors="replace")
