"""Where configuration comes from, from the lowest layer to the highest.

1. what an organisation publishes at ``/.well-known/opencode``, if the user is logged in to one and a way to fetch
   is given;
2. the global files, ``config.json``, ``opencode.json`` and ``opencode.jsonc`` in ``~/.config/opencode`` (before
   them, a file ``config`` in TOML, as the first versions had it);
3. the file that ``OPENCODE_CONFIG`` names;
4. the project's files, from the worktree down to the directory: every ``opencode.jsonc``, then every
   ``opencode.json``;
5. configuration folders: ``~/.config/opencode``, ``~/.opencode``, every ``.opencode`` from the worktree down to the
   directory, then ``OPENCODE_CONFIG_DIR``. Each holds files and agents, commands and modes in Markdown;
6. ``OPENCODE_CONFIG_CONTENT``;
7. what the administrator decided, in ``/etc/opencode``.

In one point this differs from OpenCode 1.1.65. There the folders of 5 are read from the directory *up*, and
``~/.opencode`` last, so that an outer folder overrides an inner one and the user's own overrides the project's.
Here what is closer wins, as it does everywhere else.

Nothing is fetched unless ``fetch`` is given, and nothing is ever written.
"""

from __future__ import annotations

import os
from collections import ChainMap
from typing import TYPE_CHECKING

from ..errors import ConfigError
from ..flags import Flags
from ..records import Document, as_object
from . import globs
from .config import Config, Layer, Merge, file_url, finish, normalise
from .schema import AgentConfig, CommandConfig, ConfigSettings
from .source import Folders, Source, folders, read_text, upward
from .validation import check, unknown_keys

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from msgspec import Struct

    from .frontmatter import MarkdownFile
    from .jsonc import Read
    from .source import Fetch

    Report = Callable[[ConfigError], None]

NAMES = ("opencode.jsonc", "opencode.json")


def load(
    directory: str | os.PathLike[str],
    worktree: str | os.PathLike[str],
    *,
    home: str | os.PathLike[str] | None = None,
    environ: Mapping[str, str] | None = None,
    fetch: Fetch | None = None,
) -> Config:
    """Read every layer that holds for ``directory``, and merge them.

    ``worktree`` is where the project ends (``/`` outside of version control). A layer that cannot be used is a
    :class:`~opensesh.errors.ConfigError` that names file, line and column; what costs no more than one Markdown
    file or has no effect is in :attr:`Config.problems`.
    """
    flags = Flags(environ)
    reader = _Reader(os.path.abspath(directory), os.path.abspath(worktree), flags, folders(flags, home))
    return reader.load(fetch)


def plugin_files(folder: str, pattern: str) -> list[str]:
    """The files that fit ``pattern`` among the plugins in a configuration folder."""
    return [path for kind in ("plugin", "plugins") for path in globs.find(os.path.join(folder, kind), pattern)]


