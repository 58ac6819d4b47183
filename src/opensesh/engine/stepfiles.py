"""The project's files around one model call: what they were before its tools ran, and what the tools made of them."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from ..workspace import Patch, PendingSnapshot, Snapshots


_PATIENCE = 60.0
"""Seconds. The first snapshot of a large project can take minutes; the tools of a step do not wait so long."""


class After(NamedTuple):
    """The files after a call."""

    snapshot: str | None = None
    patch: Patch | None = None
    """What changed; ``None`` if nothing did."""


class StepFiles:
    """Snapshots for one call. The first is begun with the request, so that the first token need not wait for it."""

    def __init__(self, snapshots: Snapshots) -> None:
        self._snapshots = snapshots
        self._taking: PendingSnapshot | None = None

    def begin(self) -> None:
        """The request goes out."""
        self._taking = self._snapshots.begin()

    @property
    def ready(self) -> bool:
        """Whether :meth:`before` answers at once."""
        return self._taking is not None and self._taking.done

    async def before(self) -> str | None:
        """The snapshot of the files before the call; waited for before the first tool runs, but not for ever."""
        return await self._taking.result(_PATIENCE) if self._taking is not None else None

    async def after(self) -> After:
        """The files now, and what changed."""
        before = await self.before()
        if before is None:
            return After()
        return await asyncio.to_thread(self._compare, before)

    def _compare(self, before: str) -> After:
        now = self._snapshots.track()
        if now is None:
            return After()
        patch = self._snapshots.changed(before, now)
        return After(now, patch if patch.files else None)
