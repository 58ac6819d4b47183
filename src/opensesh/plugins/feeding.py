"""Tells plugins of events: in order, one at a time, and beside the work, which never waits for them."""

from __future__ import annotations

import asyncio
from copy import deepcopy
from typing import TYPE_CHECKING

from ..events import PluginFailed
from . import hooks

if TYPE_CHECKING:
    from types import TracebackType

    from ..bus import Bus, Subscription
    from .calling import Plugins

_PATIENCE = 5.0
"""Seconds that plugins get, when the engine closes, to hear of what is left."""


class Feed:
    """The events of a bus, for plugins that want them. It costs nothing where none does."""

    def __init__(self, plugins: Plugins, bus: Bus) -> None:
        self._plugins = plugins
        self._bus = bus
        self._group: asyncio.TaskGroup | None = None
        self._subscription: Subscription | None = None
        self._task: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Feed:
        if self._plugins.wants(hooks.event):
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
        from .vocabulary import Heard

        async with subscription:
            async for envelope in subscription:
                event = envelope.event
                if isinstance(event, PluginFailed) and event.hook == hooks.event.name:
                    continue  # it would fail again, and tell of that
                await self._plugins.notify(hooks.event, Heard(event=deepcopy(event), sequence=envelope.sequence))
