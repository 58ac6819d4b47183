"""Calls hooks: one after the other in the order in which their plugins were loaded.

Each gets what the one before it left. One that raises, or leaves something that cannot be used, is passed over: what it
was given stays as it was, and the log and the bus say which plugin it was, in which hook, and why.
"""

from __future__ import annotations

import asyncio
import logging
import os
from inspect import isawaitable, iscoroutine
from typing import TYPE_CHECKING, Any, Generic, Literal, NamedTuple, TypeVar

from msgspec import Struct

from ..events import PluginFailed

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ..events import Publish
    from ..tools.tool import Tool
    from .hooks import Hook, Named, Notice
    from .host import Given, Host
    from .vocabulary import Output

log = logging.getLogger("opensesh.plugins")
_HERE = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "")
Told = TypeVar("Told", bound="Given")
Changed = TypeVar("Changed", bound="Output")


class Source(Struct, frozen=True):
    """Where a plugin comes from."""

    kind: Literal["entry point", "config", "folder", "given", "MCP server", "provider", "script"]
    place: str
    """The file, module or distribution; of a server, the command line or the address; of a provider, the address."""
    named_by: str = ""
    """The file (and line) or variable of the configuration that names it, if one does."""


class Loaded(NamedTuple):
    """A plugin at work."""

    name: str
    source: Source
    host: Host
    functions: tuple[tuple[str, Callable[..., Any]], ...]
    """Its hooks, by OpenCode's names, in the order in which they are written."""
    tools: tuple[Tool, ...] = ()
    """The tools that stand in it; its ``tool`` hook may add more."""


class Skipped(Struct, frozen=True):
    """One that is not at work."""

    name: str
    source: Source
    kind: Literal["foreign", "untrusted", "broken"]
    """``foreign``: OpenCode's own, which needs JavaScript."""
    reason: str


class Applied(Struct, Generic[Changed], frozen=True):
    """What hooks made of something."""

    output: Changed
    by: tuple[str, ...] = ()
    """The plugins that changed it, in order."""


class Plugins:
    """Those at work in one engine."""

    def __init__(self, loaded: Sequence[Loaded] = (), skipped: Sequence[Skipped] = ()) -> None:
        self.loaded = tuple(loaded)
        self.skipped = tuple(skipped)
        self.tell: Publish = _nobody
        """Hears of hooks that failed."""
        self._told: set[tuple[str, str, str]] = set()
        self._functions: dict[str, list[tuple[Loaded, Callable[..., Any]]]] = {}
        for plugin in loaded:
            for hook, function in plugin.functions:
                self._functions.setdefault(hook, []).append((plugin, function))

    def __bool__(self) -> bool:
        """Whether there is anything to call."""
        return bool(self._functions)

    def wants(self, *hooks: Named) -> bool:
        """Whether any plugin has one of these hooks."""
        return bool(self._functions) and any(hook.name in self._functions for hook in hooks)

    async def apply(
        self,
        hook: Hook[Told, Changed],
        given: Told,
        output: Changed,
        *,
        check: Callable[[Changed], object] | None = None,
        passing: tuple[type[Exception], ...] = (),
    ) -> Applied[Changed]:
        """What the hooks make of ``output``.

        ``check`` raises for what cannot be used. Of what a hook raises, ``passing`` is not an accident, and comes out
        of here.
        """
        by: list[str] = []
        for plugin, function in self._functions.get(hook.name, ()):
            tried = output.copied()
            try:
                await _finished(function(given, tried))
                _checked(tried, check)
            except passing:
                raise
            except (Exception, SystemExit, asyncio.CancelledError) as error:
                self._contain(plugin, hook, error, given)
            else:
                if tried != output:
                    by.append(plugin.name)
                    output = tried
        return Applied(output, tuple(by))

    async def notify(self, hook: Notice[Told], given: Told) -> None:
        """Tell the hooks."""
        for plugin, function in self._functions.get(hook.name, ()):
            try:
                await _finished(function(given))
            except (Exception, SystemExit, asyncio.CancelledError) as error:
                self._contain(plugin, hook, error, given)

    def apply_early(
        self, hook: Hook[Host, Changed], output: Changed, check: Callable[[str, Changed], object] | None = None
    ) -> Applied[Changed]:
        """As :meth:`apply`, while the engine is being opened; each plugin is told of its own host."""
        by: list[str] = []
        for plugin, function in self._functions.get(hook.name, ()):
            tried = output.copied()
            try:
                at_once(function(plugin.host, tried))
                tried.check()
                if check is not None:
                    check(plugin.name, tried)
            except (Exception, SystemExit) as error:
                self._contain(plugin, hook, error, plugin.host)
            else:
                if tried != output:
                    by.append(plugin.name)
                    output = tried
        return Applied(output, tuple(by))

    async def dispose(self, hook: Notice[Host]) -> None:
        """Tell each plugin that this is the end."""
        for plugin in self.loaded:
            await Plugins([plugin]).notify(hook, plugin.host)

    def _contain(self, plugin: Loaded, hook: Named, error: BaseException, given: Given) -> None:
        if isinstance(error, asyncio.CancelledError) and _is_being_cancelled():
            raise error
        why = explain(error)
        seen = (plugin.name, hook.name, type(error).__name__)
        level = logging.DEBUG if seen in self._told else logging.WARNING
        self._told.add(seen)
        log.log(level, "the plugin %s failed in %s, and was passed over: %s", plugin.name, hook.name, why)
        session = getattr(given, "session_id", None)
        self.tell(PluginFailed(plugin=plugin.name, hook=hook.name, error=why, session_id=session))


async def _finished(answer: object) -> None:
    if isawaitable(answer):
        await answer


def at_once(answer: object) -> None:
    """What a function that must not wait returned."""
    if isawaitable(answer):
        if iscoroutine(answer):
            answer.close()
        raise TypeError("this is called while the engine is being opened, so it cannot be a coroutine function")


def _checked(output: Changed, check: Callable[[Changed], object] | None) -> None:
    output.check()
    if check is not None:
        check(output)


def _is_being_cancelled() -> bool:
    """Whether the task that called the hook was cancelled; not something that the hook waited for."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


def explain(error: BaseException) -> str:
    """An error in one line: its kind, its words, and the last place outside of this package that it passed."""
    words = " ".join(str(error).split())
    trace, where = error.__traceback__, ""
    while trace is not None:
        path = trace.tb_frame.f_code.co_filename
        if not path.startswith((_HERE, "<frozen ")):
            where = f" ({os.path.basename(path)}:{trace.tb_lineno})"
        trace = trace.tb_next
    return f"{type(error).__name__}{': ' if words else ''}{words}{where}"


def _nobody(event: object) -> None:
    """Nobody listens yet."""
