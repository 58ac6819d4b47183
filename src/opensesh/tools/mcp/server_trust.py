"""Servers that a project's configuration names, or has a say in: they are neither started nor asked before the user has
trusted them.

A local one is a program that would run with the first prompt. A remote one gets what a model tells it, and what
``{env:...}`` and ``{file:...}`` put into its address and headers. What the project says is what is trusted, and the
files of the project's that are run: when any of it changes, the server waits until it is trusted again.
"""

from __future__ import annotations

import hashlib
import json
import os
import shlex
import stat
from typing import TYPE_CHECKING, Any

from ...config.trust import UntrustedItem, configured_values, digest, owner_of, why_untrusted
from ...records import as_list
from .transports import is_remote, working_directory

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from ...config import Config, McpConfig, Origin
    from ...config.source import SettingPath

_DECIDING = ("command", "url", "environment", "headers", "cwd", "type", "enabled")
"""Settings that decide what is run or asked, and whether it is."""
_OTHERS = ("project", "organisation")
_SCRIPTS = tuple(".bash .cjs .cts .jar .js .lua .mjs .mts .php .pl .ps1 .py .rb .sh .ts".split())


def servers_needing_trust(config: Config) -> list[UntrustedItem]:
    """The servers that need trust. One that is switched off needs none."""
    found = (_foreign(config, name) for name in config.settings.mcp)
    return [each for each in found if each is not None]


def untrusted_reason(config: Config, name: str) -> str:
    """Why the server ``name`` must not be used, in words; nothing if it may."""
    return why_untrusted(config, _foreign(config, name))


def _foreign(config: Config, name: str) -> UntrustedItem | None:
    section = config.settings.mcp[name]
    origin = next(_projects(config, name), None) if section.enabled else None
    if origin is None:
        return None
    every = configured_values(config, "mcp", name, files=True)
    said = {path: value for path, value in every.items() if path[0] in _DECIDING[:-1]}
    place = working_directory(section, config.directory)
    files = [] if is_remote(section) else [*_files(config, section, place)]
    # The same words are another program elsewhere, if they name a file that lies there.
    where = f"@{place}" if files else ""
    contents = (piece for path, content in files for piece in (os.fsencode(path), content))
    now = digest(json.dumps([*said.items()]).encode(), *contents)
    key = f"{origin.source}#mcp.{name}{where}"
    what = _what(configured_values(config, "mcp", name), section)
    return UntrustedItem("MCP server", name, what, ("mcp", name), origin, key, now)


def _projects(config: Config, name: str) -> Iterator[Origin]:
    """Where the project has its say, or an organisation."""
    for setting in _DECIDING:
        for path, origin in config.origins.items():
            is_item = isinstance(path[-1], int)
            if path[:3] == ("mcp", name, setting) and not is_item and owner_of(origin, config) in _OTHERS:
                yield origin


def _files(config: Config, section: McpConfig, place: str) -> Iterator[tuple[str, bytes]]:
    """The files of the project's that a command runs, with their digests: the program itself, and scripts among its
    arguments."""
    top = config.worktree if config.worktree != os.path.dirname(config.worktree) else config.directory
    for at, word in enumerate(section.command or ()):
        path = os.path.normpath(os.path.join(place, word.rpartition("=")[2]))
        if (at == 0 or path.endswith(_SCRIPTS)) and path.startswith(os.path.join(top, "")) and _is_file(path):
            with open(path, "rb") as file:
                yield path, hashlib.file_digest(file, "sha256").digest()


def _is_file(path: str) -> bool:
    try:
        return stat.S_ISREG(os.stat(path).st_mode) and os.access(path, os.R_OK)
    except (OSError, ValueError):
        return False


def _what(said: Mapping[SettingPath, Any], section: McpConfig) -> str:
    if is_remote(section):
        return str(said.get(("url",), "...")) + _with("header", "headers", said)
    words = as_list(said.get(("command",))) or ["..."]
    inside = f", in {said['cwd',]}" if ("cwd",) in said else ""
    return shlex.join(map(str, words)) + inside + _with("variable", "environment", said)


def _with(kind: str, setting: str, said: Mapping[SettingPath, Any]) -> str:
    names = [str(path[1]) for path in said if path[0] == setting and len(path) > 1]
    return f", with the {kind}{'s' if len(names) > 1 else ''} {', '.join(names)}" if names else ""
