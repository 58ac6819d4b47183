"""Trust for MCP servers that a project's configuration defines or changes: they do not start before the user trusts
them.

A local server is a program that would run with the first prompt. A remote server receives what a model sends it, and
what ``{env:...}`` and ``{file:...}`` put into its address and headers. The trust covers the project's settings and the
files of the project that they run: when any of these changes, the server must be trusted again.
"""

from __future__ import annotations

import hashlib
import json
import os
import shlex
from typing import TYPE_CHECKING, Any

from ...config.config import leaf_values
from ...config.trust import UntrustedItem, configured_values, digest, owner_of, why_untrusted
from ...records import as_list
from .transports import working_directory

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from ...config import Config, McpConfig
    from ...config.source import SettingPath

_DECIDING = ("command", "url", "environment", "headers", "oauth", "cwd", "type", "enabled")
"""Settings that decide which program is run or which address is called, and whether."""
_MAX_READ_BYTES = 1 << 28
_SCRIPTS = tuple(".bash .cjs .cts .jar .js .lua .mjs .mts .php .pl .ps1 .py .rb .sh .ts".split())


def servers_needing_trust(config: Config) -> list[UntrustedItem]:
    """Return the servers that need trust. A disabled server needs none."""
    items = (_trust_item(config, name) for name in config.settings.mcp)
    return [item for item in items if item is not None]


def untrusted_reason(config: Config, name: str) -> str:
    """Return why the server ``name`` must not be used; empty if it may."""
    return why_untrusted(config, _trust_item(config, name))


def _trust_item(config: Config, name: str) -> UntrustedItem | None:
    section = config.settings.mcp[name]
    # Where the project or an organisation sets a deciding setting; the items of a list have no owner of their own.
    settings = [path for path, _ in leaf_values(config.document["mcp"][name], ("mcp", name)) if path[2:3]]
    origins = (
        config.origins[path]
        for setting in _DECIDING
        for path in settings
        if path[2] == setting and owner_of(config.origins.get(path), config) in ("project", "organisation")
    )
    origin = next(origins, None) if section.enabled else None
    if origin is None:
        return None
    values = configured_values(config, "mcp", name, files=True)
    deciding = {path: value for path, value in values.items() if path[0] in _DECIDING[:-1]}
    cwd = working_directory(section, config.directory)
    files = [] if section.is_remote else [*_project_files(config, section, cwd)]
    # The same command is another program in another directory, if it names a file there.
    where = f"@{cwd}" if files else ""
    contents = (piece for path, content in files for piece in (os.fsencode(path), content))
    now = digest(json.dumps([*deciding.items()]).encode(), *contents)
    key = f"{origin.source}#mcp.{name}{where}"
    shown = configured_values(config, "mcp", name)
    if section.is_remote:
        what = str(shown.get(("url",), "...")) + _listed("header", "headers", shown)
    else:
        words = as_list(shown.get(("command",))) or ["..."]
        inside = f", in {shown['cwd',]}" if ("cwd",) in shown else ""
        what = shlex.join(map(str, words)) + inside + _listed("variable", "environment", shown)
    return UntrustedItem("MCP server", name, what, ("mcp", name), origin, key, now)


def _project_files(config: Config, section: McpConfig, cwd: str) -> Iterator[tuple[str, bytes]]:
    """Yield the files of the project that a command runs, with their digests: the program, and scripts among its
    arguments."""
    root = config.worktree if config.worktree != os.path.dirname(config.worktree) else config.directory
    for index, word in enumerate(section.command or ()):
        path = os.path.normpath(os.path.join(cwd, word.rpartition("=")[2]))
        is_run = (index == 0 or path.endswith(_SCRIPTS)) and path.startswith(os.path.join(root, ""))
        if is_run and os.path.isfile(path) and os.access(path, os.R_OK):
            yield path, _digest(path)


def _digest(path: str) -> bytes:
    """Return the digest of a program. One that takes long to read is known by its size, time and place on the disk."""
    with open(path, "rb") as file:
        status = os.fstat(file.fileno())
        if status.st_size > _MAX_READ_BYTES:
            return f"{status.st_size} {status.st_mtime_ns} {status.st_ino}".encode()
        return hashlib.file_digest(file, "sha256").digest()


def _listed(kind: str, setting: str, values: Mapping[SettingPath, Any]) -> str:
    names = [str(path[1]) for path in values if path[0] == setting and len(path) > 1]
    return f", with the {kind}{'s' if len(names) > 1 else ''} {', '.join(names)}" if names else ""
