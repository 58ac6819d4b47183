"""Finds and loads plugins: those of installed distributions, of the configuration and of configuration folders.

1. the entry points of installed distributions, group ``opensesh.plugins``, by distribution and name;
2. the entries of ``plugin`` in the configuration that name a Python file (``./it.py``) or a module
   (``package.module``), in the configuration's order;
3. files ``*.py`` in ``plugin/`` and ``plugins/`` of every configuration folder, those of the user before those of the
   project. Names that begin with ``_`` or ``.`` are not plugins.

All other entries of the configuration are OpenCode's JavaScript plugins, and are left to it. A plugin that cannot be
loaded does not affect the others.
"""

from __future__ import annotations

import inspect
import logging
import os
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from msgspec.structs import replace

from ..config.layers import plugin_files
from ..config.trust import Trust, digest, is_user_owned, user_folders
from ..events import PluginFailed
from ..loading import entry_points
from ..records import as_list, as_object, dumps_compact
from ..storage.disk import MAX_RECORD_BYTES, read_file
from ..tools.custom import FunctionTool
from .calling import LoadedPlugin, Plugins, PluginSource, SkippedPlugin, explain, reject_awaitable
from .hooks import ALL, Plugin, find_hook, hooks_of

if TYPE_CHECKING:
    from collections.abc import Sequence
    from importlib.metadata import EntryPoint

    from ..config import Config
    from ..events import Publish
    from .hook_types import Host

log = logging.getLogger("opensesh.plugins")

GROUP = "opensesh.plugins"
FACTORY = "plugin"
"""The name of a module's function that receives the :class:`Host` and returns a plugin."""
_MODULE = r"(?a)[A-Za-z_]\w*(\.[A-Za-z_]\w*)*"
_MAX_FOREIGN_BYTES = 1 << 22
Pluggable = Plugin | type | ModuleType | FunctionTool | Mapping[str, Any] | Callable[..., Any] | str
"""What a Python program may pass as a plugin: anything that :func:`collect` accepts, the path of a Python file, or the
name of a module."""


class PluginCandidate(NamedTuple):
    """A plugin that was found but not loaded yet."""

    name: str
    source: PluginSource
    own: bool
    """Whether the user installed it; otherwise it came with the project or from an organisation."""
    path: str | None = None
    module: str | None = None
    entry_point: EntryPoint | None = None
    options: dict[str, Any] = {}

    @property
    def key(self) -> str:
        """The key under which trust in it is stored."""
        return f"{self.source.named_by.rpartition(':')[0] or self.source.named_by}#{self.path or self.module}"

    def read(self) -> bytes:
        """Return the content of its file; of a foreign one, only up to a limit. Empty for a module."""
        limit = MAX_RECORD_BYTES if self.own else _MAX_FOREIGN_BYTES
        return read_file(self.path, limit=limit) if self.path else b""

    def digest(self, content: bytes) -> str:
        """Return the digest of the plugin as it is now, given the content of its file."""
        return digest(content, dumps_compact(self.options))


class CollectedHook(NamedTuple):
    """A hook of a plugin, or a tool under the hook name ``tool``."""

    hook: str
    function: Callable[..., Any] | FunctionTool


# -- finding -----------------------------------------------------------------------------------------------------------


def find_candidates(config: Config) -> tuple[list[PluginCandidate], list[SkippedPlugin]]:
    """Return the plugins in the order in which they are loaded, and those that are OpenCode's. Runs none of their code.

    If several entries name the same file or module, the position of the first counts, and the options of the last that
    the user wrote.
    """
    skipped: list[SkippedPlugin] = []
    candidates: dict[str, PluginCandidate] = {}
    for candidate in (*_entry_points(), *_configured(config, skipped), *_in_folders(config)):
        target = candidate.path or candidate.module or f"entry point {candidate.source.place} {candidate.name}"
        if target not in candidates or candidate.own >= candidates[target].own:
            candidates[target] = candidate
    return list(candidates.values()), skipped


def candidates_needing_trust(config: Config) -> list[tuple[PluginCandidate, str]]:
    """Return the plugins that need trust, each with its current digest; unreadable ones are left out."""
    candidates: list[tuple[PluginCandidate, str]] = []
    for candidate in find_candidates(config)[0]:
        if not candidate.own:
            try:
                candidates.append((candidate, candidate.digest(candidate.read())))
            except (OSError, ValueError):  # ValueError: a NUL in the path
                continue
    return candidates


def _entry_points() -> Iterator[PluginCandidate]:
    points = [(point.dist.name if point.dist else "", point) for point in entry_points(GROUP)]
    for distribution, point in sorted(points, key=lambda pair: (pair[0], pair[1].name)):
        target = f"{distribution} ({point.value})" if distribution else point.value
        yield PluginCandidate(point.name, PluginSource("entry point", target), own=True, entry_point=point)


