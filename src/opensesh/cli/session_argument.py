"""The session that a command line names."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

from ..errors import NotFoundError
from . import output

if TYPE_CHECKING:
    from ..history.library import Library, SessionEntry


def named_session(library: Library, word: str, *, to_change: bool = False) -> SessionEntry:
    """Return the session that ``word`` names. ``last`` is the newest of this project.

    Where the project has none, a command that only reads takes the newest elsewhere and says so; a command that is
    about ``to_change`` files or sessions raises :class:`~opensesh.errors.NotFoundError`, which names it.
    """
    try:
        return library.session(word, here=os.getcwd())
    except NotFoundError as error:
        newest = error.data.get("id")
        if to_change or word != "last" or not isinstance(newest, str):
            raise
        entry = library.session(newest)
        print(
            f"This project has no session. The newest elsewhere: {output.session_line(entry.record)}", file=sys.stderr
        )
        return entry
