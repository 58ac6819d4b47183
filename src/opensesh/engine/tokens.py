"""How many tokens a piece of a request takes, without asking anyone: words by their length, pictures by their size,
documents by their pages.

Providers count in ways of their own; these figures are for deciding and for showing, never for a bill.
"""

from __future__ import annotations

import binascii
import re
from typing import TYPE_CHECKING, assert_never

from ..models.request import Assistant, File, Reasoning, System, Text, ToolResults, ToolUse, User
from ..records import dumps_compact

if TYPE_CHECKING:
    from ..models.request import ModelMessage, Request, ToolSpec

_PIXELS_A_TOKEN = 750
_MOST_PIXELS = 1568 * 1568
"""Larger pictures are scaled down by whoever looks at them."""
_UNKNOWN_PICTURE = 1_500
_PAGE = 2_000
"""A page of a PDF: its words, and its picture."""
_MOST_PAGES = 1_000
_PAGES = rb"/Type\s*/Page(?![a-zA-Z])"
_FILES = "\n\nInstructions from: "
_JPEG_SIZES = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}


def estimate(text: str) -> int:
    """Roughly how many tokens a text has."""
    return (len(text) + 2) // 4


def request_tokens(request: Request) -> dict[str, int]:
    """What fills a request, by kind; the largest first."""
    sizes = overhead(request)
    for turn in request.messages:
        if not isinstance(turn, System):
            name = "tool results" if isinstance(turn, ToolResults) else "messages"
            sizes[name] = sizes.get(name, 0) + turn_tokens(turn)
    return dict(sorted(sizes.items(), key=lambda item: -item[1]))


def overhead(request: Request) -> dict[str, int]:
    """What every request of a session holds, however short the conversation is."""
    sizes = {"the tools on offer": sum(map(tool_tokens, request.tools)), "the system prompt": 0}
    for turn in request.messages:
        if isinstance(turn, System):
            at = turn.text.find(_FILES)
            sizes["the system prompt"] += estimate(turn.text if at < 0 else turn.text[:at])
            if at >= 0:
                sizes["instruction files"] = estimate(turn.text[at:])
    return sizes


def tool_tokens(spec: ToolSpec) -> int:
    """What a tool on offer takes: its name, its description and its arguments."""
    return estimate(f"{spec.name}{spec.description}") + _of_json(spec.parameters)


def turn_tokens(turn: ModelMessage) -> int:
    """All of one turn."""
    match turn:
        case System(text=text):
            return estimate(text)
        case User(content=said):
            return sum(map(piece_tokens, said))
        case Assistant(content=answered):
            return sum(map(piece_tokens, answered))
        case ToolResults(content=results):
            return sum(piece_tokens(piece) for result in results for piece in result.output)
        case _:
            assert_never(turn)


def piece_tokens(piece: Text | File | Reasoning | ToolUse) -> int:
    """One thing that is said, shown or called."""
    match piece:
        case Text(text=text) | Reasoning(text=text):
            return estimate(text)
        case ToolUse(name=name, input=given):
            return estimate(name) + _of_json(given)
        case File():
            return file_tokens(piece.mime, piece.url)
        case _:
            assert_never(piece)


def file_tokens(mime: str, url: str) -> int:
    """An attached file, by what is in it; a guess where it lies elsewhere."""
    content = _content(url)
    if mime == "application/pdf":
        return _PAGE * min(max(len(re.findall(_PAGES, content)), 1), _MOST_PAGES)
    if mime.startswith("text/"):
        return (len(content) + 2) // 4
    pixels = _pixels(content)
    return -(-min(pixels, _MOST_PIXELS) // _PIXELS_A_TOKEN) if pixels else _UNKNOWN_PICTURE


def _of_json(value: object) -> int:
    return estimate(dumps_compact(value).decode())


def _content(url: str) -> bytes:
    head, _, data = url.partition(",")
    if not head.startswith("data:") or not head.endswith(";base64"):
        return b""
    try:
        return binascii.a2b_base64(data)
    except ValueError:
        return b""


def _pixels(content: bytes) -> int:
    """How many a picture has, from its first bytes; 0 where they do not say."""
    if content.startswith(b"\x89PNG") and len(content) >= 24:
        return _big(content[16:20]) * _big(content[20:24])
    if content.startswith(b"GIF8") and len(content) >= 10:
        return _little(content[6:8]) * _little(content[8:10])
    if content.startswith(b"\xff\xd8"):
        return _pixels_of_jpeg(content)
    if content[:4] == b"RIFF" and content[8:12] == b"WEBP":
        return _pixels_of_webp(content)
    return 0


def _pixels_of_jpeg(content: bytes) -> int:
    at = 2
    while at + 9 <= len(content) and content[at] == 0xFF:
        if content[at + 1] in _JPEG_SIZES:
            return _big(content[at + 5 : at + 7]) * _big(content[at + 7 : at + 9])
        at += 2 + max(_big(content[at + 2 : at + 4]), 2)
    return 0


def _pixels_of_webp(content: bytes) -> int:
    match content[12:16]:
        case b"VP8X" if len(content) >= 30:
            return (_little(content[24:27]) + 1) * (_little(content[27:30]) + 1)
        case b"VP8 " if len(content) >= 30:
            return (_little(content[26:28]) & 0x3FFF) * (_little(content[28:30]) & 0x3FFF)
        case b"VP8L" if len(content) >= 25:
            bits = _little(content[21:25])
            return ((bits & 0x3FFF) + 1) * ((bits >> 14 & 0x3FFF) + 1)
        case _:
            return 0


def _big(data: bytes) -> int:
    return int.from_bytes(data, "big")


def _little(data: bytes) -> int:
    return int.from_bytes(data, "little")
