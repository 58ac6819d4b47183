"""Start-up shortcuts for msgspec and entry points."""

from __future__ import annotations

import os
import sys
from contextlib import suppress

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from importlib.metadata import EntryPoint
    from typing import Any


def load_msgspec() -> None:
    """Import msgspec without ``typing_extensions``, which takes as long to import and which it does not need.

    Only for single-threaded programs: another thread could fail to import ``typing_extensions`` meanwhile.
    """
    __import__("datetime")  # an interrupt while msgspec imports it would crash the process later
    loaded: Any = sys.modules
    if "msgspec" in loaded or "typing_extensions" in loaded:
        return
    loaded["typing_extensions"] = None
    try:
        __import__("msgspec")
    finally:
        del loaded["typing_extensions"]


def entry_points(group: str) -> Iterable[EntryPoint]:
    """Return the entry points of a group.

    Usually there are none, which one small file of each distribution tells; ``importlib.metadata`` imports ``email.*``.
    """
    if not any(_may_have(folder, group.encode()) for folder in sys.path):
        return ()
    from importlib.metadata import entry_points

    return entry_points(group=group)


def _may_have(folder: str, group: bytes) -> bool:
    """Whether a distribution in a folder of ``sys.path``, or an archive there, may have entry points of the group."""
    try:
        names = os.listdir(folder or ".")
    except NotADirectoryError:
        return True
    except OSError:
        return False
    if folder.endswith(".egg"):
        return True
    for name in names:
        if name.endswith((".dist-info", ".egg-info")):
            with suppress(OSError), open(os.path.join(folder, name, "entry_points.txt"), "rb") as file:
                if group in file.read():
                    return True
    return False
