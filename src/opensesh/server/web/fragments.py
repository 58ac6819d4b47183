"""HTML of messages, parts and requests for the event stream of the pages, made by the renderer of transcripts."""

from __future__ import annotations

from typing import TYPE_CHECKING

from markupsafe import Markup

from ...history.rendering.diff_html import diff_html
from ...history.rendering.markdown_html import markdown_html
from ...history.rendering.turns import RenderOptions, render_part, render_turn
from ...history.rendering.visible_text import code
from ...records import as_list, dumps, object_at
from ...storage.protocol import StoredMessage
from ..page_streams import Fragments
from .display import session_address
from .pages import render_fragment

if TYPE_CHECKING:
    from ...records import Document
    from ..page_streams import UserRequest

_STREAMING_TEXT = Markup(
    '<div class="part text streaming" id="p-{}"><div class="settled"></div><div class="tail"></div></div>'
)
_STREAMING_THOUGHT = Markup(
    '<details class="part thought streaming" id="p-{}"><summary>Thinking</summary>'
    '<div class="body"><div class="reasoning tail"></div></div></details>'
)
_TITLES = {
    "bash": "run a command",
    "edit": "change a file",
    "read": "read a file",
    "glob": "list files",
    "grep": "search in files",
    "webfetch": "fetch an address",
    "websearch": "search the web",
    "task": "start a subagent",
    "external_directory": "use a folder outside of the project",
    "doom_loop": "repeat the same call once more",
    "plan_exit": "leave plan mode",
}
"""What a permission is for, by its name."""


def _part(part: Document, directory: str, is_prompt: bool) -> str:
    address = session_address(str(part.get("sessionID")))
    return render_part(part, RenderOptions(address, directory=directory, is_prompt=is_prompt))


def _streaming_part(part: Document) -> str:
    shell = _STREAMING_THOUGHT if part.get("type") == "reasoning" else _STREAMING_TEXT
    return shell.format(part.get("id"))


def _turn(info: Document) -> str:
    return render_turn(StoredMessage(info, []), RenderOptions(session_address(str(info.get("sessionID")))))


def _request(request: UserRequest) -> str:
    document = request.document
    if "questions" in document:
        return render_fragment("question.html", request=request, questions=document["questions"])
    permission = str(document.get("permission"))
    metadata = object_at(document, "metadata")
    call = object_at(request.part or {}, "state")
    arguments = object_at(call, "input")
    command = arguments.get("command") if permission == "bash" else None
    diff = metadata.get("diff")
    # The difference of an edit shows its arguments; a command has a description at most.
    shown = {} if diff else metadata or arguments
    return render_fragment(
        "permission.html",
        request=request,
        title=_TITLES.get(permission, f"use {permission}"),
        rule=request.rule,
        permission=permission,
        tool=str((request.part or {}).get("tool") or permission),
        patterns=[str(pattern) for pattern in as_list(document.get("patterns")) or ()],
        always=[str(pattern) for pattern in as_list(document.get("always")) or ()],
        command=command if isinstance(command, str) else None,
        diff=diff_html(diff) if isinstance(diff, str) and diff else None,
        file=str(arguments.get("filePath") or "") if diff else "",
        fields=[
            (name, value if isinstance(value, str) else dumps(value).decode(errors="replace"))
            for name, value in shown.items()
            if name not in ("command", "description")
        ],
        description=str(arguments.get("description") or ""),
        code=code,
    )


FRAGMENTS = Fragments(markdown_html, _part, _streaming_part, _turn, _request)
