"""What became of the files since git last looked: found with two quick looks at once, and noted in our own index."""

from __future__ import annotations

import os
import stat
from typing import TYPE_CHECKING, NamedTuple

from ..errors import SnapshotError
from .git import Git, join, split, surroundings

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from ..project import ProjectLocation

MEBIBYTE = 1 << 20


class Limits(NamedTuple):
    """How much is too much, in bytes."""

    file: int = 2 * MEBIBYTE
    """A larger file is left out, unless the user's own repository has it."""
    new: int = 1024 * MEBIBYTE
    """With more than this in new files that the user's repository does not have, no snapshot is taken."""
    store: int = 4096 * MEBIBYTE
    """With more than this in the project's snapshots, no more are taken."""


class Scan(NamedTuple):
    """What is to be noted in the index, by names relative to the checkout."""

    changed: Sequence[str]
    gone: Sequence[str]
    large: Sequence[str]
    """Left out because of their size."""
    nested: Sequence[str]
    """Left out because they are repositories of their own."""
    ignored: Sequence[str]
    """Left out from now on; also among those that are gone."""


def look(git: Git, place: ProjectLocation, limits: Limits, *, first: bool) -> Scan:
    """Compare the folder with the index. ``first`` has it also find files that are ignored by now."""
    finding = Git(place.directory, git.environment).start("ls-files", "-z", "-o", "--exclude-standard", "--full-name")
    try:
        noticed = git.run("diff-files", "-z", "--name-status", "--no-renames", "--ignore-submodules=all")
        modified, gone = _modified(noticed)
    finally:
        found = git.finish(finding)
    others = split(found)
    ignored: list[str] = []
    if first or any(os.path.basename(name) == ".gitignore" for name in (*modified, *gone, *others)):
        ignored = git.names("ls-files", "-z", "-c", "-i", "--exclude-standard")
    sizes = _sizes(place.sandbox, [name for name in (*modified, *others) if not name.endswith("/")])
    large = _too_large(place, sizes, limits)
    _refuse_too_much(place, {name: sizes[name] for name in others if name in sizes and name not in large}, limits)
    left_out = large.union(ignored)
    return Scan(
        changed=[name for name in sizes if name not in left_out],
        gone=[*dict.fromkeys((*gone, *ignored, *(name for name in modified if name in large)))],
        large=sorted(large),
        nested=[name for name in others if name.endswith("/")],
        ignored=ignored,
    )


def note(git: Git, scan: Scan, sandbox: str) -> None:
    """Bring the index up to date."""
    if scan.gone:
        git.run("update-index", "-z", "--force-remove", "--stdin", given=join(scan.gone))
    if not scan.changed:
        return
    try:
        _add(git, scan.changed)
    except SnapshotError:
        # A file that we may not read costs only itself.
        readable = [name for name in scan.changed if _readable(os.path.join(sandbox, name))]
        if len(readable) == len(scan.changed):
            raise
        _add(git, readable)


def tracked(sandbox: str, names: Iterable[str]) -> set[str]:
    """Those of ``names`` that the user's own repository has."""
    wanted = set(names)
    if not wanted:
        return set()
    git = Git(sandbox, surroundings(alone=False))
    few = sorted(wanted) if sum(map(len, wanted)) < 50_000 else []
    try:
        return wanted.intersection(git.names("ls-files", "-z", "--", *few))
    except SnapshotError:
        return set()


def _add(git: Git, names: Sequence[str]) -> None:
    git.run("update-index", "--add", "--remove", "--replace", "-z", "--stdin", given=join(names))


def _modified(printed: bytes) -> tuple[list[str], list[str]]:
    words = split(printed)
    pairs = list(zip(words[::2], words[1::2], strict=True))
    changed = [name for letter, name in pairs if letter != "D"]
    return changed, [name for letter, name in pairs if letter == "D"]


def _sizes(sandbox: str, names: Iterable[str]) -> dict[str, int]:
    """How large each file is; those that are gone by now are left out."""
    sizes: dict[str, int] = {}
    for name in names:
        try:
            found = os.lstat(os.path.join(sandbox, name))
        except OSError:
            continue
        sizes[name] = found.st_size if stat.S_ISREG(found.st_mode) else 0
    return sizes


def _too_large(place: ProjectLocation, sizes: dict[str, int], limits: Limits) -> set[str]:
    large = {name for name, size in sizes.items() if size > limits.file}
    return large - tracked(place.sandbox, large)


def _refuse_too_much(place: ProjectLocation, sizes: dict[str, int], limits: Limits) -> None:
    if sum(sizes.values()) <= limits.new:
        return
    total = sum(sizes[name] for name in sizes.keys() - tracked(place.sandbox, sizes))
    if total > limits.new:
        raise SnapshotError(
            f"{total / 1e9:.1f} GB of new files in {place.directory} that git does not track are too much for a "
            "snapshot; have .gitignore name what need not be kept"
        )


def _readable(path: str) -> bool:
    return os.path.islink(path) or os.access(path, os.R_OK)
