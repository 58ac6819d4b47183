"""Scripts, styles and pictures of the pages, in memory, under an address that changes with their content."""

from __future__ import annotations

import gzip
import re
from functools import cache
from hashlib import blake2b
from importlib.resources import files
from typing import NamedTuple

_PACKAGES = ("opensesh.history.rendering", "opensesh.server.web")
_MEDIA_TYPES = {
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
    ".webmanifest": "application/manifest+json",
}
_IMPORT = re.compile(rb'^import (?:[^"]* from )?"\./(\w+\.js)";', re.MULTILINE)


class StaticFile(NamedTuple):
    """A file and its media type."""

    content: bytes
    compressed: bytes
    """With gzip."""
    media_type: str


@cache
def static_files() -> dict[str, StaticFile]:
    """Return the files of the ``static`` folders, by name."""
    by_name: dict[str, StaticFile] = {}
    for package in _PACKAGES:
        for file in files(package).joinpath("static").iterdir():
            media_type = _MEDIA_TYPES.get("." + file.name.rpartition(".")[2])
            if media_type is not None:
                content = file.read_bytes()
                by_name[file.name] = StaticFile(content, gzip.compress(content, mtime=0), media_type)
    return by_name


@cache
def static_folder() -> str:
    """Return the path under which the files are served: one for all of them, because scripts import each other."""
    digest = blake2b(digest_size=8)
    for name, file in sorted(static_files().items()):
        digest.update(name.encode() + b"\0" + file.content + b"\0")
    return f"/ui/static/{digest.hexdigest()}"


@cache
def imported_scripts(name: str) -> tuple[str, ...]:
    """Return the scripts that a script imports, and that those import. A browser that is given all of them does not
    have to read one to know of the next."""
    imported: dict[str, None] = {}
    waiting = [name]
    while waiting:
        for match in _IMPORT.findall(static_files()[waiting.pop()].content):
            if (script := match.decode()) not in imported:
                imported[script] = None
                waiting.append(script)
    return tuple(imported)
