"""The settings page: the look of pages in this browser, the keys, and the browsers that are signed in."""

from __future__ import annotations

import re

from ..operations import Call, Routes
from ..responses import RequestError
from .pages import render

pages = Routes()
_PROGRAMS = ("Edg", "OPR", "Firefox", "HeadlessChrome", "Chrome", "Safari", "curl")
_SYSTEMS = ("Android", "iPhone", "iPad", "Windows", "Mac OS X", "Linux")


@pages.get("/ui/settings", "ui.settings", response=None)
async def settings_page(call: Call) -> object:
    """Show the settings of this browser, and all signed-in browsers."""
    own = call.request.scope["opensesh.browser"]
    rows = [
        {
            "id": browser.id,
            "name": _program_name(browser.user_agent),
            "signed_in": int(browser.signed_in * 1000),
            "last_used": int(browser.last_used * 1000),
            "is_own": browser is own,
        }
        for browser in call.state.browsers.signed_in()
    ]
    return render(call, "settings.html", browsers=rows, keys=KEYS)


@pages.get("/ui/keys", "ui.keys", response=None)
async def keys_page(call: Call) -> object:
    """Show all keys."""
    return render(call, "keys.html", keys=KEYS)


@pages.delete("/ui/browsers/{browserID}", "ui.signOut", response=None, status=204)
async def sign_out(call: Call) -> None:
    """End the sign-in of a browser."""
    browser_id = call.parameters["browserID"]
    if not call.state.browsers.sign_out(browser_id):
        raise RequestError(404, "NotFoundError", f"there is no signed-in browser {browser_id}")


def _program_name(user_agent: str) -> str:
    """Return the program and system in a User-Agent header, as far as they are known."""
    names = [next((name for name in known if name in user_agent), "") for known in (_PROGRAMS, _SYSTEMS)]
    version = re.search(rf"{re.escape(names[0])}/(\d+)", user_agent) if names[0] else None
    program = f"{names[0]} {version[1]}" if version else names[0]
    return " on ".join(name for name in (program, names[1]) if name) or "unknown program"


KEYS = (
    (
        "Everywhere",
        (
            ("/", "search everything"),
            ("Ctrl K", "palette: sessions, projects, pages"),
            ("?", "all keys"),
            ("g s", "Sessions"),
            ("g l", "Live"),
            ("g p", "Projects"),
            ("g c", "Costs"),
            ("g d", "Doctor"),
            ("Esc", "close, or leave a field"),
        ),
    ),
    (
        "Lists",
        (
            ("j", "next row"),
            ("k", "previous row"),
            ("Enter", "open"),
            ("x", "select the row"),
            ("e", "archive"),
            ("u", "undo"),
        ),
    ),
    (
        "Session",
        (
            ("j", "next turn"),
            ("k", "previous turn"),
            ("n", "next prompt"),
            ("p", "previous prompt"),
            ("g", "first turn"),
            ("G", "last turn"),
            ("f", "find in the session"),
            ("o", "unfold this"),
            ("O", "unfold all"),
            ("t", "thinking on, off"),
            ("c", "changes"),
            ("i", "write a prompt"),
            (".", "actions of the turn"),
            ("[", "previous session"),
            ("]", "next session"),
            ("Esc Esc", "abort the run"),
        ),
    ),
    (
        "Requests, while one has the focus",
        (("y", "allow once"), ("a", "allow always"), ("r", "deny")),
    ),
)
"""The keys of the pages, by where they act."""
