"""Text files as they are on disk: what a tool does not mean to change stays as it was, byte for byte."""

from __future__ import annotations

import codecs
import os
import stat
from contextlib import suppress

from msgspec import Struct

from ..errors import ToolFailedError
from .path_access import unreadable

_BOMS = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)


class TextFile(Struct, frozen=True, kw_only=True):
    """The text of a file, and how it is written down."""

    text: str = ""
    bom: bytes = b""
    encoding: str = "utf-8"

    @property
    def ending(self) -> str:
        """How most of its lines end."""
        crlf = self.text.count("\r\n")
        return "\r\n" if crlf and 2 * crlf >= self.text.count("\n") else "\n"

    @property
    def shown(self) -> str:
        """The text for a record or a screen: bytes that are no text in this encoding become U+FFFD."""
        if self.text.isascii():
            return self.text
        return self.text.encode("utf-8", "surrogateescape").decode("utf-8", "replace")

    def adapt(self, text: str) -> str:
        """``text`` with the line ends of this file."""
        unified = text.replace("\r\n", "\n")
        return unified.replace("\n", "\r\n") if self.ending == "\r\n" else unified

    def saying(self, text: str) -> TextFile:
        """The same file with another text."""
        return TextFile(text=text, bom=self.bom, encoding=self.encoding)

    @property
    def data(self) -> bytes:
        """The file's bytes."""
        return self.bom + self.text.encode(self.encoding, _errors(self.encoding))

    def save(self, path: str) -> None:
        """Write it, making the directories it needs. Links, modes and owners stay."""
        data = self.data
        try:
            os.makedirs(os.path.dirname(path) or ".", exist_ok=True)
            with open(path, "wb") as file:
                file.write(data)
        except OSError as error:
            raise ToolFailedError(f"{path} cannot be written: {error.strerror or error}", path=path) from error


def load(path: str) -> TextFile:
    """The file at ``path``. Bytes that are no UTF-8 are carried along, and written back as they were."""
    try:
        mode = os.stat(path).st_mode
        if not stat.S_ISREG(mode):
            what = "a directory, not a file" if stat.S_ISDIR(mode) else "no plain file, and opening it might never end"
            raise ToolFailedError(f"{path} is {what}", path=path)
        with open(path, "rb") as file:
            data = file.read()
    except FileNotFoundError as error:
        raise ToolFailedError(f"File not found: {path}", path=path) from error
    except OSError as error:
        raise unreadable(path, error) from error
    for bom, encoding in _BOMS:
        if data.startswith(bom):
            with suppress(UnicodeDecodeError):  # half a character at the end of UTF-16, which nothing could carry along
                text = data[len(bom) :].decode(encoding, _errors(encoding))
                return TextFile(text=text, bom=bom, encoding=encoding)
    return TextFile(text=data.decode("utf-8", "surrogateescape"))


def look(path: str) -> TextFile | None:
    """The file at ``path``, or ``None`` if there is none."""
    return load(path) if os.path.exists(path) else None


def must_still_be(path: str, before: TextFile | None) -> None:
    """Raise :class:`ToolFailedError` if the file is no longer as it was looked at; a user may think long before
    allowing."""
    if look(path) != before:
        raise ToolFailedError(
            f"{path} was changed by someone else meanwhile. Read it again, then change it.", path=path
        )


def _errors(encoding: str) -> str:
    return "surrogateescape" if encoding == "utf-8" else "surrogatepass"
