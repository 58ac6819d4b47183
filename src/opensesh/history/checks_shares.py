"""Checks shares: those that still stand although they were to be taken down."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..storage import revocations
from .findings import Finding

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ..storage.store import Damage


def check_shares() -> Iterator[Finding]:
    """Every share that waits to be taken down, whatever store its session was in; and notes that cannot be read."""
    damage: list[Damage] = []
    for session, share in revocations.waiting(report=damage.append):
        message = f"the session is gone, or was to be unshared, and {share.url} may still be read by others"
        yield Finding("share", session, message, "odd", remedy="opensesh session unshare --pending")
    for path, reason in damage:
        yield Finding("share", path, f"a share that was to be taken down: {reason}", "damage")
