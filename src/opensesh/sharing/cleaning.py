"""What is taken out of everything before it leaves: secrets by their looks, and those this machine is known to hold.

A key that follows no pattern is still a key if it stands in ``auth.json``, in the configuration, or in a variable that
is named like one.
"""

from __future__ import annotations

import os
import re
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from ..errors import RecordError
from ..history.exchange.redaction import Redactor
from ..records import as_list, as_object, loads
from ..storage import paths
from ..storage.json_tree import read_file

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

_SHORTEST = 12
"""What is shorter may stand in a text by chance."""
_VARIABLE = re.compile(r"(?:KEY|TOKEN|SECRET|PASSWORD|PASSWD|PAT|CREDENTIALS?)\Z", re.IGNORECASE)
_FIELD = re.compile(r"access|refresh|authorization", re.IGNORECASE)
"""Names of fields that hold secrets beside those that a variable of that name would hold."""


class Cleaner(Redactor):
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
    """The secrets that this machine holds: in the environment, in OpenCode's ``auth.json``, in the configuration."""
    found = {value for name, value in environ.items() if _VARIABLE.search(name) and not os.path.isabs(value)}
    with suppress(OSError, RecordError):  # without it nobody is logged in
        found.update(_secrets(loads(read_file(os.path.join(paths.data(), "auth.json")))))
    found.update(_secrets(config.get("provider")))
    found.update(_secrets(config.get("mcp")))
    return {word for word in found if len(word) >= _SHORTEST and not word.isspace()}


def _secrets(value: Any, name: str = "") -> Iterator[str]:
    if isinstance(value, str) and (_VARIABLE.search(name) or _FIELD.fullmatch(name)):
        yield value
    for inner, held in (as_object(value) or {}).items():
        yield from _secrets(held, inner)
    for held in as_list(value) or ():
        yield from _secrets(held)
