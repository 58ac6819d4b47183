"""Files of the project: listing, reading, status, searching. Nothing outside the project is shown."""

from __future__ import annotations

import base64
import mimetypes
import os
import re
import subprocess
from contextlib import suppress
from typing import TYPE_CHECKING, Annotated, Any, Literal

from msgspec import Meta, Struct

from ...engine.cancellation import run_in_thread_uncancellable
from ...errors import ToolFailedError
from ...records.view import js_name
from ...safe_git import without_filters
from ...tools.file_search import confirmed, files, grep, spans
from ...tools.real_files import open_file
from ...workspace.git import git_environment
from ..operations import Call, Routes
from ..responses import RequestError

if TYPE_CHECKING:
    from ...project import ProjectLocation
    from ...records import Document
    from ...tools.file_search import Match

routes = Routes()
_HIDDEN = (".git", ".DS_Store")
_MAX_FILE_BYTES = 32 << 20
_MAX_MATCHES = 10
_WHOLE_FILE = "-U1000000"
_NO_NEWLINE = "\\ No newline at end of file"
_GIT_SECONDS = 30.0
_FORGIVING_LENGTH = 3
"""The least length of a query in which one letter may be wrong, so that a typing error still finds the file."""


class FilePath(Struct, frozen=True):
    """A path relative to the directory."""

    path: str


class FileNode(Struct, frozen=True):
    """A file or a folder."""

    name: str
    path: str
    absolute: str
    type: Literal["file", "directory"]
    ignored: bool


class FileContent(Struct, frozen=True, rename=js_name):
    """The content of a file, and its difference from the last commit."""

    type: Literal["text", "binary"]
    content: str
    diff: str | None = None
    patch: dict[str, Any] | None = None
    encoding: Literal["base64"] | None = None
    mime_type: str | None = None


class FileStatus(Struct, frozen=True):
    """A file that differs from the last commit."""

    path: str
    added: int
    removed: int
    status: Literal["added", "deleted", "modified"]


class TextQuery(Struct, frozen=True):
    """A regular expression."""

    pattern: str


class FileQuery(Struct, frozen=True):
    """A part of a path, or letters of it in order."""

    query: str
    dirs: Literal["true", "false"] = "true"
    type: Literal["file", "directory"] | None = None
    limit: Annotated[int, Meta(ge=1, le=200)] = 10


class SymbolQuery(Struct, frozen=True):
    """The name of a symbol."""

    query: str


@routes.get("/file", "file.list", response=list[FileNode])
async def list_folder(call: Call, query: FilePath) -> object:
    """List the files and folders in a folder."""
    return await call.in_thread(lambda engine: _list_folder(engine.location, query.path))


@routes.get("/file/content", "file.read", response=FileContent)
async def read_file(call: Call, query: FilePath) -> object:
    """Read a file."""
    return await call.in_thread(lambda engine: _read_file(engine.location, query.path))


@routes.get("/file/status", "file.status", response=list[FileStatus])
async def file_status(call: Call) -> object:
    """List the files that differ from the last commit."""
    return await call.in_thread(lambda engine: _file_status(engine.location))


@routes.get("/find", "find.text", response=list[dict[str, Any]])
async def find_text(call: Call, query: TextQuery) -> object:
    """Search for a regular expression in the files of the directory; at most ten lines."""
    async with call.engine() as engine:
        directory = engine.location.directory
        try:
            found = (await grep(query.pattern, directory)).matches[:_MAX_MATCHES]
        except ToolFailedError:  # the pattern is not a regular expression, which finds nothing in OpenCode
            return []
        matches = await run_in_thread_uncancellable(confirmed, found, directory, os.path.realpath(directory))
        spans_by_match = await spans(query.pattern, [match.line for match in matches])

        def describe() -> list[Document]:
            return [_match(directory, match, ends) for match, ends in zip(matches, spans_by_match, strict=True)]

        return await run_in_thread_uncancellable(describe)


@routes.get("/find/file", "find.files", response=list[str])
async def find_files(call: Call, query: FileQuery) -> object:
    """Search for files and folders by name."""
    kind = query.type or ("any" if query.dirs == "true" else "file")
    async with call.engine() as engine:
        return await find_paths(engine.location.directory, query.query, kind, query.limit)


@routes.get("/find/symbol", "find.symbols", response=list[dict[str, Any]])
async def find_symbols(call: Call, query: SymbolQuery) -> object:
    """Search for symbols; without language servers there are none."""
    return []


