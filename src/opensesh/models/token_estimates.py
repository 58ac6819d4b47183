"""Estimates of tokens. Providers count in their own ways: these are for decisions and display, never for a bill."""

from __future__ import annotations

import binascii
import re
from contextlib import suppress
from typing import Literal

_PIXELS_PER_TOKEN = 750
_MAX_PIXELS = 1568 * 1568
"""Providers scale larger images down."""
_UNKNOWN_IMAGE_TOKENS = 1_500
_PAGE_TOKENS = 2_000
"""A page of a PDF counts as text and as an image."""
_MAX_PAGES = 1_000
_PDF_PAGE = rb"/Type\s*/Page(?![a-zA-Z])"
_JPEG_FRAMES = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}


def estimate(text: str) -> int:
    """Estimate the tokens of a text by its length."""
    return estimate_length(len(text))


def estimate_length(characters: int) -> int:
    """Estimate the tokens of a text of this length."""
    return (characters + 2) // 4


def file_tokens(mime: str, url: str) -> int:
    """Estimate the tokens of an attached file by its content; a guess where the URL does not hold it."""
    head, _, data = url.partition(",")
    content = b""
    if head.startswith("data:") and head.endswith(";base64"):
        with suppress(ValueError):
            content = binascii.a2b_base64(data)
    if mime == "application/pdf":
        return _PAGE_TOKENS * min(max(len(re.findall(_PDF_PAGE, content)), 1), _MAX_PAGES)
    if mime.startswith("text/"):
        return estimate_length(len(content))
    pixels = _pixels(content)
    return -(-min(pixels, _MAX_PIXELS) // _PIXELS_PER_TOKEN) if pixels else _UNKNOWN_IMAGE_TOKENS


def _pixels(content: bytes) -> int:
    """Return the number of pixels of an image from its header; 0 if that is not readable."""

    def number(at: int, size: int = 2, order: Literal["big", "little"] = "little") -> int:
        return int.from_bytes(content[at : at + size], order)

    pixels = 0
    if content.startswith(b"\x89PNG") and len(content) >= 24:
        pixels = number(16, 4, "big") * number(20, 4, "big")
    elif content.startswith(b"GIF8") and len(content) >= 10:
        pixels = number(6) * number(8)
    elif content.startswith(b"\xff\xd8"):
        pixels = _jpeg_pixels(content)
    elif content[:4] + content[8:15] == b"RIFFWEBPVP8":
        kind = content[15:16]
        if kind == b"X" and len(content) >= 30:
            pixels = (number(24, 3) + 1) * (number(27, 3) + 1)
        elif kind == b" " and len(content) >= 30:
            pixels = (number(26) & 0x3FFF) * (number(28) & 0x3FFF)
        elif kind == b"L" and len(content) >= 25:
            pixels = ((number(21, 4) & 0x3FFF) + 1) * ((number(21, 4) >> 14 & 0x3FFF) + 1)
    return pixels


def _jpeg_pixels(content: bytes) -> int:
    at = 2  # the size is in the first frame, after any number of other segments
    while at + 9 <= len(content) and content[at] == 0xFF:
        if content[at + 1] in _JPEG_FRAMES:
            return int.from_bytes(content[at + 5 : at + 7], "big") * int.from_bytes(content[at + 7 : at + 9], "big")
        at += 2 + max(int.from_bytes(content[at + 2 : at + 4], "big"), 2)
    return 0
