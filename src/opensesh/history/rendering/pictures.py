"""Pictures in a session: only PNG, JPEG, GIF and WebP, recognised by their first bytes and never by what they claim."""

from __future__ import annotations

import binascii
import re
from base64 import b64decode, b64encode
from urllib.parse import unquote_to_bytes

MAX_PICTURE_BYTES = 10 << 20
_SIGNATURES = (
    (re.compile(rb"\x89PNG\r\n\x1a\n"), "image/png"),
    (re.compile(rb"\xff\xd8\xff"), "image/jpeg"),
    (re.compile(rb"GIF8[79]a"), "image/gif"),
    (re.compile(rb"RIFF.{4}WEBP", re.DOTALL), "image/webp"),
)


def picture_type(content: bytes) -> str:
    """Return the media type of a picture; empty if it is none that is shown."""
    if len(content) > MAX_PICTURE_BYTES:
        return ""
    return next((kind for signature, kind in _SIGNATURES if signature.match(content)), "")


def data_url_content(url: str) -> bytes | None:
    """Return the content of a ``data:`` URL; ``None`` if it is not one, or cannot be decoded."""
    head, comma, payload = url.partition(",")
    if not comma or head[:5].lower() != "data:":
        return None
    try:
        data = unquote_to_bytes(payload)
        return b64decode(data) if head.lower().endswith(";base64") else data
    except (binascii.Error, ValueError):
        return None


def picture_url(url: str) -> str:
    """Return the ``data:`` URL of an embedded picture with its true media type, or an empty string."""
    content = data_url_content(url) if url[:5].lower() == "data:" else None
    kind = picture_type(content) if content else ""
    return f"data:{kind};base64,{b64encode(content).decode()}" if content and kind else ""
