"""Loads plugins: imports what was found and may run, and collects its hooks. One that cannot be loaded costs nobody
else anything."""

from __future__ import annotations

import inspect
import logging
import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from msgspec.structs import replace

from ..config.layers import plugin_files
from ..config.trust import Trust, digest, is_user_owned, user_folders
from ..events import PluginFailed
from ..loading import entry_points
from ..records import as_list, as_object, dumps_compact
from ..tools.custom import FunctionTool
from .calling import LoadedPlugin, Plugins, PluginSource, SkippedPlugin, at_once, explain
from .hooks import ALL, hooks_of, named
from .plugin import Plugin

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from importlib.metadata import EntryPoint

    from ..config import Config
    from ..events import Publish
    from .hook_types import Host

log = logging.getLogger("opensesh.plugins")

Pluggable = Plugin | type | ModuleType | FunctionTool | Mapping[str, Any] | Callable[..., Any] | str
"""What a Python program may hand in: whatever :func:`~opensesh.plugins.loader.collect` takes, or the path of a
Python file, or the name of a module."""


def load_plugins(
    config: Config,
    host: Host,
    extra: Sequence[Pluggable] = (),
    *,
    trust: Trust | None = None,
    discover: bool = True,
    publish: Publish | None = None,
) -> Plugins:
    """The plugins of a directory: those that are found unless ``discover`` is false or the environment forbids it, then
    those in ``extra``. ``publish`` is called for those that fail, now and later."""
    loader = _Loader(host, trust or Trust(), trust_all=config.flags.trust_plugins)
    if discover and not config.flags.disable_plugins:
        candidates, loader.skipped[:] = find(config)
        for each in candidates:
            loader.take(each)
    for thing in extra:
        loader.take_given(thing)
    plugins = Plugins(loader.loaded, loader.skipped)
    plugins.publish = publish or plugins.publish
    _report(plugins)
    return plugins


class _Loader:
    """One loading."""

    def __init__(self, host: Host, trust: Trust, *, trust_all: bool) -> None:
        self.loaded: list[LoadedPlugin] = []
        self.skipped: list[SkippedPlugin] = []
        self._host = host
        self._trust = trust
        self._trust_all = trust_all

    def take(self, candidate: PluginCandidate) -> None:
        """Load it, if it may run."""
        try:
            content = _read(candidate.path) if candidate.path else b""
            doubt = self._doubt(candidate, content)
            if doubt:
                self.skipped.append(SkippedPlugin(candidate.name, candidate.source, "untrusted", doubt))
                return
            self._add(candidate.name, candidate.source, _import(candidate, content), candidate.options)
        except (Exception, SystemExit) as error:
            self._broken(candidate.name, candidate.source, error)

    def take_given(self, thing: Pluggable) -> None:
        """Load what a program hands in."""
        name, place = _name(thing), thing if isinstance(thing, str) else type(thing).__name__
        source = PluginSource("given", place)
        try:
            self._add(name, source, _named(name, source, thing) if isinstance(thing, str) else thing, {})
        except (Exception, SystemExit) as error:
            self._broken(name, source, error)

    def _add(self, name: str, source: PluginSource, thing: object, options: dict[str, Any]) -> None:
        host = replace(self._host, options=options)
        found = collect(thing, host)
        tools = tuple(function for _, function in found if isinstance(function, FunctionTool))
        functions = tuple((hook, function) for hook, function in found if not isinstance(function, FunctionTool))
        if not functions and not tools:
            raise TypeError("there is no hook in it, and no tool")
        self.loaded.append(LoadedPlugin(name, source, host, functions, tools))

    def _doubt(self, candidate: PluginCandidate, content: bytes) -> str:
        """Why it must not run; nothing if it may."""
        if candidate.own or self._trust_all:
            return ""
        return self._trust.doubt(candidate.key, candidate.digest(content))

    def _broken(self, name: str, source: PluginSource, error: BaseException) -> None:
        self.skipped.append(SkippedPlugin(name, source, "broken", explain(error)))


def _report(plugins: Plugins) -> None:
    """Tell what is not at work, and why."""
    for each in plugins.skipped:
        if each.kind == "broken":
            log.warning("the plugin %s could not be loaded: %s", each.name, each.reason)
            plugins.publish(PluginFailed(plugin=each.name, hook="load", error=each.reason))
        elif each.kind == "foreign":
            log.debug("the plugin %s is passed over: %s", each.name, each.reason)
    untrusted = ", ".join(each.name for each in plugins.skipped if each.kind == "untrusted")
    if untrusted:
        told = "plugins of this project that nobody has trusted do not run: %s ('opensesh plugins' shows them)"
        log.warning(told, untrusted)


