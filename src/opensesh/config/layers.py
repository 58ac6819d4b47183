"""Reads all layers of the configuration, from the lowest to the highest:

1. what an organisation publishes at ``/.well-known/opencode``, if the user is logged in to one and ``fetch`` is
   given. One that cannot be fetched is reported in :attr:`Config.problems`;
2. the global files, ``config.json``, ``opencode.json`` and ``opencode.jsonc`` in ``~/.config/opencode`` (before
   them, a file ``config`` in TOML, as in the first versions);
3. the file that ``OPENCODE_CONFIG`` names;
4. the project's files, from the worktree down to the directory: every ``opencode.jsonc``, then every
   ``opencode.json``;
5. configuration folders: ``~/.config/opencode``, ``~/.opencode``, every ``.opencode`` from the worktree down to the
   directory, then ``OPENCODE_CONFIG_DIR``. Each holds files and agents, commands and modes in Markdown;
6. ``OPENCODE_CONFIG_CONTENT``;
7. the administrator's files, in ``/etc/opencode``;
8. the document that a Python program passes.

One point differs from OpenCode 1.1.65: there the folders of 5 are read from the directory *up*, and ``~/.opencode``
last, so that an outer folder overrides an inner one and the user's own overrides the project's. Here the closest wins,
as it does for all other layers.

Agents, modes and commands can be Markdown files in a configuration folder. The file's path below ``agent/`` (or
``agents/``, ``command/``, ...), without suffix, is the name, unless the front matter sets another; the text below the
front matter is the prompt or template.

Nothing is fetched unless ``fetch`` is given, and nothing is ever written.
"""

from __future__ import annotations

import os
from collections import ChainMap
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from ..errors import ConfigError
from ..flags import Flags
from ..records import Document, as_list, as_object
from . import globs
from .config import Config, Layer, Merge, file_url, finish, normalise
from .instructions import own_urls, project_urls, system_instructions
from .schema import AgentConfig, CommandConfig, ConfigSettings
from .source import TIMEOUT_SECONDS, CachedFetch, Folders, ProjectFolders, Source, folders, read_text
from .trust import project_folders, user_folders, without_revealing_prompts
from .validation import check, unknown_keys

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from msgspec import Struct

    from .frontmatter import MarkdownFile
    from .jsonc import Decoded
    from .source import Fetch, SettingPath

    Report = Callable[[ConfigError], None]

NAMES = ("opencode.jsonc", "opencode.json")
_MAX_FILES = 500
"""Agents, commands, modes or plugins of one folder; each takes some milliseconds to read."""
_MAX_ENTRIES = 1_000
"""Entries of one object or list in a file of a project."""
_MAX_VALUES = 20_000
"""Values in such a file. Agents, rules and servers are combined with each other: more would take minutes."""


def load(
    directory: str | os.PathLike[str],
    worktree: str | os.PathLike[str],
    *,
    home: str | os.PathLike[str] | None = None,
    environ: Mapping[str, str] | None = None,
    fetch: Fetch | None = None,
    document: Document | None = None,
) -> Config:
    """Read and merge all layers for ``directory``, the last of them ``document``.

    ``worktree`` is the root of the project (``/`` outside of version control). Raises
    :class:`~opensesh.errors.ConfigError` with file, line and column for an invalid layer; a single invalid Markdown
    file or a setting without effect is reported in :attr:`Config.problems` instead.
    """
    flags = Flags(environ)
    reader = _LayerReader(os.path.abspath(directory), os.path.abspath(worktree), flags, folders(flags, home))
    return reader.load(fetch, document)


def load_and_fetch(
    directory: str | os.PathLike[str], worktree: str | os.PathLike[str], document: Document | None = None
) -> Config:
    """Read all layers as :func:`load` does, with the configuration of the user's organisations, and update the cached
    copies of instructions that the user names by URL. Waits for the network if no copy is fresh."""
    fetch = CachedFetch(folders(Flags()).cache)
    config = load(directory, worktree, fetch=fetch, document=document)
    if own_urls(config):
        system_instructions(config, fetch)
    return config


def plugin_files(folder: str, pattern: str, report: Report) -> list[str]:
    """Return the files matching ``pattern`` in the plugin folders of a configuration folder, up to a limit."""
    bases = [os.path.join(folder, kind) for kind in ("plugin", "plugins")]
    return [path for base in bases for path in _limited(globs.Search().find(base, pattern), base, report)]


def _limited(paths: list[str], folder: str, report: Report) -> list[str]:
    if len(paths) > _MAX_FILES:
        report(ConfigError(f"only the first {_MAX_FILES} of {len(paths)} files are used", path=folder))
    return paths[:_MAX_FILES]


