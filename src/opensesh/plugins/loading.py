"""Loads plugins: imports what was found and may run, and collects its hooks. One that cannot be loaded costs nobody
else anything."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from ..config.trust import Trust, digest
from ..events import PluginFailed
from ..tools.custom import FunctionTool
from .calling import Loaded, Plugins, Skipped, Source, explain
from .collecting import collect
from .finding import Candidate, find
from .plugin import Plugin

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..config import Config
    from ..events import Publish
    from .host import Host

log = logging.getLogger("opensesh.plugins")

Pluggable = Plugin | type | ModuleType | FunctionTool | Mapping[str, Any] | Callable[..., Any] | str
"""What a Python program may hand in: whatever :func:`~opensesh.plugins.collecting.collect` takes, or the path of a
Python file, or the name of a module."""


def load(
    config: Config,
    host: Host,
    given: Sequence[Pluggable] = (),
    *,
    trust: Trust | None = None,
    look: bool = True,
    tell: Publish | None = None,
) -> Plugins:
    """The plugins of a directory: those that are found unless ``look`` is false or the environment forbids it, then
    those that are ``given``. ``tell`` hears of those that fail, now and later."""
    loader = _Loader(host, trust or Trust(), trust_all=config.flags.trust_plugins)
    if look and not config.flags.disable_plugins:
        candidates, loader.skipped[:] = find(config)
        for each in candidates:
            loader.take(each)
    for thing in given:
        loader.take_given(thing)
    plugins = Plugins(loader.loaded, loader.skipped)
    plugins.tell = tell or plugins.tell
    _report(plugins)
    return plugins


class _Loader:
    """One loading."""

    def __init__(self, host: Host, trust: Trust, *, trust_all: bool) -> None:
        self.loaded: list[Loaded] = []
        self.skipped: list[Skipped] = []
        self._host = host
        self._trust = trust
        self._trust_all = trust_all

    def take(self, candidate: Candidate) -> None:
        """Load it, if it may run."""
        try:
            content = _read(candidate.path) if candidate.path else b""
            doubt = self._doubt(candidate, content)
            if doubt:
                self.skipped.append(Skipped(candidate.name, candidate.source, "untrusted", doubt))
                return
            self._add(candidate.name, candidate.source, _import(candidate, content), candidate.options)
        except (Exception, SystemExit) as error:
            self._broken(candidate.name, candidate.source, error)

    def take_given(self, thing: Pluggable) -> None:
        """Load what a program hands in."""
        name, place = _name(thing), thing if isinstance(thing, str) else type(thing).__name__
        source = Source("given", place)
        try:
            self._add(name, source, _named(name, source, thing) if isinstance(thing, str) else thing, {})
        except (Exception, SystemExit) as error:
            self._broken(name, source, error)

    def _add(self, name: str, source: Source, thing: object, options: dict[str, Any]) -> None:
        host = replace(self._host, options=options)
        found = collect(thing, host)
        tools = tuple(function for _, function in found if isinstance(function, FunctionTool))
        functions = tuple((hook, function) for hook, function in found if not isinstance(function, FunctionTool))
        if not functions and not tools:
            raise TypeError("there is no hook in it, and no tool")
        self.loaded.append(Loaded(name, source, host, functions, tools))

    def _doubt(self, candidate: Candidate, content: bytes) -> str:
        """Why it must not run; nothing if it may."""
        if candidate.own or self._trust_all:
            return ""
        return self._trust.doubt(candidate.key, candidate.digest(content))

    def _broken(self, name: str, source: Source, error: BaseException) -> None:
        self.skipped.append(Skipped(name, source, "broken", explain(error)))


def _report(plugins: Plugins) -> None:
    """Tell what is not at work, and why."""
    for each in plugins.skipped:
        if each.kind == "broken":
            log.warning("the plugin %s could not be loaded: %s", each.name, each.reason)
            plugins.tell(PluginFailed(plugin=each.name, hook="load", error=each.reason))
        elif each.kind == "foreign":
            log.debug("the plugin %s is passed over: %s", each.name, each.reason)
    untrusted = ", ".join(each.name for each in plugins.skipped if each.kind == "untrusted")
    if untrusted:
        told = "plugins of this project that nobody has trusted do not run: %s ('opensesh plugins' shows them)"
        log.warning(told, untrusted)


def pending(config: Config) -> list[tuple[Candidate, str]]:
    """The plugins that need trust, each with its digest as it is now; those that cannot be read are left out."""
    found: list[tuple[Candidate, str]] = []
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


def _import(candidate: Candidate, content: bytes) -> object:
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


def _named(name: str, source: Source, text: str) -> object:
    """What a path or a module's name stands for."""
    if not text.endswith(".py"):
        return import_module(text)
    path = os.path.abspath(text)
    return _import(Candidate(name, source, own=True, path=path), _read(path))


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
