"""Which programs of a project may run: those that the user said yes to, as they were then.

A project's plugins, and the servers that its configuration names, are programs from its repository, and whoever clones
one has not read it. So one of them runs only once the user has trusted it, and only for as long as it is what it was:
what it is known by and a digest are kept. The digest does not cover what a file imports.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from ..errors import RecordError
from ..flags import PREFIXES
from ..records import as_list, dumps, loads_object
from ..storage import paths
from ..storage.disk import Disk

if TYPE_CHECKING:
    from collections.abc import Iterable

    from .config import Config, Origin
    from .source import SettingPath

NAME = "trusted-plugins.json"


def digest(*pieces: bytes) -> str:
    """What stands for a program as it is now."""
    from hashlib import sha256

    whole = sha256()
    for piece in pieces:
        whole.update(len(piece).to_bytes(8, "big") + piece)
    return whole.hexdigest()


class Trust:
    """What the user has trusted, in a file of opensesh's own state: no repository can bring it along."""

    def __init__(self, path: str | None = None) -> None:
        self.path = path or os.path.join(paths.state(), NAME)

    def of(self, key: str, now: str) -> Literal["trusted", "changed", "unknown"]:
        """How it is with the program ``key``, whose digest is ``now``."""
        then = self._read().get(key)
        return "unknown" if then is None else "trusted" if then == now else "changed"

    def doubt(self, key: str, now: str) -> str:
        """Why it must not run, in words; nothing if it may."""
        match self.of(key, now):
            case "trusted":
                return ""
            case "changed":
                return "it is not what it was when it was trusted"
            case "unknown":
                return "it came with the project, and nobody has trusted it"

    def grant(self, programs: Iterable[tuple[str, str]]) -> None:
        """Trust these from now on, by key and digest."""
        self._write(self._read() | dict(programs))

    def revoke(self, keys: Iterable[str]) -> list[str]:
        """Trust these no more; those that were trusted."""
        known = self._read()
        gone = [key for key in keys if known.pop(key, None) is not None]
        if gone:
            self._write(known)
        return gone

    def _read(self) -> dict[str, str]:
        try:
            with open(self.path, "rb") as file:
                listed = loads_object(file.read(), self.path)
        except (OSError, RecordError):  # one that cannot be read trusts nobody
            return {}
        return {key: value for key, value in listed.items() if isinstance(value, str)}

    def _write(self, known: dict[str, str]) -> None:
        disk = Disk()
        disk.make_folder(os.path.dirname(self.path))
        disk.replace(self.path, dumps(known))


def owner_of(origin: Origin | None, config: Config) -> Literal["user", "project", "organisation", "program"]:
    """Who set a value: the user (or the administrator) in a file or a variable; the project; an organisation, which the
    user has logged in to; or the running program and its plugins, which are no text that anyone could bring along."""
    if origin is None:
        return "program"
    if is_user_owned(origin.source, config):
        return "user"
    if os.path.isabs(origin.source):
        return "project"
    return "organisation" if "://" in origin.source else "program"


def is_user_owned(source: str, config: Config) -> bool:
    """Whether the user (or the administrator) wrote this source of configuration: what is neither in a folder of
    theirs, nor named by a variable of theirs, came with the project or from an organisation."""
    named = config.flags.config
    if named and source == config.folders.resolve(named, config.directory):
        return True
    return source.startswith(PREFIXES) or _config_folder(source, config) in user_folders(config)


def _config_folder(source: str, config: Config) -> str:
    """The folder that a file of configuration belongs to; one in Markdown lies somewhere below it."""
    around = [folder for folder in config.directories if source.startswith(os.path.join(folder, ""))]
    return max(around, key=len) if source.endswith(".md") and around else os.path.dirname(source)


def user_folders(config: Config) -> set[str]:
    """The configuration folders that are the user's, or the administrator's."""
    named = config.flags.config_dir
    return {
        config.folders.config,
        config.folders.managed,
        os.path.join(config.folders.home, ".opencode"),
        *([config.folders.resolve(named, config.directory)] if named else []),
    }


class UntrustedItem(NamedTuple):
    """Something that needs the user's trust."""

    kind: Literal["MCP server", "provider", "script"]
    name: str
    what: str
    """The command line, the addresses, or the file; a secret that would be filled in is not in it."""
    setting: SettingPath
    """Where it stands in the configuration."""
    named_by: Origin
    key: str
    """What trust in it is kept under."""
    digest: str
    """What stands for it as it is now."""


def why_untrusted(config: Config, each: UntrustedItem | None) -> str:
    """Why it must not be used, in words; nothing if it may."""
    if each is None or config.flags.trust_plugins:
        return ""
    return Trust().doubt(each.key, each.digest)


def configured_values(config: Config, section: str, name: str, *, files: bool = False) -> dict[SettingPath, Any]:
    """What files and variables say in ``section.name``, by the path below it, as it stands there, fit to be shown; with
    ``files`` what ``{file:...}`` names is filled in, fit to be trusted: a file may be the project's own. What a plugin
    says is not in it."""
    from .config import leaf_values

    return {
        path[2:]: _as_written(config, path, value, files=files)
        for path, value in sorted(leaf_values({section: {name: config.document[section][name]}}))
        if len(path) > 2 and owner_of(config.origins.get(path), config) != "program"
    }


def _as_written(config: Config, path: SettingPath, value: Any, *, files: bool) -> Any:
    items = as_list(value)
    if items is not None:
        return [_as_written(config, (*path, at), item, files=files) for at, item in enumerate(items)]
    origin = config.origins.get(path)
    written = (origin.written if origin is not None else None) or ""
    # A placeholder that is no part of a string stands for whole settings, which nobody could judge by its name.
    is_text = written.startswith('"')
    return value if not written or ("{file:" in written and (files or not is_text)) else written.strip('"')
