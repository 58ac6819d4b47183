"""Instruction files such as ``AGENTS.md``.

The system prompt includes the project's own files (``AGENTS.md``, ``CLAUDE.md`` or ``CONTEXT.md``: the first name that
exists), one global file, and those of ``instructions`` in the configuration. Files in folders below the directory are
added when a file near them is read.

The same files give the same text, byte for byte, so that providers can cache it.
"""

from __future__ import annotations

import logging
import os
from typing import TYPE_CHECKING

from msgspec import Struct

from ..storage.disk import read_file
from . import globs
from .source import TIMEOUT_SECONDS, upward
from .trust import owner_of

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from .config import Config, Origin
    from .source import Fetch

log = logging.getLogger("opensesh.config")
NAMES = ("AGENTS.md", "CLAUDE.md", "CONTEXT.md")
MAX_FILE_BYTES = 1 << 20
MAX_TOTAL_CHARACTERS = 1 << 22
"""Far more than any model reads: a larger file is a mistake, or an attack on the memory."""
_URL_SCHEMES = ("https://", "http://")


class Instruction(Struct, frozen=True):
    """The text of an instruction file, and its source."""

    source: str
    """An absolute path, or a URL."""
    content: str

    @property
    def text(self) -> str:
        """The text as it is included in the prompt."""
        return f"Instructions from: {self.source}\n{self.content}"


def system_paths(config: Config) -> list[str]:
    """Return the instruction files of the system prompt, each once, in order."""
    flags, folders = config.flags, config.folders
    project = list(config.project_folders.used)
    named = [folders.resolve(flags.config_dir, config.directory)] if flags.config_dir else []
    paths: list[str] = []
    for name in NAMES:
        paths = [path for folder in project if _is_own_file(config, path := os.path.join(folder, name))]
        if paths:
            break
    candidates = [os.path.join(folder, NAMES[0]) for folder in (*named, folders.config)]
    if not flags.disable_claude_code_prompt:
        candidates.append(os.path.join(folders.home, ".claude", "CLAUDE.md"))
    paths += list(filter(os.path.isfile, candidates))[:1]
    if config.settings.instructions:
        paths += _configured(config, project or named)
    return list(dict.fromkeys(map(os.path.abspath, paths)))


def system_instructions(config: Config, fetch: Fetch | None = None) -> list[Instruction]:
    """Return the instructions of the system prompt: files, then URLs.

    URLs that the user or the user's organisation names are fetched if ``fetch`` is given, concurrently and for at most
    five seconds; those that fail are left out with a warning, empty and unreadable files without one.
    """
    instructions: list[Instruction] = []
    size = 0
    for path in system_paths(config):
        instruction = _read(path)
        if instruction is None or not instruction.content:
            continue
        size += len(instruction.content)
        if size > MAX_TOTAL_CHARACTERS:
            log.warning("instructions: %s and what follows is left out: it is too much altogether", path)
            break
        instructions.append(instruction)
    if fetch is not None and config.settings.instructions and (urls := own_urls(config)):
        from concurrent.futures import ThreadPoolExecutor

        def fetch_one(url: str) -> Instruction | None:
            try:
                return Instruction(url, fetch(url, timeout=TIMEOUT_SECONDS).decode(errors="replace"))
            except FileNotFoundError:
                return None  # only what was fetched is read; that it could not be is logged then
            except OSError as error:
                log.warning("the instructions at %s are left out: %s", url, error)
                return None

        with ThreadPoolExecutor(min(8, len(urls))) as pool:
            instructions += [fetched for fetched in pool.map(fetch_one, urls) if fetched and fetched.content]
    return instructions


def own_urls(config: Config) -> list[str]:
    """Return the URLs of instructions that the user, or an organisation of the user's, names."""
    named = [entry for entry in config.settings.instructions if entry.startswith(_URL_SCHEMES)]
    foreign = project_urls(config) if named else ()
    return [url for url in dict.fromkeys(named) if url not in foreign]


def project_urls(config: Config) -> dict[str, Origin]:
    """Return the URLs of instructions that only the project names, which are not fetched, and where it names them."""
    origins: dict[str, list[Origin | None]] = {}
    for number, entry in enumerate(config.settings.instructions):
        if entry.startswith(_URL_SCHEMES):
            origins.setdefault(entry, []).append(config.origins.get(("instructions", number)))
    return {
        url: named[0]
        for url, named in origins.items()
        if named[0] is not None and all(owner_of(origin, config) == "project" for origin in named)
    }


def nearby(config: Config, file: str, known: Collection[str]) -> list[Instruction]:
    """Return the instructions in the folders from ``file`` up to the directory.

    At most one for each folder, the innermost first. ``known`` are paths that the model has already seen: those of
    :func:`system_paths`, those added by earlier reads in this session, those claimed in this step.
    """
    instructions: list[Instruction] = []
    file = os.path.abspath(file)
    for folder in upward(os.path.dirname(file), config.directory):
        if folder == config.directory or not folder.startswith(config.directory.rstrip(os.sep) + os.sep):
            break
        path = next((path for name in NAMES if _is_own_file(config, path := os.path.join(folder, name))), None)
        instruction = _read(path) if path and path != file and path not in known else None
        if instruction and instruction.content:
            instructions.append(instruction)
    return instructions


def _configured(config: Config, bases: list[str]) -> Iterator[str]:
    """Yield the files of ``instructions``; relative entries are searched for in each of ``bases``."""
    search = globs.Search()
    for at, entry in enumerate(config.settings.instructions):
        pattern = config.folders.expand(entry)
        if entry.startswith(_URL_SCHEMES):
            continue
        # A project's own settings do not lead out of it: the text goes to a model.
        origin = config.origin(("instructions", at))
        foreign = origin is not None and owner_of(origin, config) == "project"
        within = config.project_folders.root(origin.source) if origin is not None and foreign else ""
        if os.path.isabs(pattern):
            yield from search.find(os.path.dirname(pattern), os.path.basename(pattern), within=within)
            continue
        if not bases:
            log.warning("instructions: %s is ignored, because the project's configuration is disabled", entry)
        for folder in bases:
            yield from search.find(folder, pattern, within=within)
    for path, reason in search.problems.items():
        log.warning("instructions: %s: %s", path, reason)


def _read(path: str) -> Instruction | None:
    try:
        content = read_file(path, limit=MAX_FILE_BYTES)
        return Instruction(path, content.decode("utf-8-sig", errors="replace"))
    except OSError as error:
        log.warning("instructions: %s cannot be read: %s", path, error.strerror)
        return None


def _is_own_file(config: Config, path: str) -> bool:
    """Return whether an instruction file of the project exists, and is not a link out of the project."""
    if not os.path.isfile(path):
        return False
    root, real = config.project_folders.root(path), os.path.realpath(path)
    if os.path.commonpath((root, real)) == root:
        return True
    log.warning("instructions: %s is left out: it leads to %s, which is not part of the project", path, real)
    return False
