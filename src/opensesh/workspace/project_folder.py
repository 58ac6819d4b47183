"""The folder whose files a session may change: a checkout or, outside of version control, a directory. Names are
relative to it."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from ..errors import SnapshotError
from ..records import as_object
from .states import is_reachable

if TYPE_CHECKING:
    from ..project import ProjectLocation
    from ..records import Document


class ProjectFolder:
    """The folder of one place. What lies outside of it is never touched."""

    def __init__(self, place: ProjectLocation) -> None:
        self.root = place.sandbox if place.vcs == "git" and place.sandbox != os.sep else place.directory
        self.directory = place.directory
        """Where the session works. Whatever goes, this folder stays."""
        self._known: dict[str, bool] = {}

    def path(self, name: str) -> str:
        """Where ``name`` is."""
        return os.path.join(self.root, name)

    def name(self, path: str, info: Document) -> str | None:
        """A path that the message ``info`` recorded, relative to the folder; ``None`` if it is outside of it.

        A project that has moved since is found where it is now.
        """
        base = self._base(info)
        roots = (self.root, base) if self._is_here(base) or not os.path.isdir(base) else (self.root,)
        for root in roots:
            below = path.removeprefix(root.rstrip(os.sep) + os.sep)
            if below != path:
                name = os.path.normpath(below).replace(os.sep, "/")
                return name if is_reachable(self.root, name) else None
        return None

    def check(self, info: Document) -> None:
        """Refuse a message of a session that worked in another checkout, which is still there."""
        base = self._base(info)
        if not self._is_here(base) and not base.startswith(self.root + os.sep) and os.path.isdir(base):
            raise SnapshotError(f"the session worked in {base}, not in {self.root}; go there to revert it", path=base)

    def _is_here(self, base: str) -> bool:
        """Whether a folder is this one, perhaps by another name."""
        if base not in self._known:
            self._known[base] = base == self.root or (os.path.isdir(base) and os.path.samefile(base, self.root))
        return self._known[base]

    def _base(self, info: Document) -> str:
        path = as_object(info.get("path")) or {}
        root, directory = path.get("root"), path.get("cwd")
        base = root if isinstance(root, str) and root not in ("", "/", os.sep) else directory
        return base if isinstance(base, str) and base else self.root
