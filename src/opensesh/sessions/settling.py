"""Completion of work in several steps that a killed process left behind in a store.

Every front end settles the store that it opens: commands, the server, and programs that use the Python API.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from ..errors import OpenseshError
from ..storage import unfinished
from ..text import pluralize

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..storage.protocol import Store

log = logging.getLogger("opensesh.sessions")


def settle(store: Store, report: Callable[[str], object] = log.warning) -> Store:
    """Complete or undo what a process that was killed had begun to change in ``store``, and return the store.

    Reads one folder if nothing is unfinished. ``report`` is called with a line about each operation, also about one
    that could not be settled now, on a disk that is full for instance: its note stays for the next time.
    """
    if not unfinished.has_notes():
        return store
    from ..storage.json_tree.journal import complete_journals  # these take long to load and are hardly ever needed
    from .undo import undo_unfinished

    try:
        if completed := complete_journals(store):
            report(f"An operation that was interrupted is completed: {pluralize(completed, 'file')}.")
        for header, result in undo_unfinished(store):
            left = f", {len(result.left)} could not be" if result.left else ""
            restored = pluralize(result.restored, "file")
            report(f"A '{header.what}' that was interrupted is undone: {restored} restored{left}.")
    except (OpenseshError, OSError) as error:
        report(f"An operation that was interrupted could be neither completed nor undone: {error}")
    return store
