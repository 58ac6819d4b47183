"""The trees of OpenCode before 0.6, one a project, which the first write migrates."""

from __future__ import annotations

import os
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from ..records import codec
from .disk import read_file
from .json_tree import migrations
from .memory import Memory

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    from .json_tree import JsonTree
    from .protocol import Batch, Damage, Key


class OldProjects(Memory):
    """The records below ``project/<name>/storage`` of a data folder, with the keys of the current layout.

    They are read into memory when the store is opened: this layout was in use for a few weeks only. The first write to
    one of their sessions migrates them, which leaves the keys as they are.
    """

    writable = True

    def __init__(self, folder: str, tree: JsonTree, report: Callable[[Damage], None]) -> None:
        """``tree`` is the tree of the current layout beside them."""
        super().__init__()
        self.place = os.path.join(folder, "project")
        self.id = os.path.realpath(self.place)
        self._tree = tree
        self._paths: dict[Key, str] = {}
        left: list[Damage] = []
        for source, worktree, project in migrations.old_sources(self.place):
            for key, path in migrations.old_records(source, project, left):
                try:
                    self._records[key] = read_file(path)
                    self._paths[key] = path
                except OSError:
                    continue
            self._records["project", project] = codec.dumps({"id": project, "worktree": worktree})
        for damage in left:
            report(damage)
        tree.when_prepared(self._records.clear)

    def locate(self, key: Key) -> str:
        """Return the file of a record."""
        return self._paths.get(key, self.place)

    def write(self, key: Key, value: Any) -> None:
        """Migrate, then store the record in the tree."""
        self._tree.write(key, value)

    def update(self, key: Key, edit: Callable[[Any], None]) -> Any:
        """Migrate, then change the record in the tree."""
        self._tree.prepare()
        return self._tree.update(key, edit)

    def remove(self, key: Key) -> None:
        """Migrate, then remove the record from the tree."""
        self._tree.prepare()
        self._tree.remove(key)

    @contextmanager
    def batch(self) -> Generator[Batch]:
        """Return a batch of the tree, which migrates before it is applied."""
        with self._tree.batch() as batch:
            yield batch
