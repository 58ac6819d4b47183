"""Browsers that may use the web pages: one-time tickets, and the sign-ins that they are exchanged for.

A sign-in has two secrets. The cookie is sent by the browser itself, also to other ports of the same host and by pages
of other ports, so that it only permits to read pages. The key is kept in ``localStorage``, which belongs to one origin,
and permits to change things. Both are in memory only: they end with the server.
"""

from __future__ import annotations

import hmac
import secrets
import time
from contextlib import contextmanager
from hashlib import sha256
from typing import TYPE_CHECKING

from ...asgi.requests import cookie_value

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Mapping

KEY_HEADER = "x-opensesh-key"
TICKET_SECONDS = 120
SIGN_IN_SECONDS = 7 * 24 * 3600
"""How long a browser that asks for nothing stays signed in."""
MAX_STREAMS = 4
"""How many event streams a browser can read at the same time. Its tabs share one where they can, and a browser that has
six connections open to a server cannot load a page."""
_MAX_TICKETS = 100
_MAX_BROWSERS = 100


class Browser:
    """A browser that is signed in."""

    def __init__(self, key: str, user_agent: str, now: float) -> None:
        self.id = secrets.token_hex(4)
        """Names it in lists; not a secret."""
        self.key = key
        self.user_agent = user_agent
        self.signed_in = now
        """Seconds since 1970."""
        self.last_used = now
        self.streams = 0
        """How many event streams it reads now."""

    @contextmanager
    def stream(self) -> Generator[None]:
        """Count an event stream as long as it is read."""
        self.streams += 1
        try:
            yield
        finally:
            self.streams -= 1


class Browsers:
    """The tickets and signed-in browsers of one server."""

    def __init__(self, clock: Callable[[], float] = time.time) -> None:
        self._clock = clock
        self._tickets: dict[str, float] = {}
        """When each ticket ends."""
        self._browsers: dict[bytes, Browser] = {}
        """The browsers by the digest of their cookie: looking up a digest takes the same time for every guess."""
        self.cookie_name = "opensesh"
        """Contains the port of the server, because cookies of all ports of a host are sent to each of them."""
        self.control_token = secrets.token_urlsafe(32)
        """A secret with which programs of the same user get tickets; see :mod:`opensesh.server.web.server_file`."""

    def issue_ticket(self) -> str:
        """Return a ticket that signs in one browser, within :data:`TICKET_SECONDS`."""
        now = self._clock()
        valid = {ticket: end for ticket, end in self._tickets.items() if end > now}
        self._tickets = dict(list(valid.items())[-_MAX_TICKETS + 1 :])
        ticket = secrets.token_urlsafe(16)
        self._tickets[ticket] = now + TICKET_SECONDS
        return ticket

    def redeem(self, ticket: str) -> bool:
        """Use up a ticket; return whether it was valid."""
        return self._tickets.pop(ticket, 0.0) > self._clock()

    def sign_in(self, user_agent: str) -> tuple[str, str]:
        """Sign in a browser, and return the value of its cookie and its key."""
        cookie, key = secrets.token_urlsafe(32), secrets.token_urlsafe(32)
        self._browsers[_digest(cookie)] = Browser(key, user_agent[:200], self._clock())
        if len(self._browsers) > _MAX_BROWSERS:
            idle = min(self._browsers, key=lambda digest: self._browsers[digest].last_used)
            del self._browsers[idle]
        return cookie, key

    def sign_out(self, browser_id: str) -> bool:
        """End a sign-in; return whether there was one."""
        digests = [digest for digest, browser in self._browsers.items() if browser.id == browser_id]
        for digest in digests:
            del self._browsers[digest]
        return bool(digests)

    def signed_in(self) -> list[Browser]:
        """Return the browsers, those used last first."""
        self._end_idle()
        return sorted(self._browsers.values(), key=lambda browser: -browser.last_used)

    def identify(self, headers: Mapping[str, str]) -> Browser | None:
        """Return the browser whose cookie a request has."""
        self._end_idle()
        browser = self._browsers.get(_digest(cookie_value(headers, self.cookie_name)))
        if browser is not None:
            browser.last_used = self._clock()
        return browser

    def _end_idle(self) -> None:
        oldest = self._clock() - SIGN_IN_SECONDS
        for digest in [digest for digest, browser in self._browsers.items() if browser.last_used < oldest]:
            del self._browsers[digest]


def has_key(browser: Browser, headers: Mapping[str, str]) -> bool:
    """Whether a request has the key of the browser."""
    return hmac.compare_digest(headers.get(KEY_HEADER, "").encode(), browser.key.encode())


def is_same_origin(headers: Mapping[str, str]) -> bool:
    """Whether a page of this server sent a request: by Origin, and by what browsers add about the site."""
    if headers.get("sec-fetch-site", "same-origin") != "same-origin":
        return False
    scheme, _, host = headers.get("origin", "").partition("://")
    return (scheme in ("http", "https") and host.lower() == headers.get("host", "").lower()) or (
        "origin" not in headers and "sec-fetch-site" in headers  # a GET of the same origin has no Origin
    )


def _digest(cookie: str) -> bytes:
    return sha256(cookie.encode()).digest()