def _configured(config: Config, skipped: list[SkippedPlugin]) -> Iterator[PluginCandidate]:
    for at, entry in enumerate(config.settings.plugin):
        pair = as_list(entry)
        text = str(pair[0] if pair else entry)
        options = (as_object(pair[1]) or {}) if pair and len(pair) > 1 else {}
        origin = config.origins.get(("plugin", at))
        path = _entry_path(text, config)
        named_by = str(origin) if origin and origin.source != path else ""
        own = origin is not None and is_user_owned(origin.source, config)
        if path is not None and path.endswith(".py"):
            name = os.path.basename(path).removesuffix(".py")
            yield PluginCandidate(name, PluginSource("config", path, named_by), own, path=path, options=options)
        elif path is None and re.fullmatch(_MODULE, text):
            yield PluginCandidate(text, PluginSource("config", text, named_by), own, module=text, options=options)
        else:
            what = "it is an npm package" if path is None else "it is not a Python file"
            name = os.path.basename(path) if path else text
            source = PluginSource("config" if named_by else "folder", path or text, named_by)
            skipped.append(SkippedPlugin(name, source, "foreign", f"{what}; OpenCode runs it, opensesh does not"))


def _entry_path(text: str, config: Config) -> str | None:
    """Return the file that an entry of ``plugin`` names, if it names one."""
    if text.startswith("file:"):
        from urllib.parse import urlsplit
        from urllib.request import url2pathname  # slow to import, and rarely needed

        try:
            return os.path.normpath(url2pathname(urlsplit(text).path))
        except ValueError:  # an invalid host
            return None
    expanded = config.folders.expand(text)
    return os.path.normpath(expanded) if os.path.isabs(expanded) else None


def _in_folders(config: Config) -> Iterator[PluginCandidate]:
    for folder in config.directories:
        own = folder in user_folders(config)
        for path in plugin_files(folder, "*.py", lambda problem: log.warning("%s", problem)):
            name = os.path.basename(path).removesuffix(".py")
            if not name.startswith(("_", ".")):
                yield PluginCandidate(name, PluginSource("folder", path), own, path=path)


# -- loading -----------------------------------------------------------------------------------------------------------


def load_plugins(
    config: Config,
    host: Host,
    extra: Sequence[Pluggable] = (),
    *,
    discover: bool = True,
    publish: Publish | None = None,
) -> Plugins:
    """Load the plugins of a directory, then those in ``extra``.

    Plugins are searched for unless ``discover`` is false or the environment disables it. ``publish`` is called for
    failures, now and later.
    """
    loader = _PluginLoader(host, trust_all=config.flags.trust_plugins)
    if discover and not config.flags.disable_plugins:
        candidates, loader.skipped[:] = find_candidates(config)
        for candidate in candidates:
            loader.load_candidate(candidate)
    for thing in extra:
        loader.load_extra(thing)
    plugins = Plugins(loader.loaded, loader.skipped)
    plugins.publish = publish or plugins.publish
    for skipped in plugins.skipped:
        if skipped.kind == "broken":
            log.warning("the plugin %s could not be loaded: %s", skipped.name, skipped.reason)
            plugins.publish(PluginFailed(plugin=skipped.name, hook="load", error=skipped.reason))
        elif skipped.kind == "foreign":
            log.debug("the plugin %s is skipped: %s", skipped.name, skipped.reason)
    untrusted = ", ".join(skipped.name for skipped in plugins.skipped if skipped.kind == "untrusted")
    if untrusted:
        log.warning("untrusted plugins of this project are not loaded: %s ('opensesh plugins' lists them)", untrusted)
    return plugins


class _PluginLoader:
    def __init__(self, host: Host, *, trust_all: bool) -> None:
        self.loaded: list[LoadedPlugin] = []
        self.skipped: list[SkippedPlugin] = []
        self._host = host
        self._trust = Trust()
        self._trust_all = trust_all

    def load_candidate(self, candidate: PluginCandidate) -> None:
        try:
            content = candidate.read()
            is_trusted = candidate.own or self._trust_all
            reason = "" if is_trusted else self._trust.untrusted_reason(candidate.key, candidate.digest(content))
            if reason:
                self.skipped.append(SkippedPlugin(candidate.name, candidate.source, "untrusted", reason))
                return
            self._add(candidate.name, candidate.source, _import(candidate, content), candidate.options)
        except KeyboardInterrupt:  # Ctrl-C
            raise
        except BaseException as error:
            self.skipped.append(SkippedPlugin(candidate.name, candidate.source, "broken", explain(error)))

    def load_extra(self, thing: Pluggable) -> None:
        name = _name(thing)
        source = PluginSource("given", thing if isinstance(thing, str) else type(thing).__name__)
        try:
            plugin: object = thing
            if isinstance(thing, str):
                path = os.path.abspath(thing) if thing.endswith(".py") else None
                candidate = PluginCandidate(name, source, own=True, path=path, module=thing)
                plugin = _import(candidate, read_file(path) if path else b"")
            self._add(name, source, plugin, {})
        except KeyboardInterrupt:  # Ctrl-C
            raise
        except BaseException as error:
            self.skipped.append(SkippedPlugin(name, source, "broken", explain(error)))

    def _add(self, name: str, source: PluginSource, thing: object, options: dict[str, Any]) -> None:
        host = replace(self._host, options=options)
        collected = collect(thing, host)
        tools = tuple(function for _, function in collected if isinstance(function, FunctionTool))
        functions = tuple((hook, function) for hook, function in collected if not isinstance(function, FunctionTool))
        if not functions and not tools:
            raise TypeError("it has no hook and no tool")
        self.loaded.append(LoadedPlugin(name, source, host, functions, tools))


