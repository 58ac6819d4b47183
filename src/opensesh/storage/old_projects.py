"""The trees of OpenCode before 0.6, one a project, read-only until they are migrated."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, NoReturn

from ..errors import ReadOnlyStoreError
from ..records import codec
from .disk import names_in, read_file
from .json_tree import migrations
from .keys import GLOBAL, is_plain
from .memory import Memory

if TYPE_CHECKING:
    from collections.abc import Callable

    from .protocol import Damage, Key

_REMEDY = "'opensesh doctor --migrate' copies them to the current layout"


class OldProjects(Memory):
    """The records below ``project/<name>/storage`` of a data folder, with the keys of the current layout.

    They are read into memory when the store is opened: this layout was in use for a few weeks only. A session is filed
    under the name of its project's folder; a migration files it under the project's id.
    """

    writable = False

    def __init__(self, folder: str, report: Callable[[Damage], None]) -> None:
        super().__init__()
        self.place = os.path.join(folder, "project")
        self.id = os.path.realpath(self.place)
        self._paths: dict[Key, str] = {}
        left: list[Damage] = []
        for name in names_in(self.place):
            source = os.path.join(self.place, name, "storage", "session")
            if not is_plain(name) or not os.path.isdir(source):
                continue
            for key, path in migrations.old_records(source, name, left):
                try:
                    self._records[key] = read_file(path)
                    self._paths[key] = path
                except OSError:
                    continue
            record = {"id": name, "worktree": "/" if name == GLOBAL else migrations.worktree_of(source) or "/"}
            self._records["project", name] = codec.dumps(record)
        for damage in left:
            report(damage)

    def locate(self, key: Key) -> str:
        """Return the file of a record."""
        return self._paths.get(key, self.place)

    def write(self, key: Key, value: Any) -> NoReturn:
        """Raise :class:`ReadOnlyStoreError`."""
        raise _read_only(self.place)

    def update(self, key: Key, edit: Callable[[Any], None]) -> NoReturn:
        """Raise :class:`ReadOnlyStoreError`."""
        raise _read_only(self.place)

    def remove(self, key: Key) -> NoReturn:
        """Raise :class:`ReadOnlyStoreError`."""
        raise _read_only(self.place)

    def batch(self) -> NoReturn:
        """Raise :class:`ReadOnlyStoreError`."""
        raise _read_only(self.place)


def _read_only(place: str) -> ReadOnlyStoreError:
    return ReadOnlyStoreError(f"{place}: sessions of OpenCode before 0.6 are only read; {_REMEDY}", place=place)
