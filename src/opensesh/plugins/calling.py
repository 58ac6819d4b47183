"""Calls hooks: one after the other in the order in which their plugins were loaded.

Each gets what the one before it left. One that raises, or leaves something that cannot be used, is passed over: what it
was given stays as it was, and the log and the bus say which plugin it was, in which hook, and why.
"""

from __future__ import annotations

import asyncio
import logging
import os
from copy import deepcopy
from inspect import isawaitable, iscoroutine
from typing import TYPE_CHECKING, Any, Generic, Literal, NamedTuple, TypeVar

from msgspec import Struct

from ..events import PluginFailed
from . import hooks

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from types import TracebackType

    from ..bus import Bus, Subscription
    from ..config import Config
    from ..events import Publish
    from ..tools.tool import Tool
    from .hook_types import ConfigOutput, HookInput, HookOutput, Host, ProviderOutput
    from .hooks import Hook, HookBase, NotificationHook

log = logging.getLogger("opensesh.plugins")
_HERE = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "")
InputT = TypeVar("InputT", bound="HookInput")
OutputT = TypeVar("OutputT", bound="HookOutput")


class PluginSource(Struct, frozen=True):
    """Where a plugin comes from."""

    kind: Literal["entry point", "config", "folder", "given", "MCP server", "provider", "script"]
    place: str
    """The file, module or distribution; of a server, the command line or the address; of a provider, the address."""
    named_by: str = ""
    """The file (and line) or variable of the configuration that names it, if one does."""


class LoadedPlugin(NamedTuple):
    """A plugin at work."""

    name: str
    source: PluginSource
    host: Host
    functions: tuple[tuple[str, Callable[..., Any]], ...]
    """Its hooks, by OpenCode's names, in the order in which they are written."""
    tools: tuple[Tool, ...] = ()
    """The tools that stand in it; its ``tool`` hook may add more."""


class SkippedPlugin(Struct, frozen=True):
    """One that is not at work."""

    name: str
    source: PluginSource
    kind: Literal["foreign", "untrusted", "broken"]
    """``foreign``: OpenCode's own, which needs JavaScript."""
    reason: str


class HookResult(Struct, Generic[OutputT], frozen=True):
    """What hooks made of something."""

    output: OutputT
    changed_by: tuple[str, ...] = ()
    """The plugins that changed it, in order."""


class Plugins:
    """Those at work in one engine."""

    def __init__(self, loaded: Sequence[LoadedPlugin] = (), skipped: Sequence[SkippedPlugin] = ()) -> None:
        self.loaded = tuple(loaded)
        self.skipped = tuple(skipped)
        self.publish: Publish = _nobody
        """Hears of hooks that failed."""
        self._told: set[tuple[str, str, str]] = set()
        self._functions: dict[str, list[tuple[LoadedPlugin, Callable[..., Any]]]] = {}
        for plugin in loaded:
            for hook, function in plugin.functions:
                self._functions.setdefault(hook, []).append((plugin, function))

    def __bool__(self) -> bool:
        """Whether there is anything to call."""
        return bool(self._functions)

    def has_hook(self, *hooks: HookBase) -> bool:
        """Whether any plugin has one of these hooks."""
        return bool(self._functions) and any(hook.name in self._functions for hook in hooks)

    async def apply(
        self,
        hook: Hook[InputT, OutputT],
        given: InputT,
        output: OutputT,
        *,
        check: Callable[[OutputT], object] | None = None,
        passing: tuple[type[Exception], ...] = (),
    ) -> HookResult[OutputT]:
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
        return HookResult(output, tuple(by))

    async def notify(self, hook: NotificationHook[InputT], given: InputT) -> None:
        """Tell the hooks."""
        for plugin, function in self._functions.get(hook.name, ()):
            try:
                await _finished(function(given))
            except (Exception, SystemExit, asyncio.CancelledError) as error:
                self._contain(plugin, hook, error, given)

    def apply_sync(
        self, hook: Hook[Host, OutputT], output: OutputT, check: Callable[[str, OutputT], object] | None = None
    ) -> HookResult[OutputT]:
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
        return HookResult(output, tuple(by))

    async def dispose(self, hook: NotificationHook[Host]) -> None:
        """Tell each plugin that this is the end."""
        for plugin in self.loaded:
            await Plugins([plugin]).notify(hook, plugin.host)

    def _contain(self, plugin: LoadedPlugin, hook: HookBase, error: BaseException, given: HookInput) -> None:
        if isinstance(error, asyncio.CancelledError) and _is_being_cancelled():
            raise error
        why = explain(error)
        seen = (plugin.name, hook.name, type(error).__name__)
        level = logging.DEBUG if seen in self._told else logging.WARNING
        self._told.add(seen)
        log.log(level, "the plugin %s failed in %s, and was passed over: %s", plugin.name, hook.name, why)
        session = getattr(given, "session_id", None)
        self.publish(PluginFailed(plugin=plugin.name, hook=hook.name, error=why, session_id=session))


