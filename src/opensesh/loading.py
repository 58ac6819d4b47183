"""Libraries loaded faster than they load themselves."""

from __future__ import annotations

import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


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
