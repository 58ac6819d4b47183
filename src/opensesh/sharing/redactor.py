"""Redaction of what is shared: secrets that match a pattern, and the secrets that this machine is known to hold.

A key that matches no pattern is still recognised if it is in ``auth.json`` or ``mcp-auth.json``, in the configuration,
or in an environment variable with a telling name.
"""

from __future__ import annotations

import os
import re
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from ..errors import RecordError
from ..history.import_export.redaction import Redactor
from ..records import as_list, as_object, loads
from ..storage import paths
from ..storage.disk import read_file

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

_MIN_SECRET_LENGTH = 12
"""Shorter values may occur in a text by chance."""
_SECRET_NAME = re.compile(r"(?:KEY|TOKEN|SECRET|PASSWORD|PASSWD|PAT|CREDENTIALS?)\Z", re.IGNORECASE)
"""Names of environment variables and fields that hold secrets."""
_SECRET_FIELD = re.compile(r"access|refresh|(?:.*-)?authorization", re.IGNORECASE)
"""Names of fields that hold secrets, in addition."""
_AUTH_SCHEME = re.compile(r"(?:bearer|basic|token) +(?=\S+\Z)", re.IGNORECASE)


class ShareRedactor(Redactor):
    """A redactor that also removes a given set of secrets."""

    def __init__(self, known: Iterable[str] = ()) -> None:
        super().__init__()
        # The longest first: one secret may be the beginning of another.
        words = sorted({re.escape(word) for word in known if len(word) >= _MIN_SECRET_LENGTH}, key=len, reverse=True)
        self._known = re.compile("|".join(words)) if words else None

    def text(self, text: str) -> str:
        """Return a text without secrets."""
        if self._known is not None:
            text, count = self._known.subn("[redacted:known-secret]", text)
            if count:
                self.counts["known-secret"] += count
        return super().text(text)


def known_secrets(config: Mapping[str, Any], environ: Mapping[str, str] = os.environ) -> set[str]:
    """Return the secrets of this machine: from the environment, OpenCode's login files and the configuration."""
    secrets = {
        value
        for name, value in environ.items()
        # A path is where a key is, not the key; but a key may begin with a slash, too.
        if _SECRET_NAME.search(name) and not (os.path.isabs(value) and os.path.exists(value))
    }
    for name in ("auth.json", "mcp-auth.json"):
        with suppress(OSError, RecordError):  # no such file: no logins
            secrets.update(_secrets(loads(read_file(os.path.join(paths.data(), name)))))
    secrets.update(_secrets(config.get("provider")))
    secrets.update(_secrets(config.get("mcp")))
    return {word for word in secrets if len(word) >= _MIN_SECRET_LENGTH and not word.isspace()}


def _secrets(value: Any, name: str = "") -> Iterator[str]:
    if isinstance(value, str) and (_SECRET_NAME.search(name) or _SECRET_FIELD.fullmatch(name)):
        yield from {value, _AUTH_SCHEME.sub("", value)}
    for field, inner in (as_object(value) or {}).items():
        yield from _secrets(inner, field)
    for inner in as_list(value) or ():
        yield from _secrets(inner)
