"""Calls plugin hooks, one after the other, in the order in which the plugins were loaded.

Each hook gets what the previous one left. A hook that raises, or leaves an invalid output, is skipped: its output is
discarded, and the log and the bus name the plugin, the hook and the reason. Callers of hooks with which a plugin may
forbid something must look at :attr:`HookResult.failures`: a hook that failed must not allow what it was to forbid.
"""

from __future__ import annotations

import asyncio
import logging
import os
from contextlib import asynccontextmanager
from copy import deepcopy
from inspect import isawaitable, iscoroutine
from typing import TYPE_CHECKING, Any, Generic, Literal, NamedTuple, TypeVar

from msgspec import Struct

from ..config.config import replace_document
from ..containment import describe, ends_task
from ..errors import PluginError
from ..events import PluginFailed
from . import hooks
from .hook_types import BusEvent, ConfigOutput, ProviderOutput, ToolsOutput

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Sequence

    from ..bus import Bus
    from ..config import Config
    from ..events import Publish
    from ..tools.tool import Tool
    from .hook_types import HookInput, HookOutput, Host
    from .hooks import Hook, HookBase, NotificationHook

log = logging.getLogger("opensesh.plugins")
_PACKAGE = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "")
_CLOSE_TIMEOUT_SECONDS = 5.0
InputT = TypeVar("InputT", bound="HookInput")
OutputT = TypeVar("OutputT", bound="HookOutput")


class PluginSource(Struct, frozen=True):
    """The origin of a plugin."""

    kind: Literal["entry point", "config", "folder", "given", "MCP server", "provider", "script", "command", "agent"]
    place: str
    """The file, module or distribution; for a server, the command line or address; for a provider, the address."""
    named_by: str = ""
    """The file (and line) or variable of the configuration that names it, if any."""


class LoadedPlugin(NamedTuple):
    """A plugin in use."""

    name: str
    source: PluginSource
    host: Host
    functions: tuple[tuple[str, Callable[..., Any]], ...]
    """Its hooks, by OpenCode's names, in the order of the source."""
    tools: tuple[Tool, ...] = ()
    """The tools that it defines; its ``tool`` hook may add more."""


class SkippedPlugin(Struct, frozen=True):
    """A plugin that is not used."""

    name: str
    source: PluginSource
    kind: Literal["foreign", "untrusted", "broken"]
    """``foreign``: a JavaScript plugin of OpenCode's."""
    reason: str


class HookResult(Struct, Generic[OutputT], frozen=True):
    """The output after all hooks."""

    output: OutputT
    changed_by: tuple[str, ...] = ()
    """The plugins that changed it, in order."""
    failures: tuple[tuple[str, str], ...] = ()
    """The plugins whose hook failed, and why."""


class Plugins:
    """The plugins of one engine."""

    def __init__(self, loaded: Sequence[LoadedPlugin] = (), skipped: Sequence[SkippedPlugin] = ()) -> None:
        self.loaded = tuple(loaded)
        self.skipped = tuple(skipped)
        self.publish: Publish = lambda event: None
        """Publishes failures of hooks."""
        self._reported: set[tuple[str, str, str]] = set()
        self._functions: dict[str, list[tuple[LoadedPlugin, Callable[..., Any]]]] = {}
        for plugin in loaded:
            for hook, function in plugin.functions:
                self._functions.setdefault(hook, []).append((plugin, function))
        self.have_hooks = bool(self._functions)
        """Whether there is anything to call."""

    def has_hook(self, *hooks: HookBase) -> bool:
        """Return whether any plugin has one of these hooks."""
        return any(hook.name in self._functions for hook in hooks)

    async def apply(
        self,
        hook: Hook[InputT, OutputT],
        hook_input: InputT,
        output: OutputT,
        *,
        check: Callable[[OutputT], object] | None = None,
        passing: tuple[type[Exception], ...] = (),
    ) -> HookResult[OutputT]:
        """Call the hooks with ``output`` and return the result.

        ``check`` raises for an invalid output. Exceptions in ``passing`` are raised to the caller; all others are
        contained.
        """
        changed_by: list[str] = []
        failures: list[tuple[str, str]] = []
        task = asyncio.current_task()
        for plugin, function in self._functions.get(hook.name, ()):
            candidate = output.copied()
            try:
                returned = function(hook_input, candidate)
                if isawaitable(returned):
                    await returned
                candidate.check()
                if check is not None:
                    check(candidate)
            except passing:
                raise
            except BaseException as error:
                if ends_task(error, task):
                    raise
                failures.append((plugin.name, self._contain(plugin, hook, error, hook_input)))
            else:
                if candidate != output:
                    changed_by.append(plugin.name)
                    output = candidate
        return HookResult(output, tuple(changed_by), tuple(failures))

    def apply_sync(
        self, hook: Hook[Host, OutputT], output: OutputT, check: Callable[[str, OutputT], object] | None = None
    ) -> HookResult[OutputT]:
        """Call hooks while the engine is being opened, where nothing can be awaited. Each gets its plugin's host."""
        changed_by: list[str] = []
        failures: list[tuple[str, str]] = []
        for plugin, function in self._functions.get(hook.name, ()):
            candidate = output.copied()
            try:
                reject_awaitable(function(plugin.host, candidate))
                candidate.check()
                if check is not None:
                    check(plugin.name, candidate)
            except KeyboardInterrupt:  # Ctrl-C, while an engine is being opened
                raise
            except BaseException as error:
                failures.append((plugin.name, self._contain(plugin, hook, error, plugin.host)))
            else:
                if candidate != output:
                    changed_by.append(plugin.name)
                    output = candidate
        return HookResult(output, tuple(changed_by), tuple(failures))

    async def notify(self, hook: NotificationHook[InputT], hook_input: InputT) -> None:
        """Call hooks that have no output."""
        task = asyncio.current_task()
        for plugin, function in self._functions.get(hook.name, ()):
            try:
                returned = function(hook_input)
                if isawaitable(returned):
                    await returned
            except BaseException as error:
                if ends_task(error, task):
                    raise
                self._contain(plugin, hook, error, hook_input)

    async def dispose(self, timeout_seconds: float) -> None:
        """Call the ``dispose`` hook of each plugin with its own host, for at most ``timeout_seconds`` altogether."""
        try:
            async with asyncio.timeout(timeout_seconds):
                for plugin in self.loaded:
                    await Plugins([plugin]).notify(hooks.dispose, plugin.host)
        except TimeoutError:
            log.warning("a plugin took too long to close")

    def _contain(self, plugin: LoadedPlugin, hook: HookBase, error: BaseException, hook_input: HookInput) -> str:
        """Report a failure; return the reason."""
        reason = explain(error)
        failure = (plugin.name, hook.name, type(error).__name__)
        level = logging.DEBUG if failure in self._reported else logging.WARNING
        self._reported.add(failure)
        log.log(level, "the plugin %s failed in %s and was skipped: %s", plugin.name, hook.name, reason)
        session_id = getattr(hook_input, "session_id", None)
        self.publish(PluginFailed(plugin=plugin.name, hook=hook.name, error=reason, session_id=session_id))
        return reason


