r"""Finding files and lines in them, by ripgrep if there is one, else by git, else by walking.

All three pass over what the repository ignores, over ``.git`` and over symbolic links, and give the same answers. Only
``.ignore`` files, which are ripgrep's own, need ripgrep, and so do the few things that its regular expressions have and
Python's have not, such as ``\p{Greek}``. What Python's have and ripgrep's have not is left to Python.
"""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import stat
import subprocess
import sys
from typing import TYPE_CHECKING, NamedTuple

from ..config import globs
from ..errors import ToolFailedError
from . import grep_fallback as scan
from .ripgrep import ripgrep

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

MOST_MATCHES = 10_000
_MOST_OUTPUT = 32 * 1024 * 1024
_PATIENCE = 60.0
_MISLEADING = frozenset(("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_PREFIX", "RIPGREP_CONFIG_PATH"))
"""Variables that would make git or ripgrep look elsewhere, or otherwise, than they are told to."""


_NAMED_GROUP = re.compile(r"\(\?<(?=[A-Za-z_])")


class Match(NamedTuple):
    """A line that fits."""

    path: str
    number: int
    line: str


class SearchMatches(NamedTuple):
    """Matches, and whether there are more."""

    matches: list[Match]
    complete: bool
    unread: int = 0
    """How many files were left out because they may not be read."""


def _all_of_them(name: str) -> bool:
    return True


async def files(directory: str) -> list[str]:
    """The files below ``directory``, as paths relative to it, with ``/``; in no order."""
    rg = ripgrep()
    if rg:
        listed = await _lines([rg, "--files", "--hidden", "--null", "--no-messages", "--glob=!**/.git"], directory)
        return [name.replace(os.sep, "/") for name in listed]
    tracked = await _tracked(directory)
    if tracked is None:
        return await asyncio.to_thread(_walked, directory)
    regular, nested = await asyncio.to_thread(_sorted_out, directory, tracked)
    for repository in nested:
        below = await files(os.path.join(directory, repository))
        regular += [f"{repository}/{name}" for name in below]
    return regular


async def grep(
    pattern: str, directory: str, include: str | None = None, readable: Callable[[str], bool] = _all_of_them
) -> SearchMatches:
    """The lines below ``directory`` (or in the file of that name) that match a regular expression.

    Files that are not ``readable``, by their path relative to ``directory``, are counted, whether or not they have such
    a line: who may not read a file is not told what is in it.
    """

    def fits(name: str) -> bool:
        return include is None or globs.matches(include, name)

    rg = ripgrep()
    if os.path.isfile(directory):
        found = await _with_ripgrep(rg, pattern, directory) if rg else None
        return found or await _in_files(pattern, directory, [directory])
    found = (
        await _with_ripgrep(rg, pattern, directory, include, lambda name: fits(name) and readable(name)) if rg else None
    )
    listed = [name for name in await files(directory) if fits(name)]
    wanted = await asyncio.to_thread(lambda: [name for name in listed if readable(name)])
    if found is None:
        found = await _in_files(pattern, directory, [os.path.join(directory, name) for name in sorted(wanted)])
    return found._replace(unread=len(listed) - len(wanted))


def newest_first(paths: Iterable[str]) -> list[str]:
    """By the time of their last change; those that are gone last."""
    return sorted(paths, key=_age)


def _age(path: str) -> tuple[float, str]:
    try:
        return -os.stat(path).st_mtime, path
    except OSError:
        return 0.0, path


async def _with_ripgrep(
    rg: str, pattern: str, directory: str, include: str | None = None, wants: Callable[[str], bool] = _all_of_them
) -> SearchMatches | None:
    """``None`` if it refuses to: what looks around or back is left to Python."""
    options = [
        "--line-number",
        "--with-filename",
        "--null",
        "--hidden",
        "--no-messages",
        "--no-heading",
        "--color=never",
        "--crlf",
    ]
    options.append("--glob=!**/.git")
    if include and "/" not in include:
        # As a type, not as a glob: a glob would bring back what the repository ignores.
        options += [f"--type-add=wanted:{include}", "--type=wanted"]
    # Older ones know a named group only by the longer spelling.
    spelled = _NAMED_GROUP.sub("(?P<", pattern)
    run = await _run([rg, *options, "--regexp", spelled, "--", directory], os.path.dirname(directory))
    if run.exit_code == 2 and not run.output:
        return None
    return _parse(run, directory, wants)


async def _in_files(pattern: str, directory: str, names: list[str]) -> SearchMatches:
    given = b"\0".join(os.fsencode(name) for name in names)
    run = await _run([sys.executable, "-I", scan.__file__, pattern], os.path.dirname(scan.__file__), given)
    if run.exit_code == 2:
        raise _bad_pattern(pattern, run.errors)
    return _parse(run, directory)


