"""Checks shares: those that still stand although they were to be taken down."""

from __future__ import annotations

import os
import shlex
from typing import TYPE_CHECKING

from ...storage import find_stores, revocations
from ...storage.protocol import store_ids
from .findings import Finding

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ...storage.protocol import Damage, Store

_WHY = {"removed": "the session is gone", "unshared": "it was to be unshared"}


def remedy(store: Store) -> str:
    """The command that takes down what waits in a store."""
    usual = find_stores()
    home = store_ids(store)[0]
    if os.path.realpath(usual.tree or usual.place) == home:
        return "opensesh session unshare --pending"
    return f"opensesh session unshare --pending --store {shlex.quote(home)}"


def check_shares(store: Store) -> Iterator[Finding]:
    """Every share of a store that waits to be taken down; and notes that cannot be read."""
    damage: list[Damage] = []
    for session, share in revocations.waiting(store, report=damage.append):
        why = _WHY.get(revocations.reason_of(share), "the session is gone, or was to be unshared")
        message = f"{why}, and {share.url} may still be read by others"
        yield Finding("share", session, message, "odd", remedy=remedy(store))
    for path, reason in damage:
        yield Finding("share", path, f"a share that was to be taken down: {reason}", "damage")
