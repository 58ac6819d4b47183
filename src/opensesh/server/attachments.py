"""Files from a session: pictures as pictures, everything else as a download that no browser opens in place."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING
from urllib.parse import quote

from starlette.responses import Response

from ..errors import NotFoundError
from ..history.rendering.pictures import data_url_content, picture_type
from ..history.transcript import FileBlock, ToolBlock, part_block

if TYPE_CHECKING:
    from ..records import Document

_HEADERS = {
    "content-security-policy": "sandbox; default-src 'none'",
    "x-content-type-options": "nosniff",
    "cross-origin-resource-policy": "same-origin",
    "cache-control": "private, no-store",
}
_UNSAFE_IN_NAMES = re.compile(r"[^\w .()+=@,-]")


def attachment_response(part: Document, attachment: int | None) -> Response:
    """Return the file that is in a part: its own, or one of those that a tool returned."""
    block = part_block(part)
    if isinstance(block, ToolBlock) and attachment is not None and attachment < len(block.attachments):
        block = block.attachments[attachment]
    content = data_url_content(block.url) if isinstance(block, FileBlock) else None
    if not isinstance(block, FileBlock) or content is None:
        raise NotFoundError("this part holds no file", part=str(part.get("id")))
    if kind := picture_type(content):
        return Response(content, headers=_HEADERS | {"content-type": kind})
    last_element = re.split(r"[/\\]", block.name)[-1]
    name = _UNSAFE_IN_NAMES.sub("_", last_element).strip(" .")[:120] or "file"
    disposition = f"attachment; filename*=UTF-8''{quote(name, safe='')}"
    headers = {"content-type": "application/octet-stream", "content-disposition": disposition}
    return Response(content, headers=_HEADERS | headers)