class _LayerReader:
    """Reads all layers once."""

    def __init__(self, directory: str, worktree: str, flags: Flags, folders: Folders) -> None:
        self.directory = directory
        self.worktree = worktree
        self.flags = flags
        self.folders = folders
        self.merge = Merge()
        self.problems: list[ConfigError] = []
        self.variables: dict[str, str] = {}
        self.project_folders = ProjectFolders((), ())

    def load(self, fetch: Fetch | None, own: Document | None = None) -> Config:
        if fetch:
            self._organisations(fetch)
        self._global()
        if named := self.flags.config:
            path = self.folders.resolve(named, self.directory)
            if not self._file(path):
                raise ConfigError(f"names {path}, which does not exist", path=self.flags.variable("CONFIG") or "")
        own_folders = self._project_folders()
        project = own_folders.used[::-1]
        self.project_folders = own_folders
        self._files(os.path.join(folder, name) for name in NAMES for folder in project)
        directories = self._directories(project)
        search = globs.Search()
        for folder in directories:
            if folder != self.folders.config:
                self._files(os.path.join(folder, name) for name in NAMES)
            # A link in a repository must not lead out of it; the user's own folders may contain links to anywhere.
            within = own_folders.root(folder) if os.path.dirname(folder) in project else ""
            for layer in markdown_layers(folder, self.problems.append, search=search, within=within):
                self.merge.add(normalise(layer))
            for path in plugin_files(folder, "*.{ts,js}", self.problems.append):
                self.merge.add(Layer(Source(path, ""), {"plugin": [file_url(path)]}))
        self.problems += [ConfigError(reason, path=path) for path, reason in search.problems.items()]
        content = self.flags.config_content
        if content:
            self._text(content, self.flags.variable("CONFIG_CONTENT") or "", self.directory)
        self._files(os.path.join(self.folders.managed, name) for name in NAMES)
        self._add_document(own or {}, Source("the argument config", ""))
        document = finish(self.merge, self.flags)
        config = Config(
            directory=self.directory,
            worktree=self.worktree,
            settings=check(document, ConfigSettings, Source("the merged configuration", "")),
            document=document,
            origins=self.merge.origins,
            folders=self.folders,
            flags=self.flags,
            directories=directories,
            project_folders=own_folders,
            variables=self.variables,
        )
        for url, origin in project_urls(config).items():
            reason = f"{url} is not fetched, because the project names it; your own configuration can allow it"
            line, column = origin.line or 0, origin.column or 0
            self.problems.append(ConfigError(reason, path=origin.source, line=line, column=column))
        return without_revealing_prompts(replace(config, problems=tuple(self.problems)))

    def _organisations(self, fetch: Fetch) -> None:
        from .jsonc import decode

        path = os.path.join(self.folders.data, "auth.json")
        try:
            logins = as_object(decode(read_text(path) or "{}", path).value) or {}
        except ConfigError as error:
            self.problems.append(error)
            return
        for url, login in logins.items():
            entry = as_object(login) or {}
            if entry.get("type") != "wellknown":
                continue
            self.variables[str(entry.get("key"))] = str(entry.get("token"))
            address = f"{url.rstrip('/')}/.well-known/opencode"
            try:
                text = fetch(address, timeout=TIMEOUT_SECONDS).decode()
            except (OSError, UnicodeDecodeError) as error:
                reason = f"the organisation's configuration is left out, because it cannot be fetched: {error}"
                self.problems.append(ConfigError(reason, path=address))
                continue
            value, source = self._decode(text, address, self.directory)
            config = as_object((as_object(value) or {}).get("config"))
            if config:
                self._add_document(config, source.inside("config"))

    def _global(self) -> None:
        # Among the global files, even lists that are otherwise concatenated are replaced.
        below, self.merge = self.merge, Merge(concatenated=())
        path = os.path.join(self.folders.config, "config")
        text = read_text(path)
        if text is not None:
            import tomllib

            try:
                document: Document = tomllib.loads(text)
            except tomllib.TOMLDecodeError as error:
                raise ConfigError(f"not TOML: {error}", path=path) from None
            provider, model = document.pop("provider", None), document.pop("model", None)
            if provider and model:
                document["model"] = f"{provider}/{model}"
            self._add_document(document, Source(path, text))
        names = ("config.json", "opencode.json", "opencode.jsonc")
        self._files(os.path.join(self.folders.config, name) for name in names)
        below.merge(self.merge.document, self.merge.origins.__getitem__)
        self.merge = below

    def _project_folders(self) -> ProjectFolders:
        if self.flags.disable_project_config:
            return ProjectFolders((), ())
        folders = project_folders(self.directory, self.worktree, self.folders.home, self.flags)
        for shared in folders.shared:
            if shared.path not in folders.used:
                reason = f"nothing in this folder is used: {shared.reason} ('opensesh plugins --trust' allows it)"
                self.problems.append(ConfigError(reason, path=shared.path))
        return folders

    def _directories(self, project: Sequence[str]) -> tuple[str, ...]:
        own = os.path.join(self.folders.home, ".opencode")
        inner = [path for folder in project if os.path.isdir(path := os.path.join(folder, ".opencode"))]
        named = self.flags.config_dir
        candidates = [
            self.folders.config,
            *([own] if own not in inner else []),
            *inner,
            *([self.folders.resolve(named, self.directory)] if named else []),
        ]
        return tuple(dict.fromkeys(folder for folder in candidates if os.path.isdir(folder)))

    def _files(self, paths: Iterable[str]) -> None:
        for path in paths:
            self._file(path)

    def _file(self, path: str) -> bool:
        text = read_text(path)
        if text is not None:
            self._text(text, path, os.path.dirname(path))
        return text is not None

    def _text(self, text: str, name: str, folder: str) -> None:
        value, source = self._decode(text, name, folder)
        document = as_object(value)
        if document is None:
            raise source.error("a configuration is an object: { ... }")
        self._add_document(document, source)

    def _decode(self, text: str, name: str, folder: str) -> Decoded:
        from .jsonc import Substitution, decode

        environ = ChainMap(self.variables, dict(self.flags.environ))
        is_foreign = self.project_folders.used and os.path.isabs(name) and folder not in user_folders(self)
        within = self.project_folders.root(name) if is_foreign else ""
        filled = Substitution(Source(name, text), folder, self.folders, environ, within=within)
        read = decode(filled.text, name, written=text, to_written=filled.to_written)
        read.source.written = filled.written(read.source.values)
        if within:
            _check_size(read)
        return read

    def _add_document(self, document: Document, source: Source) -> None:
        for unknown in unknown_keys(check(document, ConfigSettings, source), document):
            error = source.error(unknown.reason, unknown.path, key=True)
            if len(unknown.path) == 1:
                raise error
            self.problems.append(error)
        self.merge.add(normalise(Layer(source, document)))