class _Reader:
    """One reading of all layers."""

    def __init__(self, directory: str, worktree: str, flags: Flags, places: Folders) -> None:
        self.directory = directory
        self.worktree = worktree
        self.flags = flags
        self.folders = places
        self.merge = Merge()
        self.problems: list[ConfigError] = []
        self.variables: dict[str, str] = {}

    def load(self, fetch: Fetch | None) -> Config:
        if fetch:
            self._organisations(fetch)
        self._global()
        self._named()
        if not self.flags.disable_project_config:
            self._project()
        directories = self._directories()
        for folder in directories:
            self._folder(folder)
        content = self.flags.config_content
        if content:
            self._text(content, self.flags.variable("CONFIG_CONTENT") or "", self.directory)
        for name in NAMES:
            self._file(os.path.join(self.folders.managed, name))
        document = finish(self.merge, self.flags)
        return Config(
            directory=self.directory,
            worktree=self.worktree,
            settings=check(document, ConfigSettings, Source("the merged configuration", "")),
            document=document,
            origins=self.merge.origins,
            folders=self.folders,
            flags=self.flags,
            directories=directories,
            variables=self.variables,
            problems=tuple(self.problems),
        )

    def _organisations(self, fetch: Fetch) -> None:
        for url, entry in self._logins():
            self.variables[str(entry.get("key"))] = str(entry.get("token"))
            place = f"{url.rstrip('/')}/.well-known/opencode"
            try:
                text = fetch(place, timeout=30).decode()
            except (OSError, UnicodeDecodeError) as error:
                raise ConfigError(f"cannot be fetched: {error}", path=place) from None
            value, source = self._decode(text, place, self.directory)
            config = as_object((as_object(value) or {}).get("config"))
            if config:
                self._take(config, source.inside("config"))

    def _logins(self) -> Iterator[tuple[str, Document]]:
        from .jsonc import decode

        path = os.path.join(self.folders.data, "auth.json")
        entries = as_object(decode(read_text(path) or "", path).value) or {}
        for url, value in entries.items():
            entry = as_object(value) or {}
            if entry.get("type") == "wellknown":
                yield url, entry

    def _global(self) -> None:
        """The global files replace each other's lists, even those that add up everywhere else."""
        below, self.merge = self.merge, Merge(joined=())
        self._toml(os.path.join(self.folders.config, "config"))
        for name in ("config.json", "opencode.json", "opencode.jsonc"):
            self._file(os.path.join(self.folders.config, name))
        below.merge(self.merge.document, self.merge.origins.__getitem__)
        self.merge = below

    def _toml(self, path: str) -> None:
        text = read_text(path)
        if text is None:
            return
        import tomllib

        try:
            document: Document = tomllib.loads(text)
        except tomllib.TOMLDecodeError as error:
            raise ConfigError(f"not TOML: {error}", path=path) from None
        provider, model = document.pop("provider", None), document.pop("model", None)
        if provider and model:
            document["model"] = f"{provider}/{model}"
        self._take(document, Source(path, text))

    def _named(self) -> None:
        name = self.flags.config
        if not name:
            return
        path = self.folders.resolve(name, self.directory)
        if not self._file(path):
            raise ConfigError(f"names {path}, which does not exist", path=self.flags.variable("CONFIG") or "")

    def _project(self) -> None:
        for name in NAMES:
            for folder in self._inward():
                self._file(os.path.join(folder, name))

    def _inward(self) -> list[str]:
        return [*upward(self.directory, self.worktree)][::-1]

    def _directories(self) -> tuple[str, ...]:
        own = os.path.join(self.folders.home, ".opencode")
        project = [] if self.flags.disable_project_config else self._inward()
        inner = [path for folder in project if os.path.isdir(path := os.path.join(folder, ".opencode"))]
        named = self.flags.config_dir
        found = [
            self.folders.config,
            *([own] if own not in inner else []),
            *inner,
            *([self.folders.resolve(named, self.directory)] if named else []),
        ]
        return tuple(dict.fromkeys(folder for folder in found if os.path.isdir(folder)))

    def _folder(self, folder: str) -> None:
        if folder != self.folders.config:
            for name in NAMES:
                self._file(os.path.join(folder, name))
        for layer in markdown_layers(folder, self.problems.append):
            self.merge.add(normalise(layer))
        for path in plugin_files(folder, "*.{ts,js}"):
            self.merge.add(Layer(Source(path, ""), {"plugin": [file_url(path)]}))

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
        self._take(document, source)

    def _decode(self, text: str, name: str, folder: str) -> Read:
        from .jsonc import Substitution, decode

        environ = ChainMap(self.variables, dict(self.flags.environ))
        filled = Substitution(Source(name, text), folder, self.folders, environ)
        read = decode(filled.text, name, written=text, back=filled.back)
        read.source.written = filled.written(read.source.values)
        return read

    def _take(self, document: Document, source: Source) -> None:
        for unknown in unknown_keys(check(document, ConfigSettings, source), document):
            error = source.error(unknown.reason, unknown.path, key=True)
            if len(unknown.path) == 1:
                raise error
            self.problems.append(error)
        self.merge.add(normalise(Layer(source, document)))


def markdown_layers(folder: str, report: Report) -> Iterator[Layer]:
    """What the Markdown files in ``folder`` contribute, in order.

    A file that cannot be read as Markdown with front matter is reported and left out. One that can, but says
    something that no agent or command can be, is a :class:`~opensesh.errors.ConfigError`; a mode like that is left
    out, too.
    """
    for kind in ("command", "commands"):
        yield from _read_markdown(os.path.join(folder, kind), "**/*.md", "command", report)
    for kind in ("agent", "agents"):
        yield from _read_markdown(os.path.join(folder, kind), "**/*.md", "agent", report)
    for kind in ("mode", "modes"):
        yield from _read_markdown(os.path.join(folder, kind), "*.md", "mode", report)


def _read_markdown(folder: str, pattern: str, kind: str, report: Report) -> Iterator[Layer]:
    for path in globs.find(folder, pattern):
        name = os.path.relpath(path, folder).replace(os.sep, "/").removesuffix(".md")
        from . import frontmatter  # only here: it knows all of YAML

        try:
            markdown = frontmatter.read(path)
        except ConfigError as error:
            report(error)
            continue
        try:
            yield _layer(name, kind, markdown)
        except ConfigError as error:
            if kind != "mode":
                raise
            report(error)


def _layer(name: str, kind: str, markdown: MarkdownFile) -> Layer:
    # A key with nothing behind it says nothing.
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
    return Layer(markdown.source, {section: {name: settings}}, (section, name))
