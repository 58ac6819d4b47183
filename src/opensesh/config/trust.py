"""Trust in what a project's configuration brings along: whose setting it is, and whether the user has trusted it.

A project's plugins, the MCP servers, model addresses and scripts that its configuration names come from its
repository, which may have been cloned unread. They are used only once the user has trusted them, and only as long as
they do not change: a key and a digest are stored. The digest of a file does not cover what it imports. The text of the
configuration is what is trusted: an environment variable that fills a placeholder may change, the placeholder may not.
"""

from __future__ import annotations

import os
import re
import stat
from copy import deepcopy
from hashlib import sha256
from itertools import islice
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Protocol

from msgspec.structs import replace

from ..errors import ConfigError, RecordError
from ..flags import PREFIXES
from ..records import as_list, dumps, loads_object
from ..storage import paths
from ..storage.disk import Disk, read_file
from .config import Origin, leaf_values
from .schema import ConfigSettings
from .source import ProjectFolders, SharedFolder, Source, upward
from .validation import check

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from ..flags import Flags
    from ..records import Document
    from .config import Config
    from .source import Folders, SettingPath

FILE_NAME = "trusted-plugins.json"
_CONTENTS = (
    *("opencode.json", "opencode.jsonc", ".opencode", ".claude", ".agents"),
    *("AGENTS.md", "CLAUDE.md", "CONTEXT.md"),
)
"""What makes a folder one with configuration."""
_KINDS = frozenset("agent agents command commands mode modes plugin plugins skill skills tool tools".split())
"""The folders with files of configuration in a folder such as ``.opencode``."""
_MAX_PARTS = 5_000
_NOT_SENT = frozenset(
    "agent color disable hidden maxSteps mode model permission steps subtask temperature tools top_p variant".split()
)
"""Settings of agents and commands that choose something by its name. All others are texts for models, or become a part
of their requests as they are."""


def digest(*pieces: bytes) -> str:
    """Return a digest of the pieces, which also depends on where each begins and ends."""
    whole = sha256()
    for piece in pieces:
        whole.update(len(piece).to_bytes(8, "big") + piece)
    return whole.hexdigest()


class Trust:
    """The items that the user has trusted, in a file of our state folder, where no repository can place it."""

    def __init__(self) -> None:
        self.path = os.path.join(paths.state(), FILE_NAME)

    def status(self, key: str, current_digest: str) -> Literal["trusted", "changed", "unknown"]:
        """Return whether ``key`` is trusted with this digest."""
        trusted_digest = self._read().get(key)
        if trusted_digest is None:
            return "unknown"
        return "trusted" if trusted_digest == current_digest else "changed"

    def untrusted_reason(self, key: str, current_digest: str) -> str:
        """Return why ``key`` must not be used; empty if it may."""
        return {
            "trusted": "",
            "changed": "it has changed since it was trusted",
            "unknown": "it came with the project and is not trusted",
        }[self.status(key, current_digest)]

    def grant(self, programs: Iterable[tuple[str, str]]) -> None:
        """Trust these pairs of key and digest from now on."""
        self._write(self._read() | dict(programs))

    def revoke(self, keys: Iterable[str]) -> list[str]:
        """Stop trusting these keys; returns those that were trusted."""
        digests = self._read()
        revoked = [key for key in keys if digests.pop(key, None) is not None]
        if revoked:
            self._write(digests)
        return revoked

    def _read(self) -> dict[str, str]:
        try:
            document = loads_object(read_file(self.path), self.path)
        except (OSError, RecordError):  # nothing is trusted if the file cannot be read
            return {}
        return {key: value for key, value in document.items() if isinstance(value, str)}

    def _write(self, digests: dict[str, str]) -> None:
        disk = Disk()
        disk.make_folder(os.path.dirname(self.path))
        disk.replace(self.path, dumps(digests))


