"""Servers that a project's configuration names, or has a say in: they are neither started nor asked before the user has
trusted them.

A local one is a program that would run with the first prompt. A remote one gets what a model tells it, and what
``{env:...}`` and ``{file:...}`` put into its address and headers. What the project says is what is trusted, and the
files of the project's that are run: when any of it changes, the server waits until it is trusted again. A variable of
the user's that fills a placeholder may change; the placeholder may not.
"""

from __future__ import annotations

import hashlib
import json
import os
import shlex
import stat
from typing import TYPE_CHECKING, Any, NamedTuple

from ...config.ownership import whose
from ...config.replacing import values
from ...config.trust import Trust, digest
from ...records import as_list
from .wires import is_remote, working_directory

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from ...config import Config, McpConfig, Origin

    Path = tuple[str | int, ...]

_DECIDING = ("command", "url", "environment", "headers", "cwd", "type", "enabled")
"""Settings that decide what is run or asked, and whether it is."""
_SCRIPTS = tuple(".bash .cjs .cts .jar .js .lua .mjs .mts .php .pl .ps1 .py .rb .sh .ts".split())


class Foreign(NamedTuple):
    """A server that needs the user's trust."""

    name: str
    what: str
    """The command line, or the address; a secret that would be filled in is not in it."""
    named_by: Origin
    key: str
    """What trust in it is kept under."""
    digest: str
    """What stands for it as it is now."""


def foreign(config: Config) -> list[Foreign]:
    """The servers that need trust. One that is switched off needs none."""
    found = (_foreign(config, name) for name in config.settings.mcp)
    return [each for each in found if each is not None]


def untrusted(config: Config) -> list[tuple[Foreign, str]]:
    """Those of them that nobody has trusted as they are, each with why it is not used."""
    return [(each, why) for each in foreign(config) if (why := _doubt(config, each))]


def doubt(config: Config, name: str) -> str:
    """Why the server ``name`` must not be used, in words; nothing if it may."""
    return _doubt(config, _foreign(config, name))


def _doubt(config: Config, each: Foreign | None) -> str:
    if each is None or config.flags.trust_plugins:
        return ""
    return Trust().doubt(each.key, each.digest)


def _foreign(config: Config, name: str) -> Foreign | None:
    section = config.settings.mcp[name]
    origin = next(_projects(config, name), None) if section.enabled else None
    if origin is None:
        return None
    stated = _stated(config, name)
    place = working_directory(section, config.directory)
    files = [] if is_remote(section) else [*_files(config, section, place)]
    # The same words are another program elsewhere, if they name a file that lies there.
    where = f"@{place}" if files else ""
    said = json.dumps([*stated.items()]).encode()
    now = digest(said, *(piece for path, content in files for piece in (os.fsencode(path), content)))
    key = f"{origin.source}#mcp.{name}{where}"
    return Foreign(_whole(name), _whole(_what(stated, section)), origin, _whole(key), now)


def _whole(text: str) -> str:
    """``text`` with half characters, which JSON can say and no file can hold, spelled out."""
    return text.encode("utf-8", "backslashreplace").decode()


def _projects(config: Config, name: str) -> Iterator[Origin]:
    """Where the project has its say."""
    for setting in _DECIDING:
        for path, origin in config.origins.items():
            is_item = isinstance(path[-1], int)
            if path[:3] == ("mcp", name, setting) and not is_item and whose(origin, config) == "project":
                yield origin


def _stated(config: Config, name: str) -> dict[Path, Any]:
    """What files and variables say of the server, as it stands there but for what ``{file:...}`` names: a file may be
    the project's own. What a plugin says is not in it."""
    said = ((path, value) for path, value in values({"mcp": {name: config.document["mcp"][name]}}) if len(path) > 2)
    return {
        path[2:]: _as_written(config, path, value)
        for path, value in sorted(said)
        if path[2] in _DECIDING[:-1] and whose(config.origins.get(path), config) != "program"
    }


def _as_written(config: Config, path: Path, value: Any) -> Any:
    items = as_list(value)
    if items is not None:
        return [_as_written(config, (*path, at), item) for at, item in enumerate(items)]
    origin = config.origins.get(path)
    written = origin.written if origin is not None else None
    return value if written is None or "{file:" in written else written.strip('"')


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


def _what(stated: Mapping[Path, Any], section: McpConfig) -> str:
    if is_remote(section):
        return str(stated.get(("url",), "...")) + _with("header", "headers", stated)
    words = as_list(stated.get(("command",))) or ["..."]
    inside = f", in {stated['cwd',]}" if ("cwd",) in stated else ""
    return shlex.join(map(str, words)) + inside + _with("variable", "environment", stated)


def _with(kind: str, setting: str, stated: Mapping[Path, Any]) -> str:
    names = [str(path[1]) for path in stated if path[0] == setting and len(path) > 1]
    return f", with the {kind}{'s' if len(names) > 1 else ''} {', '.join(names)}" if names else ""
