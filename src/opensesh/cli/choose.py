"""Which session, and which project, a word on the command line means."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..history.discovery import find_project_groups, is_global, project_groups, project_title
from ..history.discovery import find_session as find_among
from ..history.library import Library

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ..records import Session
    from ..storage.protocol import Store

__all__ = ["find_project_groups", "find_session", "is_global", "project_groups", "project_title", "read_sessions"]


def read_sessions(store: Store) -> Iterator[Session]:
    """Every session that can be read."""
    return (each for _, each in Library(store=store).records())


def find_session(store: Store, word: str) -> Session:
    """The session that ``word`` names: a full id, the beginning or end of one, a slug, or ``last``."""
    return find_among(read_sessions(store), word, store.place)