async def find_paths(directory: str, query: str, kind: str, limit: int) -> list[str]:
    """Return the files and folders whose path has the letters of ``query`` in order, best first; folders end in ``/``.

    One letter may be wrong. ``kind`` is ``file``, ``directory`` or ``any``.
    """
    names = await files(directory)

    def search() -> list[str]:
        candidates = names if kind != "directory" else list[str]()
        if kind != "file":
            folders = {name[: at + 1] for name in names for at, letter in enumerate(name) if letter == "/"}
            candidates = [*candidates, *folders]
        ranked = [(rank, name) for name in candidates if (rank := _rank(query.lower(), name.lower())) is not None]
        return [name for _, name in sorted(ranked)[:limit]]

    return await run_in_thread_uncancellable(search)


def inside(location: ProjectLocation, path: str) -> str:
    """Return the real path of ``path``, which must be inside the project.

    An absolute path is taken as relative to the directory, as in OpenCode, unless it is inside the project.
    """
    if not location.contains(os.path.normpath(path)):
        path = path.lstrip("/")
    target = os.path.realpath(os.path.join(location.directory, path)) if "\0" not in path else ""
    if not location.contains(target):
        raise RequestError(403, "ForbiddenError", "the path is outside of the project")
    return target


def _list_folder(location: ProjectLocation, path: str) -> list[Document]:
    folder = inside(location, path)
    try:
        entries = [entry for entry in os.scandir(folder) if entry.name not in _HIDDEN]
    except OSError:
        return []  # as in OpenCode
    paths = [os.path.relpath(entry.path, location.directory) for entry in entries]
    ignored: set[str] = set()
    if location.vcs == "git" and paths:
        ignored |= set(_git(location, "check-ignore", "-z", "--stdin", stdin="\0".join(paths)).split("\0"))
    nodes: list[Document] = [
        {
            "name": entry.name,
            "path": relative,
            "absolute": os.path.join(location.directory, relative),
            "type": "directory" if entry.is_dir() else "file",
            "ignored": relative in ignored,
        }
        for entry, relative in zip(entries, paths, strict=True)
    ]
    return sorted(nodes, key=lambda node: (node["type"] != "directory", node["name"].casefold()))


