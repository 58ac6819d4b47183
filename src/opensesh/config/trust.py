"""Which programs of a project may run: those that the user said yes to, as they were then.

A project's plugins, and the servers that its configuration names, are programs from its repository, and whoever clones
one has not read it. So one of them runs only once the user has trusted it, and only for as long as it is what it was:
what it is known by and a digest are kept. The digest does not cover what a file imports.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Literal

from ..errors import RecordError
from ..records import dumps, loads_object
from ..storage import paths
from ..storage.disk import Disk

if TYPE_CHECKING:
    from collections.abc import Iterable

NAME = "trusted-plugins.json"


def digest(*pieces: bytes) -> str:
    """What stands for a program as it is now."""
    from hashlib import sha256

    whole = sha256()
    for piece in pieces:
        whole.update(len(piece).to_bytes(8, "big") + piece)
    return whole.hexdigest()


class Trust:
    """What the user has trusted, in a file of opensesh's own state: no repository can bring it along."""

    def __init__(self, path: str | None = None) -> None:
        self.path = path or os.path.join(paths.state(), NAME)

    def of(self, key: str, now: str) -> Literal["trusted", "changed", "unknown"]:
        """How it is with the program ``key``, whose digest is ``now``."""
        then = self._read().get(key)
        return "unknown" if then is None else "trusted" if then == now else "changed"

    def doubt(self, key: str, now: str) -> str:
        """Why it must not run, in words; nothing if it may."""
        match self.of(key, now):
            case "trusted":
                return ""
            case "changed":
                return "it is not what it was when it was trusted"
            case "unknown":
                return "it came with the project, and nobody has trusted it"

    def grant(self, programs: Iterable[tuple[str, str]]) -> None:
        """Trust these from now on, by key and digest."""
        self._write(self._read() | dict(programs))

    def revoke(self, keys: Iterable[str]) -> list[str]:
        """Trust these no more; those that were trusted."""
        known = self._read()
        gone = [key for key in keys if known.pop(key, None) is not None]
        if gone:
            self._write(known)
        return gone

    def _read(self) -> dict[str, str]:
        try:
            with open(self.path, "rb") as file:
                listed = loads_object(file.read(), self.path)
        except (OSError, RecordError):  # one that cannot be read trusts nobody
            return {}
        return {key: value for key, value in listed.items() if isinstance(value, str)}

    def _write(self, known: dict[str, str]) -> None:
        disk = Disk()
        disk.make_folder(os.path.dirname(self.path))
        disk.replace(self.path, dumps(known))
