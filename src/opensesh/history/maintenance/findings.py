"""What a doctor finds: one line each, with the repair that goes with it, if there is one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ...records import Document
    from ...sessions.undo import Change

Level = Literal["damage", "odd", "note"]
"""``damage``: something cannot be read or reached; ``odd``: it should not be so; ``note``: worth knowing, no fault."""


class Finding(NamedTuple):
    """One thing that was found."""

    kind: str
    """``database``, ``torn``, ``orphan``, ``duplicate``, ``misplaced``, ``foreign``, ``stale``, ``lease``,
    ``leftover``, ``project``, ``folder``, ``permissions``, ``migration``, ``stores`` or ``share``."""
    path: str
    message: str
    level: Level = "odd"
    changes: Sequence[Change] = ()
    """The repair, as changes that can be taken back."""
    edit: Callable[[Document], None] | None = None
    """The repair of what the record at ``path`` says, made in place; several of one record are made together."""
    act: Callable[[], None] | None = None
    """The repair, where it is no change to the tree."""
    remedy: str = ""
    """What to do, where ``--fix`` does nothing."""

    @property
    def fixable(self) -> bool:
        """Whether there is a repair that is safe."""
        return bool(self.changes) or self.edit is not None or self.act is not None

    def document(self, *, fixed: bool) -> Document:
        """For machines."""
        return {
            "kind": self.kind,
            "level": self.level,
            "path": self.path,
            "message": self.message,
            "fixable": self.fixable,
            "fixed": fixed and self.fixable,
            "remedy": self.remedy or None,
        }