def _read_file(location: ProjectLocation, path: str) -> Document:
    target = inside(location, path)
    mime = mimetypes.guess_type(target)[0] or ""
    try:
        if not os.path.isfile(target):
            return {"type": "text", "content": ""}
        if os.path.getsize(target) > _MAX_FILE_BYTES:
            raise RequestError(413, "BadRequest", f"{path} has more than {_MAX_FILE_BYTES:,} bytes")
        with open_file(target) as file:
            data = file.read()
    except (OSError, ToolFailedError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is being replaced"
        raise RequestError(403, "ForbiddenError", f"{path}: {reason}") from None
    if mime.startswith("image/"):
        content = base64.b64encode(data).decode()
        return {"type": "text", "content": content, "mimeType": mime, "encoding": "base64"}
    try:
        text = data.decode()
    except UnicodeDecodeError:
        text = None
    if text is None or "\0" in text:
        return {"type": "binary", "content": ""}
    changed = _changes(location, target) if location.vcs == "git" else {}
    return {"type": "text", "content": text.strip(), **changed}


def _changes(location: ProjectLocation, target: str) -> Document:
    """Return how a file differs from the last commit: as text, and by hunks, with the whole file as context."""
    output = _git(location, "diff", "--no-color", _WHOLE_FILE, "HEAD", "--", target)
    start = output.find("@@ ")
    if start < 0:
        return {}
    name = os.path.relpath(target, location.directory)
    hunks: list[Document] = []
    for line in output[start:].splitlines():
        position = re.match(r"@@ -(\d+)(?:,(\d+))? \+(\d+)(?:,(\d+))? @@", line)
        if position:
            old_start, old_lines, new_start, new_lines = (int(number or 1) for number in position.groups())
            hunk: Document = {"oldStart": old_start, "oldLines": old_lines, "newStart": new_start}
            hunks.append(hunk | {"newLines": new_lines, "lines": list[str]()})
        else:
            hunks[-1]["lines"].append(line)
    lines = hunks[-1]["lines"]
    last = max((number for number, line in enumerate(lines) if line[:1] in (" ", "+")), default=len(lines))
    if lines[last + 1 : last + 2] != [_NO_NEWLINE]:  # the content is sent without the newline at its end
        lines.insert(last + 1, _NO_NEWLINE)
    patch = {"oldFileName": name, "newFileName": name, "oldHeader": "old", "newHeader": "new", "hunks": hunks}
    return {"patch": patch, "diff": output}


def _file_status(location: ProjectLocation) -> list[Document]:
    if location.vcs != "git":
        return []
    listed: list[Document] = []
    for line in _git_names(location, "diff", "--no-renames", "--numstat", "-z", "HEAD"):
        added, removed, name = line.split("\t", 2)
        counts = {"added": _count(added), "removed": _count(removed)}
        listed.append({"path": _shown(location, name), **counts, "status": "modified"})
    for name in _git_names(location, "ls-files", "--others", "--exclude-standard", "--full-name", "-z"):
        with suppress(OSError, ToolFailedError):  # links to nowhere, to folders and to pipes are not listed
            added_lines = _line_count(location, name)
            listed.append({"path": _shown(location, name), "added": added_lines, "removed": 0, "status": "added"})
    # A deleted file is in the list twice, as in OpenCode.
    deleted = _git_names(location, "diff", "--no-renames", "--name-only", "--diff-filter=D", "-z", "HEAD")
    gone: Document = {"added": 0, "removed": 0, "status": "deleted"}
    return listed + [{"path": _shown(location, name), **gone} for name in deleted]


def changed_files(location: ProjectLocation) -> set[str]:
    """Return the files of the directory that are modified or untracked."""
    if location.vcs != "git":
        return set()
    return set(_git_names(location, "ls-files", "--modified", "--others", "--exclude-standard", "-z"))


def _git_names(location: ProjectLocation, command: str, *arguments: str) -> list[str]:
    """Return what a git command prints, separated by null characters."""
    return list(filter(None, _git(location, command, *arguments).split("\0")))


def _shown(location: ProjectLocation, name: str) -> str:
    return os.path.relpath(os.path.join(location.sandbox, name), location.directory)


def _count(number: str) -> int:
    return int(number) if number.isdecimal() else 0


def _line_count(location: ProjectLocation, name: str) -> int:
    """Return the lines of a file; 1 for a link that leads out of the project."""
    real = os.path.realpath(os.path.join(location.sandbox, name))
    with open_file(real) as file:
        data = file.read(_MAX_FILE_BYTES) if location.contains(real) else b""
    return data.count(b"\n") + 1  # as OpenCode counts, which splits at newlines


def _git(location: ProjectLocation, command: str, *arguments: str, stdin: str = "") -> str:
    environment = git_environment(isolated=False)
    options: tuple[str, ...] = ()
    if command == "check-ignore":  # knows no literal pathspecs, and needs none: its paths are on its standard input
        environment.pop("GIT_LITERAL_PATHSPECS", None)
    try:
        if command == "diff":  # starts programs by default, in submodules those of their own configuration
            environment = without_filters(location.directory, environment)
            options = ("--no-ext-diff", "--no-textconv", "--ignore-submodules=dirty")
        done = subprocess.run(
            ["git", "-c", "core.fsmonitor=false", "-c", "core.quotepath=false", command, *options, *arguments],
            cwd=location.directory,
            env=environment,
            input=stdin.encode(errors="surrogateescape"),
            capture_output=True,
            check=False,
            timeout=_GIT_SECONDS,
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return os.fsdecode(done.stdout).encode(errors="replace").decode(errors="replace")


def _match(directory: str, match: Match, ends: list[tuple[int, int]]) -> Document:
    offset = 0
    absolute = os.path.join(directory, match.path)
    try:
        with open_file(os.path.realpath(absolute)) as file:
            for _ in range(match.number - 1):
                offset += len(file.readline())
    except (OSError, ToolFailedError):
        offset = 0
    line = match.line.encode(errors="replace")
    submatches = [
        {"match": {"text": line[start:end].decode(errors="replace")}, "start": start, "end": end} for start, end in ends
    ]
    return {
        "path": {"text": os.path.relpath(absolute, directory)},
        "lines": {"text": f"{match.line}\n"},
        "line_number": match.number,
        "absolute_offset": offset,
        "submatches": submatches,
    }


def _rank(query: str, name: str) -> tuple[int, int, int] | None:
    """Return a sort key: a name that begins with the query first, then one that contains it, then its letters."""
    base = name.rstrip("/").rpartition("/")[2]
    if base.startswith(query):
        return 0, len(name), 0
    if query in base:
        return 1, base.index(query), len(name)
    if query in name:
        return 2, name.index(query), len(name)
    gaps = _gaps(query, name)
    if gaps is not None:
        return 3, gaps, len(name)
    if not _FORGIVING_LENGTH <= len(query) <= len(name) + 1:
        return None
    forgiven = [_gaps(query[:at] + query[at + 1 :], name) for at in range(len(query))]
    return min(((4, gaps, len(name)) for gaps in forgiven if gaps is not None), default=None)


def _gaps(query: str, name: str) -> int | None:
    """Return how many letters of the name are between those of the query; ``None`` if these are not in order."""
    position, gaps = -1, 0
    for letter in query:
        following = name.find(letter, position + 1)
        if following < 0:
            return None
        gaps += following - position - 1
        position = following
    return gaps
