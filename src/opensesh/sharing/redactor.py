"""What is taken out of everything before it leaves: secrets by their looks, and those this machine is known to hold.

A key that follows no pattern is still a key if it stands in ``auth.json`` or ``mcp-auth.json``, in the configuration,
or in a variable that is named like one.
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

_SHORTEST = 12
"""What is shorter may stand in a text by chance."""
_VARIABLE = re.compile(r"(?:KEY|TOKEN|SECRET|PASSWORD|PASSWD|PAT|CREDENTIALS?)\Z", re.IGNORECASE)
_FIELD = re.compile(r"access|refresh|(?:.*-)?authorization", re.IGNORECASE)
"""Names of fields that hold secrets beside those that a variable of that name would hold."""
_SCHEME = re.compile(r"(?:bearer|basic|token) +(?=\S+\Z)", re.IGNORECASE)
"""What stands before a secret in a header."""


class ShareRedactor(Redactor):
    """A redactor that knows some secrets by heart."""

    def __init__(self, known: Iterable[str] = ()) -> None:
        super().__init__()
        words = sorted({re.escape(word) for word in known if len(word) >= _SHORTEST}, key=len, reverse=True)
        self._known = re.compile("|".join(words)) if words else None

    def text(self, text: str) -> str:
        """Text without secrets."""
        if self._known is not None:
            text = self._known.sub(self._forgotten, text)
        return super().text(text)

    def _forgotten(self, _: re.Match[str]) -> str:
        self.counts["known-secret"] += 1
        return "[redacted:known-secret]"


def known_secrets(config: Mapping[str, Any], environ: Mapping[str, str] = os.environ) -> set[str]:
    """The secrets that this machine holds: in the environment, in OpenCode's files of logins, in the configuration."""
    found = {value for name, value in environ.items() if _VARIABLE.search(name) and not _is_file(value)}
    for name in ("auth.json", "mcp-auth.json"):
        with suppress(OSError, RecordError):  # without it nobody is logged in
            found.update(_secrets(loads(read_file(os.path.join(paths.data(), name)))))
    found.update(_secrets(config.get("provider")))
    found.update(_secrets(config.get("mcp")))
    return {word for word in found if len(word) >= _SHORTEST and not word.isspace()}


def _is_file(value: str) -> bool:
    """Whether a variable tells where a key is, rather than the key. Keys may begin with a slash, too."""
    return os.path.isabs(value) and os.path.exists(value)


def _secrets(value: Any, name: str = "") -> Iterator[str]:
    if isinstance(value, str) and (_VARIABLE.search(name) or _FIELD.fullmatch(name)):
        yield from {value, _SCHEME.sub("", value)}
    for inner, held in (as_object(value) or {}).items():
        yield from _secrets(held, inner)
    for held in as_list(value) or ():
        yield from _secrets(held)