def candidates_needing_trust(config: Config) -> list[tuple[PluginCandidate, str]]:
    """The plugins that need trust, each with its digest as it is now; those that cannot be read are left out."""
    found: list[tuple[PluginCandidate, str]] = []
    for each in find(config)[0]:
        if not each.own:
            try:
                found.append((each, each.digest(_read(each.path) if each.path else b"")))
            except (OSError, ValueError):  # ValueError: no file can be called so
                continue
    return found


def _read(path: str) -> bytes:
    with open(path, "rb") as file:
        return file.read()


def _import(candidate: PluginCandidate, content: bytes) -> object:
    """What a candidate names. A file is run from the very bytes that were looked at, and leaves no cache behind."""
    if candidate.entry_point is not None:
        return candidate.entry_point.load()
    if candidate.path is None:
        return import_module(str(candidate.module))
    name = f"opensesh_plugin_{candidate.name}_{digest(candidate.path.encode())[:8]}"
    module = ModuleType(name)
    module.__file__ = candidate.path
    sys.modules[name] = module  # where pickles, dataclasses and type hints look for it
    try:
        exec(compile(content, candidate.path, "exec"), vars(module))  # noqa: S102
    except BaseException:
        del sys.modules[name]
        raise
    return module


def _named(name: str, source: PluginSource, text: str) -> object:
    """What a path or a module's name stands for."""
    if not text.endswith(".py"):
        return import_module(text)
    path = os.path.abspath(text)
    return _import(PluginCandidate(name, source, own=True, path=path), _read(path))


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


GROUP = "opensesh.plugins"
_MODULE = r"(?a)[A-Za-z_]\w*(\.[A-Za-z_]\w*)*"


class PluginCandidate(NamedTuple):
    """Something that may be a plugin."""

    name: str
    source: PluginSource
    own: bool
    """Whether the user put it there; else it came with the project, or from an organisation."""
    path: str | None = None
    module: str | None = None
    entry_point: EntryPoint | None = None
    options: dict[str, Any] = {}

    @property
    def key(self) -> str:
        """What trust in it is kept under."""
        return f"{self.source.named_by.rpartition(':')[0] or self.source.named_by}#{self.path or self.module}"

    def digest(self, content: bytes) -> str:
        """What stands for it as it is now, given the text of its file."""
        return digest(content, dumps_compact(self.options))


def find(config: Config) -> tuple[list[PluginCandidate], list[SkippedPlugin]]:
    """What there is, in the order in which it is loaded, and what is not for us. Of those that name the same file or
    module, the first place counts, and the options of the last that the user wrote."""
    skipped: list[SkippedPlugin] = []
    found: dict[str, PluginCandidate] = {}
    for each in (*_entry_points(), *_configured(config, skipped), *_in_folders(config)):
        target = each.path or each.module or f"entry point {each.source.place} {each.name}"
        if target not in found or each.own >= found[target].own:
            found[target] = each
    return list(found.values()), skipped


def _entry_points() -> Iterator[PluginCandidate]:
    points = [(point.dist.name if point.dist else "", point) for point in entry_points(GROUP)]
    for distribution, point in sorted(points, key=lambda each: (each[0], each[1].name)):
        place = f"{distribution} ({point.value})" if distribution else point.value
        yield PluginCandidate(point.name, PluginSource("entry point", place), own=True, entry_point=point)


def _configured(config: Config, skipped: list[SkippedPlugin]) -> Iterator[PluginCandidate]:
    for at, entry in enumerate(config.settings.plugin):
        pair = as_list(entry)
        text = str(pair[0] if pair else entry)
        options = (as_object(pair[1]) or {}) if pair and len(pair) > 1 else {}
        origin = config.origins.get(("plugin", at))
        path = _path(text, config)
        by = str(origin) if origin and origin.source != path else ""
        own = origin is not None and is_user_owned(origin.source, config)
        if path is not None and path.endswith(".py"):
            name = os.path.basename(path).removesuffix(".py")
            yield PluginCandidate(name, PluginSource("config", path, by), own, path=path, options=options)
        elif path is None and re.fullmatch(_MODULE, text):
            yield PluginCandidate(text, PluginSource("config", text, by), own, module=text, options=options)
        else:
            why = "it is an npm package" if path is None else "it is not a Python file"
            reason = f"{why}; OpenCode runs it, opensesh does not"
            name = os.path.basename(path) if path else text
            source = PluginSource("config" if by else "folder", path or text, by)
            skipped.append(SkippedPlugin(name, source, "foreign", reason))