def reject_awaitable(returned: object) -> None:
    """Raise :class:`TypeError` if a function that must be synchronous returned a coroutine."""
    if isawaitable(returned):
        if iscoroutine(returned):
            returned.close()
        raise TypeError("this is called while the engine is being opened, so it cannot be a coroutine function")


def explain(error: BaseException) -> str:
    """Describe an error in one line: its class, its message, and the last line outside of this package."""
    message = " ".join(describe(error).split()).removesuffix(":")
    trace, where = error.__traceback__, ""
    while trace is not None:
        path = trace.tb_frame.f_code.co_filename
        if not path.startswith((_PACKAGE, "<frozen ")):
            where = f" ({os.path.basename(path)}:{trace.tb_lineno})"
        trace = trace.tb_next
    return message + where


def apply_config_hooks(plugins: Plugins, config: Config) -> Config:
    """Return the configuration after the ``config`` and ``provider`` hooks.

    Raises :class:`~opensesh.errors.PluginError` if a ``config`` hook fails: without its changes, permissions, sharing
    or tools could be open that it closes. A ``provider`` hook that fails is skipped.
    """
    if not plugins.has_hook(hooks.config, hooks.provider):
        return config
    current = config

    def change_config(name: str, output: ConfigOutput) -> None:
        nonlocal current
        current = replace_document(current, output.document, f"the plugin {name}")

    changed = plugins.apply_sync(hooks.config, ConfigOutput(document=config.document), change_config)
    if changed.failures:
        name, reason = changed.failures[0]
        source = next((plugin.source for plugin in plugins.loaded if plugin.name == name), None)
        where = f" ({source.named_by or source.place})" if source else ""
        raise PluginError(
            f"the plugin {name}{where} failed in its config hook: {reason}. No session is run without it, because it "
            "may restrict permissions, tools or sharing. Repair it, or remove it from the configuration",
            plugin=name,
        )

    def change_providers(name: str, output: ProviderOutput) -> None:
        nonlocal current
        current = replace_document(current, current.document | {"provider": output.providers}, f"the plugin {name}")

    providers = ProviderOutput(providers=current.document.get("provider") or {})
    plugins.apply_sync(hooks.provider, providers, change_providers)
    return current


def plugin_tools(plugins: Plugins) -> tuple[Tool, ...]:
    """Return the plugins' tools, in the order in which the plugins were loaded."""
    tools: list[Tool] = [tool for plugin in plugins.loaded for tool in plugin.tools]
    if not plugins.has_hook(hooks.tool):
        return tuple(tools)
    return tuple(plugins.apply_sync(hooks.tool, ToolsOutput(tools=tools)).output.tools)


@asynccontextmanager
async def feed_events(
    plugins: Plugins, bus: Bus, *, close_timeout_seconds: float = _CLOSE_TIMEOUT_SECONDS
) -> AsyncGenerator[None]:
    """Call the ``event`` hooks for every event on the bus, in order, concurrently with the body.

    ``close_timeout_seconds`` is how long hooks may take for the remaining events when the body has ended.
    """
    if not plugins.has_hook(hooks.event):
        yield
        return

    async def feed() -> None:
        async with subscription:
            async for envelope in subscription:
                event = envelope.event
                if isinstance(event, PluginFailed) and event.hook == hooks.event.name:
                    continue  # it would fail again, and publish that again
                await plugins.notify(hooks.event, BusEvent(event=deepcopy(event), sequence=envelope.sequence))

    subscription = bus.subscribe(after=0)
    group = await asyncio.TaskGroup().__aenter__()  # entered like this, it leaves errors of the body as they are
    task = group.create_task(feed())
    try:
        yield
    finally:
        subscription.close_after(bus.last)
        try:
            await asyncio.wait([task], timeout=close_timeout_seconds)
        finally:
            task.cancel()
            await group.__aexit__(None, None, None)