def _import(candidate: PluginCandidate, content: bytes) -> object:
    """Import a candidate. A file is executed from the very bytes whose digest was checked, and leaves no cache."""
    if candidate.entry_point is not None:
        return candidate.entry_point.load()
    if candidate.path is None:
        return import_module(str(candidate.module))
    name = f"opensesh_plugin_{candidate.name}_{digest(candidate.path.encode())[:8]}"
    module = ModuleType(name)
    module.__file__ = candidate.path
    sys.modules[name] = module  # pickles, dataclasses and type hints look it up there
    try:
        exec(compile(content, candidate.path, "exec"), vars(module))  # noqa: S102
    except BaseException:
        del sys.modules[name]
        raise
    return module


def _name(thing: Pluggable) -> str:
    match thing:
        case str():
            return thing.replace("\\", "/").rsplit("/", 1)[-1].removesuffix(".py")
        case ModuleType():
            return thing.__name__.rsplit(".", 1)[-1]
        case FunctionTool():
            return thing.id
        case Mapping():
            return "plugin"
        case _:
            return str(getattr(thing, "__name__", type(thing).__name__))


# -- collecting hooks --------------------------------------------------------------------------------------------------


def collect(thing: object, host: Host) -> list[CollectedHook]:
    """Return the hooks and tools of a module, class, instance, mapping or function, in the order of the source.

    Raises what a constructor or factory raises, and ``TypeError`` or ``ValueError`` for what is not a plugin.
    """
    collected = list(_collect(thing, host))
    for hook, function in collected:
        if ALL[hook].early and inspect.iscoroutinefunction(function):
            raise TypeError(f"the hook {hook} is called while the engine is being opened, so it cannot be async")
    return collected


def _collect(thing: object, host: Host) -> Iterator[CollectedHook]:
    match thing:
        case ModuleType():
            yield from _collect_module(thing, host)
        case FunctionTool():
            yield CollectedHook("tool", thing)
        case Mapping():
            for name, function in cast("Mapping[str, Any]", thing).items():
                if not callable(function):
                    raise TypeError(f"the hook {name!r} is a {type(function).__name__}, not a function")
                yield CollectedHook(find_hook(name).name, function)
        case type():
            yield from _collect_instance(_create(thing, host))
        case _ if inspect.isroutine(thing):
            yield from _collect_function(thing, getattr(thing, "__name__", ""), host, is_factory=True)
        case _:
            yield from _collect_instance(thing)


def _collect_module(module: ModuleType, host: Host) -> Iterator[CollectedHook]:
    for name, value in list(vars(module).items()):
        if isinstance(value, FunctionTool):
            yield CollectedHook("tool", value)
            continue
        home = str(getattr(value, "__module__", None))
        if home != module.__name__ and not home.startswith(f"{module.__name__}."):
            continue  # imported from elsewhere
        if inspect.isfunction(value):
            yield from _collect_function(value, name, host, is_factory=name == FACTORY)
        elif isinstance(value, type) and issubclass(value, Plugin) and value is not Plugin:
            yield from _collect_instance(_create(value, host))


def _collect_function(
    function: Callable[..., Any], name: str, host: Host, *, is_factory: bool
) -> Iterator[CollectedHook]:
    hooks = hooks_of(function, name)
    yield from (CollectedHook(hook, function) for hook in hooks)
    if is_factory and not hooks:
        created = _create(function, host)
        if created is not None:
            yield from _collect(created, host)


def _collect_instance(thing: object) -> Iterator[CollectedHook]:
    is_plugin = isinstance(thing, Plugin)
    for hook in ALL.values():
        function = getattr(thing, hook.method, None)
        inherited = getattr(type(thing), hook.method, None) is getattr(Plugin, hook.method)
        if callable(function) and not inherited:
            is_plugin = True
            yield CollectedHook(hook.name, function)
    if not is_plugin:
        raise TypeError(f"{thing!r} is not a plugin: it has none of the hooks")


def _create(factory: Callable[..., Any], host: Host) -> object:
    """Call a class or a factory, with the host if it takes an argument."""
    takes_host = any(
        parameter.kind in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD, parameter.VAR_POSITIONAL)
        for parameter in inspect.signature(factory).parameters.values()
    )
    created: object = factory(host) if takes_host else factory()
    reject_awaitable(created)
    return created