def _path(text: str, config: Config) -> str | None:
    """The file that an entry names, if it names one."""
    if text.startswith("file:"):
        from urllib.parse import urlsplit
        from urllib.request import url2pathname

        try:
            return os.path.normpath(url2pathname(urlsplit(text).path))
        except ValueError:  # a host that cannot be one
            return None
    expanded = config.folders.expand(text)
    return os.path.normpath(expanded) if os.path.isabs(expanded) else None


def _in_folders(config: Config) -> Iterator[PluginCandidate]:
    for folder in config.directories:
        own = folder in user_folders(config)
        for path in plugin_files(folder, "*.py"):
            name = os.path.basename(path).removesuffix(".py")
            if not name.startswith(("_", ".")):
                yield PluginCandidate(name, PluginSource("folder", path), own, path=path)


FACTORY = "plugin"
"""The function of a module that makes a plugin: it is given the :class:`Host`."""


class CollectedHook(NamedTuple):
    """A hook, or a tool under the name of its own hook."""

    hook: str
    function: Callable[..., Any] | FunctionTool


def collect(thing: object, host: Host) -> list[CollectedHook]:
    """The hooks and tools of ``thing``, in the order in which they are written.

    Raises whatever a constructor or a function that makes a plugin raises, and ``TypeError`` or ``ValueError`` for what
    is no plugin.
    """
    found = list(_collect(thing, host))
    for hook, function in found:
        if ALL[hook].early and inspect.iscoroutinefunction(function):
            raise TypeError(f"the hook {hook} is called while the engine is being opened, so it cannot be async")
    return found


def _collect(thing: object, host: Host) -> Iterator[CollectedHook]:
    match thing:
        case ModuleType():
            yield from _module(thing, host)
        case FunctionTool():
            yield CollectedHook("tool", thing)
        case Mapping():
            for name, function in cast("Mapping[str, Any]", thing).items():
                if not callable(function):
                    raise TypeError(f"the hook {name!r} is a {type(function).__name__}, not a function")
                yield CollectedHook(named(name).name, function)
        case type():
            yield from _instance(_made(thing, host))
        case _ if inspect.isroutine(thing):
            hooks = hooks_of(thing, getattr(thing, "__name__", ""))
            yield from _found(thing, hooks) if hooks else _made_by(thing, host)
        case _:
            yield from _instance(thing)


def _module(module: ModuleType, host: Host) -> Iterator[CollectedHook]:
    """What the module itself wrote: what it imported from elsewhere is someone else's."""
    for name, value in list(vars(module).items()):
        if isinstance(value, FunctionTool):
            yield CollectedHook("tool", value)
            continue
        home = str(getattr(value, "__module__", None))
        if home != module.__name__ and not home.startswith(f"{module.__name__}."):
            continue
        if inspect.isfunction(value):
            hooks = hooks_of(value, name)
            yield from _made_by(value, host) if name == FACTORY and not hooks else _found(value, hooks)
        elif isinstance(value, type) and issubclass(value, Plugin) and value is not Plugin:
            yield from _instance(_made(value, host))


def _found(function: Callable[..., Any], hooks: Iterable[str]) -> Iterator[CollectedHook]:
    return (CollectedHook(hook, function) for hook in hooks)


def _made_by(function: Callable[..., Any], host: Host) -> Iterator[CollectedHook]:
    made = _made(function, host)
    if made is not None:
        yield from _collect(made, host)


def _instance(thing: object) -> Iterator[CollectedHook]:
    found = False
    for hook in ALL.values():
        function = getattr(thing, hook.method, None)
        inherited = getattr(type(thing), hook.method, None) is getattr(Plugin, hook.method)
        if callable(function) and not inherited:
            found = True
            yield CollectedHook(hook.name, function)
    if not found and not isinstance(thing, Plugin):
        raise TypeError(f"{thing!r} is no plugin: it has none of the hooks")


def _made(make: Callable[..., Any], host: Host) -> object:
    """What a class or a function makes; it may want the host."""
    wants_host = any(
        parameter.kind in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD, parameter.VAR_POSITIONAL)
        for parameter in inspect.signature(make).parameters.values()
    )
    made: object = make(host) if wants_host else make()
    at_once(made)
    return made
