"""Paths: absolute, inside the project or not, and by what name a permission rule knows them.

What counts is where a path really leads. ``..`` and symbolic links are followed before it is compared, and a
directory is the project's if it *is* the project's directory or lies below it, however it was spelled.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, Literal

from ..errors import ToolFailedError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from .tool import Context


def absolute(ctx: Context, path: str) -> str:
    """``path`` as an absolute one: relative to the working directory, ``~`` for home, ``..`` taken literally.

    What cannot be a path is :class:`~opensesh.errors.ToolFailedError`.
    """
    if "\0" in path:
        raise ToolFailedError(f"{path!r} is no path: it holds a NUL character")
    return os.path.normpath(os.path.join(ctx.directory, os.path.expanduser(path)))


def inside(ctx: Context, path: str) -> bool:
    """Whether an absolute path leads to somewhere in the project. It need not exist."""
    real = os.path.realpath(path)
    roots = [ctx.directory]
    if ctx.worktree != os.path.dirname(ctx.worktree):  # the file system's root is everyone's, hence no project's
        roots.append(ctx.worktree)
    return any(_below(real, os.path.realpath(root)) for root in roots)


async def ask_if_outside(ctx: Context, path: str, kind: Literal["file", "directory"] = "file") -> None:
    """Ask for the permission ``external_directory`` if an absolute path leads out of the project."""
    if inside(ctx, path):
        return
    real = os.path.realpath(path)
    parent = real if kind == "directory" else os.path.dirname(real)
    await ask_outside(ctx, [parent], path)


async def ask_outside(ctx: Context, directories: list[str], path: str = "") -> None:
    """Ask for the permission to touch what is in these directories, which lie outside the project."""
    globs = [_glob(directory) for directory in directories]
    metadata = {"filepath": path, "parentDir": directories[0]} if path else {}
    await ctx.ask("external_directory", globs, always=globs, metadata=metadata)


async def ask_edit(ctx: Context, paths: Sequence[str], metadata: Mapping[str, Any]) -> None:
    """Ask for the permission to change these files, under every name that leads to them."""
    known = [relative(ctx, name) for path in paths for name in names(ctx, path)]
    await ctx.ask("edit", list(dict.fromkeys(known)), always=["*"], metadata=metadata)


def relative(ctx: Context, path: str) -> str:
    """An absolute path as titles and ``edit`` rules have it: relative to the worktree, with ``/``."""
    try:
        return os.path.relpath(path, ctx.worktree).replace(os.sep, "/")
    except ValueError:  # another drive
        return path


def names(ctx: Context, path: str) -> list[str]:
    """``path``, and where it really leads if a symbolic link within the project makes that another place, or if it is
    spelled otherwise there.

    A rule about a file must hold for it under every name.
    """
    root = ctx.worktree if ctx.worktree != os.path.dirname(ctx.worktree) else ctx.directory
    real, real_root = _as_listed(os.path.realpath(path)), _as_listed(os.path.realpath(root))
    if _is_prefix(real_root, real):
        real = os.path.normpath(os.path.join(root, os.path.relpath(real, real_root)))
    expected = os.path.normpath(path)
    return [expected] if real == expected else [expected, real]


def readable(ctx: Context, directory: str) -> Callable[[str], bool]:
    """Tells of any file below ``directory``, by its path from there, whether it may be read without asking, under every
    name that leads to it. For files that are reached from there without following links."""
    allowed = ctx.allow_check("read")
    roots = names(ctx, directory)
    return lambda name: all(allowed(os.path.join(root, name)) for root in roots)


def _as_listed(path: str) -> str:
    """``path`` as the directories spell it, where ``.ENV`` and ``.env`` are the same file."""
    parent, name = os.path.split(path)
    if not name:
        return path
    listed, other = _as_listed(parent), name.swapcase()
    if other != name and _same(os.path.join(parent, other), path):
        alike = [each for each in _entries(parent) if each.lower() == name.lower()]
        name = min(alike, key=lambda each: each == name, default=name)
    return os.path.join(listed, name)


def _entries(directory: str) -> list[str]:
    try:
        return os.listdir(directory)
    except OSError:
        return []


def _below(path: str, root: str) -> bool:
    return _is_prefix(root, path) or any(_same(ancestor, root) for ancestor in _ancestors(path))


def _is_prefix(root: str, path: str) -> bool:
    return path == root or path.startswith(root.rstrip(os.sep) + os.sep)


def _ancestors(path: str) -> list[str]:
    found = [path]
    while (parent := os.path.dirname(found[-1])) != found[-1]:
        found.append(parent)
    return found


def _same(path: str, root: str) -> bool:
    try:
        return os.path.samefile(path, root)
    except OSError:
        return False


def _glob(directory: str) -> str:
    return directory.replace(os.sep, "/").rstrip("/") + "/*"


def unreadable(path: str, error: OSError) -> ToolFailedError:
    """The error for a file that is there and cannot be read."""
    return ToolFailedError(f"{path} cannot be read: {error.strerror or error}", path=path)