class UntrustedItem(NamedTuple):
    """Something in the configuration that needs the user's trust."""

    kind: Literal["MCP server", "provider", "script", "folder", "command", "agent"]
    name: str
    what: str
    """The command line, the addresses or the file, without secrets that are filled in; a secret that is written in the
    file is in it."""
    setting: SettingPath
    """Its path in the configuration."""
    named_by: Origin
    key: str
    """The key under which trust in it is stored."""
    digest: str
    """Its digest now."""


def folder_trust_items(config: Config) -> list[UntrustedItem]:
    """Return the folders of the project that other users can change."""

    def item(folder: SharedFolder) -> UntrustedItem:
        named_by = Origin(folder.path)
        return UntrustedItem("folder", folder.path, folder.reason, (), named_by, folder.key, folder.digest)

    return [item(folder) for folder in config.project_folders.shared]


def without_revealing_prompts(config: Config) -> Config:
    """Return ``config`` with the project's prompts as written where a placeholder would reveal a variable, or a file
    outside of the project, to a model."""
    document: Document | None = None
    origins, problems = dict(config.origins), list(config.problems)
    for path, origin in config.origins.items():
        match path:
            case ("agent" | "mode" | "command", str(), name, *_):
                is_sent = name not in _NOT_SENT
            case ("provider", str(), "models", str(), "name" | "id" | "options" | "variants", *_) | (
                "instructions",
                *_,
            ):
                is_sent = True
            case _:
                is_sent = False
        if not is_sent or not _reveals(config, origin) or owner_of(origin, config) != "project":
            continue
        document = document or deepcopy(config.document)
        holder: Any = document
        for step in path[:-1]:
            holder = holder[step]
        holder[path[-1]] = (origin.written or "").strip('"')
        reason = "the placeholders in this text are left as written: their values would be sent to a model"
        problems.append(ConfigError(reason, path=origin.source, line=origin.line or 1, column=origin.column or 1))
    if document is None:
        return config
    settings = check(document, ConfigSettings, Source("the merged configuration", ""))
    return replace(config, document=document, settings=settings, origins=origins, problems=tuple(problems))


def _reveals(config: Config, origin: Origin) -> bool:
    if not origin.written:
        return False
    root = config.project_folders.root(origin.source)
    for file in re.findall(r"\{file:([^{}]*)\}", origin.written):
        path = config.folders.resolve(file.replace("\\/", "/"), os.path.dirname(origin.source))
        if os.path.commonpath((os.path.realpath(path), root)) != root:
            return True
    return "{env:" in origin.written


def why_untrusted(config: Config, item: UntrustedItem | None) -> str:
    """Return why an item must not be used; empty if it may."""
    if item is None or config.flags.trust_plugins:
        return ""
    return Trust().untrusted_reason(item.key, item.digest)


def configured_values(config: Config, section: str, name: str, *, files: bool = False) -> dict[SettingPath, Any]:
    """Return what files and variables set in ``section.name``, by path, as written, for display.

    With ``files``, ``{file:...}`` is replaced by the file's content, for the digest: the file may be the project's.
    Values that a plugin set are left out.
    """
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
    # A placeholder outside of a string stands for whole settings, which cannot be judged by its name.
    is_text = written.startswith('"')
    return value if not written or ("{file:" in written and (files or not is_text)) else written.strip('"')


# -- folders of the project --------------------------------------------------------------------------------------------


def project_folders(directory: str, worktree: str, home: str, flags: Flags) -> ProjectFolders:
    """Return the folders whose configuration is read for ``directory``: from it up to the root of the repository.

    Outside of a repository they end at the home folder, and never go beyond a file-system boundary. In a folder that
    another user owns or can write to, such as ``/tmp``, that user could place configuration, which chooses the servers
    that get prompts and keys. So nothing in such a folder is used before the user trusts it as a whole.
    """
    used: list[str] = []
    shared: list[SharedFolder] = []
    trust = Trust()
    for folder in _walk(directory, worktree, home):
        reason = next((why for part in _parts(folder) if (why := _why_shared(part))), "")
        if not reason:
            used.append(folder)
        elif any(os.path.lexists(os.path.join(folder, name)) for name in _CONTENTS):
            item = SharedFolder(folder, reason, f"{folder}#folder", digest(reason.encode()))
            shared.append(item)
            if flags.trust_plugins or trust.status(item.key, item.digest) == "trusted":
                used.append(folder)
    return ProjectFolders(tuple(used), tuple(shared), worktree != os.path.dirname(worktree))


