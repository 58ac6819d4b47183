"""Reading back: every session there is, found, read, searched, counted.

::

    from opensesh import history

    for session in history.open().sessions(project="eastore"):
        print(session.title, session.cost)

Nothing here writes to a store, and importing it imports next to nothing.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from .library import Library

__all__ = ["open"]


def open(place: str | None = None) -> Library:  # noqa: A001 - the name is part of the front door
    """The history at ``place``: a storage folder, an OpenCode data folder (the default), or a database.

    Of a data folder, every generation of storage that is found there, as one. A place that was named and is not there
    is :class:`~opensesh.errors.NotFoundError`.
    """
    import os

    from ..errors import NotFoundError
    from .library import Library

    if place is not None and "://" not in place and not os.path.exists(os.path.expanduser(place)):
        raise NotFoundError(f"there is no store at {place}", path=place)
    return Library(place)