def _check_size(read: Decoded) -> None:
    """Raise an error for a file of a project with more settings than any project needs."""
    count = 0
    pending: list[tuple[SettingPath, Any]] = [((), read.value)]
    while pending:
        path, value = pending.pop()
        items = as_list(value)
        members = dict(enumerate(items)) if items is not None else as_object(value) or {}
        count += len(members)
        if len(members) > _MAX_ENTRIES or count > _MAX_VALUES:
            reason = f"a project's file has at most {_MAX_ENTRIES:,} entries here, and {_MAX_VALUES:,} in all"
            raise read.source.error(reason, path)
        pending += [((*path, name), member) for name, member in members.items()]


def markdown_layers(folder: str, report: Report, *, search: globs.Search, within: str = "") -> Iterator[Layer]:
    """Yield the layers of the Markdown files in ``folder``, in order.

    A file that is not valid Markdown with front matter is reported and left out. Invalid settings raise
    :class:`~opensesh.errors.ConfigError`, except in a mode, which is reported and left out.
    """
    for kind, pattern in (("command", "**/*.md"), ("agent", "**/*.md"), ("mode", "*.md")):
        for base in (os.path.join(folder, kind), os.path.join(folder, f"{kind}s")):
            paths = search.find(base, pattern, within=within)
            for path in _limited(paths, base, report):
                if within and not search.may_read(path):
                    break
                from . import frontmatter  # imports yaml, which few projects need

                name = os.path.relpath(path, base).replace(os.sep, "/").removesuffix(".md")
                try:
                    markdown = frontmatter.read(path)
                except ConfigError as error:
                    report(error)
                    continue
                try:
                    yield _markdown_layer(name, kind, markdown)
                except ConfigError as error:
                    if kind != "mode":
                        raise
                    report(error)


def _markdown_layer(name: str, kind: str, markdown: MarkdownFile) -> Layer:
    # A key without a value is ignored.
    settings = {key: value for key, value in markdown.settings.items() if value is not None}
    text = "template" if kind == "command" else "prompt"
    if markdown.body or kind == "command":
        settings[text] = markdown.body
    schema: type[Struct] = CommandConfig if kind == "command" else AgentConfig
    check(settings, schema, markdown.source)
    if kind == "mode":
        settings["mode"] = "primary"
    name = settings.get("name", name)
    section = "command" if kind == "command" else "agent"
    if section == "agent":
        settings["name"] = name
    return Layer(markdown.source, {section: {name: settings}}, (section, name))
