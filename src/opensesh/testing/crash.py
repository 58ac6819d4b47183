"""Disks that fail, and processes that die on them.

:func:`sweep` runs a scenario once for every operation it asks of the disk, and ends its process there: without warning,
with half of the data written. Whatever the scenario told before is what was acknowledged; the check then looks at what
the next process would find.
"""

from __future__ import annotations

import errno
import os
import shutil
from typing import TYPE_CHECKING, Any, NamedTuple

from ..storage.disk import Disk
from .processes import Nursery, find, name_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from .processes import Child, Tell

    Scenario = Callable[[Disk, str, Tell], None]
    """Works on a store in a folder, through a disk, and tells what was acknowledged."""
    Check = Callable[[str, list[Any], str], None]
    """Looks at the folder, given what was acknowledged and the operation at which the process died (or nothing)."""

CRASHED = 86
"""The exit status of a process that died on a :class:`CrashingDisk`."""


class CrashingDisk(Disk):
    """Ends the process at its ``point``-th operation, before that operation has any effect; never for 0.

    A write counts as two: before anything is written, and when half of it is.
    """

    def __init__(self, point: int, *, durable: bool = True, last_words: Callable[[str], None] | None = None) -> None:
        super().__init__(durable=durable)
        self.point = point
        self.count = 0
        """How many operations there have been."""
        self._last_words = last_words

    def open_new(self, path: str) -> int:
        """A new file, or the end."""
        self._reach("open_new")
        return super().open_new(path)

    def write(self, descriptor: int, data: bytes) -> None:
        """All of the data, half of it and the end, or the end."""
        half = len(data) // 2
        self._reach("write")
        super().write(descriptor, data[:half])
        self._reach("half a write")
        super().write(descriptor, data[half:])

    def sync(self, descriptor: int) -> None:
        """The file on the disk, or the end."""
        self._reach("sync")
        super().sync(descriptor)

    def rename(self, old: str, new: str) -> None:
        """The new name, or the end."""
        self._reach("rename")
        super().rename(old, new)

    def sync_folder(self, folder: str) -> None:
        """The names on the disk, or the end."""
        self._reach("sync_folder")
        super().sync_folder(folder)

    def unlink(self, path: str) -> None:
        """The name gone, or the end."""
        self._reach("unlink")
        super().unlink(path)

    def new_folder(self, folder: str) -> None:
        """The new folder, or the end."""
        self._reach("new_folder")
        super().new_folder(folder)

    def remove_folder(self, folder: str) -> None:
        """The folder gone, or the end."""
        self._reach("remove_folder")
        super().remove_folder(folder)

    def _reach(self, operation: str) -> None:
        self.count += 1
        if self.count == self.point:
            if self._last_words is not None:
                self._last_words(operation)
            os._exit(CRASHED)


class FullDisk(Disk):
    """Has ``room`` for so many bytes. The write that does not fit is cut off where the room ends, and refused.

    Room is not given back when files are removed; :meth:`make_room` does that. A ``late`` disk takes every write and
    refuses only when asked to keep it, as file systems do that allocate late.
    """

    def __init__(self, room: int, *, durable: bool = True, late: bool = False) -> None:
        super().__init__(durable=durable)
        self.room = room
        self._late = late

    def make_room(self, more: int) -> None:
        """Someone has tidied up."""
        self.room = max(self.room, 0) + more

    def open_new(self, path: str) -> int:
        """A new file, if there is any room."""
        self._refuse_if(not self._late and self.room <= 0)
        return super().open_new(path)

    def new_folder(self, folder: str) -> None:
        """A new folder, if there is any room."""
        self._refuse_if(not self._late and self.room <= 0)
        super().new_folder(folder)

    def write(self, descriptor: int, data: bytes) -> None:
        """As much as there is room for."""
        fits = len(data) <= self.room
        super().write(descriptor, data if fits or self._late else data[: max(self.room, 0)])
        self.room -= len(data)
        self._refuse_if(not fits and not self._late)

    def sync(self, descriptor: int) -> None:
        """What a late disk took beyond its room, it refuses now."""
        self._refuse_if(self.room < 0)
        super().sync(descriptor)

    def _refuse_if(self, full: bool) -> None:
        if full:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


class Sweep(NamedTuple):
    """What a sweep has been through."""

    points: int
    """At how many points the process died; it went through to the end once more."""
    operations: dict[str, int]
    """How often at which operation."""


def sweep(scenario: Scenario, check: Check, folder: str | os.PathLike[str]) -> Sweep:
    """Let a process die at every point of ``scenario``, and ``check`` what it leaves each time.

    Both get a folder of their own below ``folder`` for each point. The scenario must be a function at the top of a
    module, for it runs in another process; it should do the same each time, or points will be missed.
    """
    operations: dict[str, int] = {}
    with Nursery() as nursery:
        nursery.prepare(scenario)
        point = 0
        following = _begin(nursery, scenario, folder, 1)
        while True:
            point += 1
            # The next process works while this one's remains are looked at.
            (place, child), following = following, _begin(nursery, scenario, folder, point + 1)
            fate = child.wait()
            if fate.code not in (0, CRASHED):
                raise AssertionError(f"the scenario failed before point {point}:\n{fate.raised or fate.code}")
            died_at = str(fate.said.pop()["died at"]) if fate.code else ""
            _check(check, place, fate.said, died_at, point)
            shutil.rmtree(place)
            if not died_at:
                following[1].wait()
                shutil.rmtree(following[0])
                return Sweep(point - 1, operations)
            operations[died_at] = operations.get(died_at, 0) + 1


def _begin(nursery: Nursery, scenario: Scenario, folder: str | os.PathLike[str], point: int) -> tuple[str, Child]:
    place = os.path.join(folder, f"point-{point}")
    os.mkdir(place)
    return place, nursery.start(_play, name_of(scenario), place, point)


def _play(tell: Tell, scenario: str, place: str, point: int) -> None:
    disk = CrashingDisk(point, last_words=lambda operation: tell({"died at": operation}))
    find(scenario)(disk, place, tell)


def _check(check: Check, place: str, said: list[Any], died_at: str, point: int) -> None:
    try:
        check(place, said, died_at)
    except Exception as error:
        where = f"died at point {point} ({died_at})" if died_at else "went through to the end"
        raise AssertionError(f"after a process that {where}: {error}") from error