def _walk(directory: str, worktree: str, home: str) -> Iterator[str]:
    device: int | None = None
    for folder in upward(directory, worktree):
        try:
            status = os.stat(folder)
        except OSError:
            status = None
        if status is not None and device not in (None, status.st_dev):
            return
        device = status.st_dev if status is not None else device
        yield folder
        if folder == home:
            return


def _parts(folder: str) -> Iterator[str]:
    """Yield a folder, the files and folders in it that are read, and what is in these, at any depth."""
    yield folder
    for name in _CONTENTS:
        path = os.path.join(folder, name)
        yield path
        if not os.path.islink(path):  # links out of a project are not searched
            yield from islice(_entries(path), _MAX_PARTS)


def _entries(path: str) -> Iterator[str]:
    for parent, folders, files in os.walk(path):
        yield from (os.path.join(parent, name) for name in (*folders, *files))
        folders[:] = [name for name in folders if (name in _KINDS if parent == path else name != "node_modules")]


def _why_shared(folder: str) -> str:
    """Return why other users can change a file or the contents of a folder; empty if they cannot, or if it does not
    exist."""
    # Nothing but files and folders is read: every user can write to /dev/null.
    if not hasattr(os, "getuid") or not (os.path.isdir(folder) or os.path.isfile(folder)):
        return ""
    try:
        status = os.stat(folder)
    except OSError:
        return ""
    user = os.getuid()
    # As git does it: with sudo, this is about the folders of the user who calls it.
    caller = os.environ.get("SUDO_UID", "") if user == 0 else ""
    if status.st_uid not in {0, user, int(caller) if caller.isdigit() else user}:
        return f"{folder} belongs to another user (uid {status.st_uid})"
    if status.st_mode & stat.S_IWOTH:
        return f"every user can write to {folder}"
    if status.st_mode & stat.S_IWGRP and status.st_gid not in (0, os.getgid()):
        return f"the group {status.st_gid} can write to {folder}"
    return ""


# -- whose setting it is -----------------------------------------------------------------------------------------------


def owner_of(origin: Origin | None, config: Config) -> Literal["user", "project", "organisation", "program"]:
    """Return who set a value: the user (or the administrator), the project, an organisation that the user is logged in
    to, or the running program and its plugins."""
    if origin is None:
        return "program"
    if is_user_owned(origin.source, config):
        return "user"
    if os.path.isabs(origin.source):
        return "project"
    return "organisation" if "://" in origin.source else "program"


def is_user_owned(source: str, config: Config) -> bool:
    """Return whether the user or the administrator wrote a source of configuration: it is in one of their folders, or
    named by an environment variable. Everything else came with the project or from an organisation."""
    config_file = config.flags.config
    if config_file and source == config.folders.resolve(config_file, config.directory):
        return True
    folder = os.path.dirname(source)
    # A Markdown file may be anywhere below its configuration folder.
    around = [above for above in config.directories if source.startswith(os.path.join(above, ""))]
    if source.endswith(".md") and around:
        folder = max(around, key=len)
    return source.startswith(PREFIXES) or folder in user_folders(config)


class _Settings(Protocol):
    """The settings that :func:`user_folders` needs, of a configuration or of one that is being read."""

    @property
    def directory(self) -> str: ...
    @property
    def folders(self) -> Folders: ...
    @property
    def flags(self) -> Flags: ...


def user_folders(config: _Settings) -> set[str]:
    """Return the configuration folders of the user and the administrator."""
    config_dir = config.flags.config_dir
    return {
        config.folders.config,
        config.folders.managed,
        os.path.join(config.folders.home, ".opencode"),
        *([config.folders.resolve(config_dir, config.directory)] if config_dir else []),
    }
