"""The history: list, read, search and count all sessions.

::

    from opensesh import history

    for session in history.open().sessions(project="eastore"):
        print(session.title, session.cost)

Nothing here writes to a store.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from .library import Library

__all__ = ["open"]


def open(place: str | None = None) -> Library:  # noqa: A001 - history.open() is the public name
    """Open the history at ``place``: a storage folder, an OpenCode data folder (the default), a database, or a URL.

    All stores of a data folder are opened as one. Raises :class:`~opensesh.errors.NotFoundError` if the place does not
    exist.
    """
    import os

    from ..errors import NotFoundError
    from .library import Library

    if place is not None and "://" not in place and not os.path.exists(os.path.expanduser(place)):
        raise NotFoundError(f"there is no store at {place}", path=place)
    return Library(place)
