"""The life of a session, for every store: create, fork, update, archive, move, trash, restore, remove.

:class:`Sessions` works on one session at a time. Operations on many sessions at once, with an undo file, are in
:mod:`opensesh.sessions.trash` and :mod:`opensesh.sessions.moving`.
"""

from __future__ import annotations

from .forking import fork_title
from .service import Sessions
from .slugs import default_title

__all__ = ["Sessions", "default_title", "fork_title"]
