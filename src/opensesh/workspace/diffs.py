"""What differs between two snapshots: by name, with both texts as OpenCode keeps them, and as a unified diff."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

from ..errors import SnapshotError
from .git import SnapshotObjects, split

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from ..records import Document
    from .git import Git

LARGEST_TEXT = 1 << 20
"""Of a file larger than this, the counts are kept but not the texts: they would be stored once a step."""
LARGEST_TOTAL = 8 << 20
"""The same for all texts of one list together."""

_STATUS = {"A": "added", "D": "deleted"}
_NOTHING = "0" * 40
_NAME = re.compile(r"[0-9a-f]{40}")


class ChangedFile(NamedTuple):
    """One file that differs."""

    name: str
    """Relative to the checkout."""
    letter: str
    """A, D, M or T, as git writes it."""
    before: str
    """The name of the content; zeros for none."""
    after: str
    additions: int | None = None
    """``None`` for a file that is no text."""
    deletions: int | None = None


def changes(git: Git, before: str, after: str, scope: str = ".") -> list[ChangedFile]:
    """The files that differ, in git's order."""
    return _raw(_compare(git, before, after, scope, "--raw"))[0]


def counted(git: Git, before: str, after: str, scope: str = ".") -> list[ChangedFile]:
    """The files that differ, and by how many lines."""
    found, rest = _raw(_compare(git, before, after, scope, "--raw", "--numstat"))
    counts = dict(map(_count, rest))
    return [each._replace(additions=lines[0], deletions=lines[1]) for each in found if (lines := counts[each.name])]


def file_diffs(git: Git, before: str, after: str, scope: str = ".", *, without: Collection[str] = ()) -> list[Document]:
    """The files that differ, as OpenCode 1.1.65 keeps them: full texts, empty for a file that is none."""
    found = [each for each in counted(git, before, after, scope) if each.name not in without]
    wanted = [oid for each in found if each.additions is not None for oid in (each.before, each.after)]
    sizes = _sizes(git, [oid for oid in dict.fromkeys(wanted) if oid != _NOTHING])
    room = LARGEST_TOTAL
    listed: list[Document] = []
    with SnapshotObjects(git) as objects:
        for each in found:
            size = sizes.get(each.before, 0) + sizes.get(each.after, 0)
            fits = each.additions is not None and size <= min(LARGEST_TEXT, room)
            room -= size if fits else 0
            listed.append(
                {
                    "file": each.name,
                    "before": _text(objects, each.before) if fits else "",
                    "after": _text(objects, each.after) if fits else "",
                    "additions": each.additions or 0,
                    "deletions": each.deletions or 0,
                    "status": _STATUS.get(each.letter, "modified"),
                }
            )
    return listed


def unified(git: Git, before: str, after: str, scope: str = ".") -> str:
    """The difference as git shows it to people, renames and all; without the last line's end."""
    options = ("--no-ext-diff", "--no-textconv", "--no-color", "--ignore-submodules=all")
    return git.run("diff", *options, _tree(before), _tree(after), "--", scope).decode("utf-8", "replace").strip()


def _compare(git: Git, before: str, after: str, scope: str, *shape: str) -> list[str]:
    options = ("-r", "-z", "--no-renames", "--ignore-submodules=all", "--no-ext-diff", *shape)
    return split(git.run("diff-tree", *options, _tree(before), _tree(after), "--", scope))


def _tree(name: str) -> str:
    """``name``, if it can be that of a snapshot; a record may say anything, options of git's among it."""
    if _NAME.fullmatch(name) is None:
        raise SnapshotError(f"{name!r:.60} is not the name of a snapshot")
    return name


def _raw(words: Sequence[str]) -> tuple[list[ChangedFile], Sequence[str]]:
    """What is written as ``:mode mode oid oid letter`` and a name; and the words after that."""
    found: list[ChangedFile] = []
    place = 0
    while place < len(words) and words[place].startswith(":"):
        _, _, before, after, letter = words[place].split(" ")
        found.append(ChangedFile(words[place + 1], letter[0], before, after))
        place += 2
    return found, words[place:]


def _count(word: str) -> tuple[str, tuple[int | None, int | None]]:
    additions, deletions, name = word.split("\t", 2)
    return name, (_number(additions), _number(deletions))


def _number(text: str) -> int | None:
    return None if text == "-" else int(text)


def _sizes(git: Git, oids: Sequence[str]) -> dict[str, int]:
    if not oids:
        return {}
    printed = git.run("cat-file", "--batch-check", given="".join(f"{oid}\n" for oid in oids).encode())
    lines = (line.split() for line in printed.decode().splitlines())
    return {line[0]: int(line[2]) for line in lines if len(line) == 3}


def _text(objects: SnapshotObjects, oid: str) -> str:
    data = objects.content(oid) if oid != _NOTHING else b""
    return (data or b"").decode("utf-8", "replace")
