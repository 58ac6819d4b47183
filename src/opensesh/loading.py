"""Libraries loaded faster than they load themselves, or not at all where they have nothing to say."""

from __future__ import annotations

import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from importlib.metadata import EntryPoint
    from typing import Any

_ABOUT = (".dist-info", ".egg-info")


def load_msgspec() -> None:
    """Load msgspec without ``typing_extensions``, which it asks for what ``typing`` has, and which takes as long to
    load as itself. For programs of one thread: another could miss it meanwhile."""
    __import__("datetime")  # msgspec would miss an interruption in there, and bring the process down at its first use
    loaded: Any = sys.modules
    if "msgspec" in loaded or "typing_extensions" in loaded:
        return
    loaded["typing_extensions"] = None
    try:
        __import__("msgspec")
    finally:
        del loaded["typing_extensions"]


def entry_points(group: str) -> Iterable[EntryPoint]:
    """The entry points of a group that installed distributions have.

    Most often there are none. To see that takes a look at one small file of each, where ``importlib.metadata`` loads
    all that it takes to read mail.
    """
    if not any(_names(place, group.encode()) for place in sys.path):
        return ()
    from importlib.metadata import entry_points

    return entry_points(group=group)


def _names(place: str, group: bytes) -> bool:
    """Whether a distribution in this place may have entry points of the group: an archive may."""
    try:
        found = os.listdir(place or ".")
    except NotADirectoryError:
        return True
    except OSError:
        return False
    return place.endswith(".egg") or any(group in text for text in _texts(place, found))


def _texts(place: str, found: Iterable[str]) -> Iterator[bytes]:
    for name in found:
        if name.endswith(_ABOUT):
            try:
                with open(os.path.join(place, name, "entry_points.txt"), "rb") as file:
                    yield file.read()
            except OSError:
                continue
