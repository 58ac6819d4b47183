"""What is in a file: text, a picture, or bytes that are neither."""

from __future__ import annotations

import base64
import codecs
import os
from typing import IO

from ..errors import ToolFailedError
from .path_access import unreadable

PDF = "application/pdf"
MAX_ATTACHMENT = 20 * 1024 * 1024
_SAMPLE = 4096

_SIGNATURES = (
    (b"\x89PNG\r\n\x1a\n", "image/png"),
    (b"\xff\xd8\xff", "image/jpeg"),
    (b"GIF87a", "image/gif"),
    (b"GIF89a", "image/gif"),
    (b"BM", "image/bmp"),
    (b"%PDF-", PDF),
)
_BY_NAME = {
    ".png": "image/png",
    ".jpg": "image/jpeg",
    ".jpeg": "image/jpeg",
    ".gif": "image/gif",
    ".webp": "image/webp",
    ".bmp": "image/bmp",
    ".avif": "image/avif",
    ".heic": "image/heic",
    ".tif": "image/tiff",
    ".tiff": "image/tiff",
    ".ico": "image/x-icon",
    ".pdf": PDF,
}
_BINARY = frozenset(
    """.7z .a .bin .bz2 .class .com .dat .deb .dll .dmg .doc .docx .dylib .eot .exe .gz .iso .jar .lib .lz4 .mov .mp3
    .mp4 .o .obj .odp .ods .odt .otf .parquet .pkl .ppt .pptx .pyc .pyo .rar .rpm .so .sqlite .tar .tgz .ttf .war .wasm
    .whl .woff .woff2 .xls .xlsx .xz .zip .zst""".split()
)
_TEXT_CONTROLS = b"\t\n\v\f\r\x1b\b"


def attachable(path: str) -> str | None:
    """The MIME type of an image or PDF, by its first bytes, else by its name; ``None`` for all other files."""
    named = _BY_NAME.get(os.path.splitext(path)[1].lower())
    sample = _sample(path)
    if named is None or not sample:
        return None
    if sample[:4] == b"RIFF" and sample[8:12] == b"WEBP":
        return "image/webp"
    return next((mime for start, mime in _SIGNATURES if sample.startswith(start)), named)


def is_binary(path: str) -> bool:
    """Whether the file is no text: by its name, a NUL, or too many control characters at its beginning."""
    if os.path.splitext(path)[1].lower() in _BINARY:
        return True
    sample = _sample(path)
    if sample.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return False
    if b"\0" in sample:
        return True
    odd = sum(byte < 32 and byte not in _TEXT_CONTROLS for byte in sample)
    return odd > 0.3 * len(sample)


def wide_encoding(file: IO[bytes]) -> str | None:
    """The encoding of a text in UTF-16, with its mark passed; ``None`` for all other text, with UTF-8's mark passed."""
    start = file.read(3)
    if start[:2] == codecs.BOM_UTF16_LE:
        file.seek(2)
        return "utf-16-le"
    if start[:2] == codecs.BOM_UTF16_BE:
        file.seek(2)
        return "utf-16-be"
    file.seek(3 if start == codecs.BOM_UTF8 else 0)
    return None


def data_url(path: str, mime: str) -> str:
    """The whole file as a ``data:`` URL."""
    try:
        if os.path.getsize(path) > MAX_ATTACHMENT:
            most = MAX_ATTACHMENT // 1024 // 1024
            raise ToolFailedError(f"{path} is too large to attach: more than {most} MiB", path=path)
        with open(path, "rb") as file:
            data = file.read()
    except OSError as error:
        raise unreadable(path, error) from error
    return f"data:{mime};base64,{base64.b64encode(data).decode()}"


def _sample(path: str) -> bytes:
    try:
        with open(path, "rb") as file:
            return file.read(_SAMPLE)
    except OSError as error:
        raise unreadable(path, error) from error