async def _finished(answer: object) -> None:
    if isawaitable(answer):
        await answer


def at_once(answer: object) -> None:
    """What a function that must not wait returned."""
    if isawaitable(answer):
        if iscoroutine(answer):
            answer.close()
        raise TypeError("this is called while the engine is being opened, so it cannot be a coroutine function")


def _checked(output: OutputT, check: Callable[[OutputT], object] | None) -> None:
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


def apply_config_hooks(plugins: Plugins, config: Config) -> Config:
    """The configuration as the plugins want it. What none of them could have written into a file is not taken."""
    if not plugins.has_hook(hooks.config, hooks.provider):
        return config
    from ..config.config import replace_document
    from .hook_types import ConfigOutput, ProviderOutput

    now = config

    def take(name: str, output: ConfigOutput) -> None:
        nonlocal now
        now = replace_document(now, output.document, f"the plugin {name}")

    plugins.apply_sync(hooks.config, ConfigOutput(document=config.document), take)

    def add(name: str, output: ProviderOutput) -> None:
        nonlocal now
        now = replace_document(now, now.document | {"provider": output.providers}, f"the plugin {name}")

    known = ProviderOutput(providers=now.document.get("provider") or {})
    plugins.apply_sync(hooks.provider, known, add)
    return now


def plugin_tools(plugins: Plugins) -> tuple[Tool, ...]:
    """The plugins' tools, in the order in which the plugins were loaded."""
    written: list[Tool] = [tool for plugin in plugins.loaded for tool in plugin.tools]
    if not plugins.has_hook(hooks.tool):
        return tuple(written)
    from .hook_types import ToolsOutput

    return tuple(plugins.apply_sync(hooks.tool, ToolsOutput(tools=written)).output.tools)


_PATIENCE = 5.0
"""Seconds that plugins get, when the engine closes, to hear of what is left."""


class EventFeed:
    """The events of a bus, for plugins that want them. It costs nothing where none does."""

    def __init__(self, plugins: Plugins, bus: Bus) -> None:
        self._plugins = plugins
        self._bus = bus
        self._group: asyncio.TaskGroup | None = None
        self._subscription: Subscription | None = None
        self._task: asyncio.Task[None] | None = None

    async def __aenter__(self) -> EventFeed:
        if self._plugins.has_hook(hooks.event):
            self._subscription = self._bus.subscribe(after=0)
            self._group = await asyncio.TaskGroup().__aenter__()
            self._task = self._group.create_task(self._run(self._subscription))
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._group is None or self._task is None or self._subscription is None:
            return
        self._subscription.close_after(self._bus.last)
        try:
            await asyncio.wait([self._task], timeout=_PATIENCE)
        finally:
            self._task.cancel()
            await self._group.__aexit__(None, None, None)

    async def _run(self, subscription: Subscription) -> None:
        from .hook_types import BusEvent

        async with subscription:
            async for envelope in subscription:
                event = envelope.event
                if isinstance(event, PluginFailed) and event.hook == hooks.event.name:
                    continue  # it would fail again, and tell of that
                await self._plugins.notify(hooks.event, BusEvent(event=deepcopy(event), sequence=envelope.sequence))
