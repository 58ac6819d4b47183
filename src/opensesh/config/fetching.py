"""What opensesh asks of whoever fetches things from the network for it. By default nobody does."""

from __future__ import annotations

from typing import Protocol


class Fetch(Protocol):
    """A way to get what is behind a URL."""

    def __call__(self, url: str, /, *, timeout: float) -> bytes:
        """The body of a successful answer. Anything else (no connection, a status of 400 or more, more than
        ``timeout`` seconds) is an :class:`OSError`. It may be called from several threads at once.
        """
        ...