def _bad_pattern(pattern: str, errors: bytes) -> ToolFailedError:
    said = errors.decode("utf-8", "replace").strip()[-500:]
    return ToolFailedError(f"{pattern!r} is no regular expression that can be searched for: {said}")


def _parse(run: _Ran, directory: str, wants: Callable[[str], bool] = _all_of_them) -> SearchMatches:
    found: list[Match] = []
    wanted: dict[bytes, bool] = {}
    for row in run.output.split(b"\n"):
        name, nul, rest = row.partition(b"\0")
        number, colon, line = rest.partition(b":")
        if not nul or not colon or not number.isdigit():
            continue
        if name not in wanted:
            relative = os.path.relpath(os.fsdecode(name), directory).replace(os.sep, "/")
            wanted[name] = wants(relative)
        if not wanted[name]:
            continue
        if len(found) == MOST_MATCHES:
            return SearchMatches(found, complete=False)
        found.append(Match(os.fsdecode(name), int(number), line.decode("utf-8", "replace").rstrip("\r")))
    return SearchMatches(found, run.complete)


async def _tracked(directory: str) -> list[str] | None:
    """What git knows and does not ignore below ``directory``; ``None`` without a repository, or without git."""
    git = shutil.which("git")
    if not git:
        return None
    # A monitor is a program that the repository's own configuration may name.
    listing = [git, "-c", "core.fsmonitor=false", "-c", "core.quotepath=false", "ls-files", "-z", "--exclude-standard"]
    known = await _run([*listing, "--cached", "--others"], directory)
    if known.exit_code != 0:
        return None
    # What is ignored and tracked all the same: ripgrep, which does not ask git, leaves it out.
    ignored = set(await _lines([*listing, "--cached", "--ignored"], directory))
    names = [os.fsdecode(name) for name in known.output.split(b"\0") if name]
    return [name for name in dict.fromkeys(names) if name not in ignored]


def _sorted_out(directory: str, names: list[str]) -> tuple[list[str], list[str]]:
    """The files among what git lists, and the repositories within the repository."""
    modes = {name.rstrip("/"): _mode(os.path.join(directory, name)) for name in names}
    regular = [name for name, mode in modes.items() if stat.S_ISREG(mode)]
    return regular, [name for name, mode in modes.items() if stat.S_ISDIR(mode)]


def _mode(path: str) -> int:
    try:
        return os.lstat(path.rstrip("/")).st_mode
    except OSError:
        return 0  # tracked, but gone


def _walked(directory: str) -> list[str]:
    found: list[str] = []
    for parent, directories, names in os.walk(directory):
        directories[:] = sorted(name for name in directories if name != ".git")
        for name in names:
            path = os.path.join(parent, name)
            if name != ".git" and stat.S_ISREG(_mode(path)):
                found.append(os.path.relpath(path, directory).replace(os.sep, "/"))
    return found


async def _lines(arguments: Sequence[str], directory: str) -> list[str]:
    run = await _run(arguments, directory)
    return [os.fsdecode(name) for name in run.output.split(b"\0") if name]


class _Ran(NamedTuple):
    exit_code: int | None
    output: bytes
    errors: bytes
    complete: bool


async def _run(arguments: Sequence[str], directory: str, given: bytes = b"") -> _Ran:
    """Run a program that only reads: to its end, or to the end of our patience and room."""
    environment = {name: value for name, value in os.environ.items() if name not in _MISLEADING}
    program = await asyncio.create_subprocess_exec(
        *arguments,
        cwd=directory,
        env=environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    stdin, stdout, stderr = program.stdin, program.stdout, program.stderr
    try:
        async with asyncio.timeout(_PATIENCE), asyncio.TaskGroup() as group:
            errors = group.create_task(_all(stderr))
            group.create_task(_give(stdin, given))
            output, complete = await _take(stdout)
            if not complete:
                program.kill()
        await program.wait()
    except TimeoutError:
        raise ToolFailedError(f"The search took longer than {_PATIENCE:.0f} s; look in fewer places") from None
    finally:
        if program.returncode is None:
            program.kill()
            await program.wait()
    return _Ran(program.returncode, output, errors.result(), complete)


async def _give(pipe: asyncio.StreamWriter | None, data: bytes) -> None:
    if pipe is None:
        return
    try:
        pipe.write(data)
        await pipe.drain()
        pipe.close()
        await pipe.wait_closed()
    except (BrokenPipeError, ConnectionResetError):
        return  # it has read enough


async def _all(pipe: asyncio.StreamReader | None) -> bytes:
    return b"" if pipe is None else await pipe.read()


async def _take(pipe: asyncio.StreamReader | None) -> tuple[bytes, bool]:
    """The output, and whether it is all."""
    chunks: list[bytes] = []
    size = 0
    while pipe is not None and (chunk := await pipe.read(1 << 16)):
        chunks.append(chunk)
        size += len(chunk)
        if size > _MOST_OUTPUT:
            return b"".join(chunks), False
    return b"".join(chunks), True
