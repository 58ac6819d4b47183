"""Looks into snapshots: which file a snapshot has under a name, and what a file holds. One git answers all of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..errors import SnapshotError
from .states import ABSENT, State

if TYPE_CHECKING:
    import subprocess
    from types import TracebackType

    from .git import Git

_TREE = "40000"


class Objects:
    """Answers questions about snapshots, from git's store, until the end of the ``with`` block."""

    def __init__(self, git: Git, *, empty: bool = False) -> None:
        """``empty`` is a store that nobody has made yet: git would refuse to look into it."""
        self._git = git
        self._empty = empty
        self._process: subprocess.Popen[bytes] | None = None
        self._trees: dict[str, dict[bytes, State] | None] = {}

    def __enter__(self) -> Objects:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Let git go."""
        if self._process is not None:
            self._process.communicate()
            self._process = None

    def state(self, tree: str, name: str) -> State | None:
        """The file called ``name`` in a snapshot; ``None`` if the snapshot cannot tell any more."""
        *above, last = name.encode("utf-8", "surrogateescape").split(b"/")
        for step in above:
            entries = self._tree(tree)
            if entries is None:
                return None
            found = entries.get(step, ABSENT)
            if found.mode != _TREE:
                return ABSENT
            tree = found.oid
        entries = self._tree(tree)
        if entries is None:
            return None
        found = entries.get(last, ABSENT)
        return ABSENT if found.mode == _TREE else found

    def content(self, oid: str) -> bytes | None:
        """What a file holds; ``None`` if the store has lost it."""
        found = self._read(oid)
        return found[1] if found is not None and found[0] == b"blob" else None

    def _tree(self, oid: str) -> dict[bytes, State] | None:
        if oid not in self._trees:
            found = self._read(oid)
            self._trees[oid] = _entries(found[1]) if found is not None and found[0] == b"tree" else None
        return self._trees[oid]

    def _read(self, oid: str) -> tuple[bytes, bytes] | None:
        """The kind and the bytes of an object."""
        if self._empty or not oid.isalnum() or not oid.isascii():
            return None
        if self._process is None:
            self._process = self._git.start("cat-file", "--batch", feed=True)
        asking, answering = self._process.stdin, self._process.stdout
        if asking is None or answering is None:
            raise SnapshotError("git cannot be talked to")
        try:
            asking.write(oid.encode() + b"\n")
            asking.flush()
        except OSError as error:
            raise SnapshotError("git ended in the middle of a conversation") from error
        head = answering.readline().split()
        if len(head) != 3:
            return None
        data = answering.read(int(head[2]))
        answering.read(1)
        return head[1], data


def _entries(data: bytes) -> dict[bytes, State]:
    entries: dict[bytes, State] = {}
    place = 0
    while place < len(data):
        space = data.index(b" ", place)
        end = data.index(b"\0", space)
        entries[data[space + 1 : end]] = State(data[end + 1 : end + 21].hex(), data[place:space].decode())
        place = end + 21
    return entries
