"""Opening the user's browser."""

from __future__ import annotations

import os
import sys
import webbrowser


def open_browser(url: str) -> bool:
    """Open an address; return whether a browser was started.

    None is started without a display: a browser of the terminal would hide what is printed there, and has no scripts.
    """
    has_display = (
        os.name == "nt" or sys.platform == "darwin" or any(map(os.environ.get, ("DISPLAY", "WAYLAND_DISPLAY")))
    )
    if not has_display and not os.environ.get("BROWSER"):
        return False
    try:
        return webbrowser.open(url)
    except webbrowser.Error:
        return False
