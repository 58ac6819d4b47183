"""File contents: text with its encoding and line endings, images and PDFs, and binary data.

Tools keep every byte that they do not mean to change: byte order mark, encoding, line endings, invalid UTF-8.
"""

from __future__ import annotations

import base64
import codecs
import os
from contextlib import suppress
from typing import IO

from msgspec import Struct

from ..errors import ToolFailedError
from . import real_files
from .path_access import unreadable

PDF = "application/pdf"
MAX_ATTACHMENT_BYTES = 20 * 1024 * 1024
MAX_TEXT_BYTES = 64 * 1024 * 1024
"""Larger files are not changed: a repository of a few kilobytes can contain one that fills the memory."""
_SAMPLE_BYTES = 4096

_BOMS = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)
_SIGNATURES = (
    (b"\x89PNG\r\n\x1a\n", "image/png"),
    (b"\xff\xd8\xff", "image/jpeg"),
    (b"GIF87a", "image/gif"),
    (b"GIF89a", "image/gif"),
    (b"BM", "image/bmp"),
    (b"%PDF-", PDF),
)
_ATTACHABLE_SUFFIXES = {
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
_BINARY_SUFFIXES = frozenset(
    """.7z .a .bin .bz2 .class .com .dat .deb .dll .dmg .doc .docx .dylib .eot .exe .gz .iso .jar .lib .lz4 .mov .mp3
    .mp4 .o .obj .odp .ods .odt .otf .parquet .pkl .ppt .pptx .pyc .pyo .rar .rpm .so .sqlite .tar .tgz .ttf .war .wasm
    .whl .woff .woff2 .xls .xlsx .xz .zip .zst""".split()
)
_TEXT_CONTROLS = b"\t\n\v\f\r\x1b\b"


class TextFile(Struct, frozen=True, kw_only=True):
    """The text of a file, and how it is encoded."""

    text: str = ""
    bom: bytes = b""
    encoding: str = "utf-8"

    @property
    def line_ending(self) -> str:
        """The ending of most lines."""
        crlf = self.text.count("\r\n")
        return "\r\n" if crlf and 2 * crlf >= self.text.count("\n") else "\n"

    @property
    def shown(self) -> str:
        """The text for records and screens: invalid bytes become U+FFFD."""
        if self.text.isascii():
            return self.text
        return self.text.encode("utf-8", "surrogateescape").decode("utf-8", "replace")

    def with_line_endings(self, text: str) -> str:
        """Return ``text`` with the line endings of this file."""
        unified = text.replace("\r\n", "\n")
        return unified.replace("\n", "\r\n") if self.line_ending == "\r\n" else unified

    def with_text(self, text: str) -> TextFile:
        """Return the same file with another text."""
        return TextFile(text=text, bom=self.bom, encoding=self.encoding)

    @property
    def data(self) -> bytes:
        """The file's bytes."""
        return self.bom + self.text.encode(self.encoding, _error_handler(self.encoding))

    def save(self, path: str) -> None:
        """Write the file at a real path, with the directories it needs. Hard links, modes and owners are kept."""
        try:
            real_files.write_file(path, self.data)
        except OSError as error:
            raise ToolFailedError(f"{path} cannot be written: {error.strerror or error}", path=path) from error


def load_text(path: str) -> TextFile:
    """Read a text file at a real path. Bytes that are not valid UTF-8 are kept, and written back unchanged."""
    try:
        with real_files.open_file(path) as file:
            data = file.read(MAX_TEXT_BYTES + 1)
    except FileNotFoundError as error:
        raise ToolFailedError(f"File not found: {path}", path=path) from error
    except OSError as error:
        raise unreadable(path, error) from error
    if len(data) > MAX_TEXT_BYTES:
        raise ToolFailedError(f"{path} is too large to change: more than {MAX_TEXT_BYTES >> 20} MiB", path=path)
    for bom, encoding in _BOMS:
        if data.startswith(bom):
            with suppress(UnicodeDecodeError):  # half a UTF-16 character at the end, which could not be written back
                text = data[len(bom) :].decode(encoding, _error_handler(encoding))
                return TextFile(text=text, bom=bom, encoding=encoding)
    return TextFile(text=data.decode("utf-8", "surrogateescape"))


def load_text_if_exists(path: str) -> TextFile | None:
    """Read a text file at a real path; ``None`` if it does not exist."""
    return load_text(path) if os.path.lexists(path) else None


def ensure_unchanged(path: str, before: TextFile | None) -> None:
    """Raise :class:`ToolFailedError` if the file has changed: the user may have taken long to allow the edit."""
    if load_text_if_exists(path) != before:
        raise ToolFailedError(f"{path} has changed in the meantime. Read it again, then change it.", path=path)


def _error_handler(encoding: str) -> str:
    return "surrogateescape" if encoding == "utf-8" else "surrogatepass"


def attachment_type(path: str) -> str | None:
    """Return the MIME type of an image or PDF, by its first bytes, else by its name; ``None`` for other files."""
    by_name = _ATTACHABLE_SUFFIXES.get(os.path.splitext(path)[1].lower())
    sample = _sample(path)
    if by_name is None or not sample:
        return None
    if sample[:4] == b"RIFF" and sample[8:12] == b"WEBP":
        return "image/webp"
    return next((mime for start, mime in _SIGNATURES if sample.startswith(start)), by_name)


def is_binary(path: str) -> bool:
    """Return whether the file is not text: by its name, a NUL, or too many control characters at its beginning."""
    if os.path.splitext(path)[1].lower() in _BINARY_SUFFIXES:
        return True
    sample = _sample(path)
    if sample.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return False
    if b"\0" in sample:
        return True
    controls = sum(byte < 32 and byte not in _TEXT_CONTROLS for byte in sample)
    return controls > 0.3 * len(sample)


def skip_bom(file: IO[bytes]) -> str | None:
    """Skip the byte order mark and return the encoding if it is UTF-16; ``None`` for all other text."""
    start = file.read(3)
    for bom, encoding in _BOMS:
        if start.startswith(bom):
            file.seek(len(bom))
            return None if encoding == "utf-8" else encoding
    file.seek(0)
    return None


def data_url(path: str, mime: str) -> str:
    """Return the whole file as a ``data:`` URL."""
    try:
        if os.path.getsize(path) > MAX_ATTACHMENT_BYTES:
            limit = MAX_ATTACHMENT_BYTES // 1024 // 1024
            raise ToolFailedError(f"{path} is too large to attach: more than {limit} MiB", path=path)
        with real_files.open_file(path) as file:
            data = file.read(MAX_ATTACHMENT_BYTES + 1)
    except OSError as error:
        raise unreadable(path, error) from error
    return f"data:{mime};base64,{base64.b64encode(data).decode()}"


def _sample(path: str) -> bytes:
    try:
        with real_files.open_file(path) as file:
            return file.read(_SAMPLE_BYTES)
    except OSError as error:
        raise unreadable(path, error) from error
