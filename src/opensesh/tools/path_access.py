"""Paths in tool arguments: absolute form, project membership, and the permissions they need.

A path is judged by its real target: ``..`` and symbolic links are resolved before it is compared, and a directory
belongs to the project if it *is* the project's directory or lies below it, however it is spelled. A tool that opens a
file resolves its path once (:func:`resolve`), asks about the result and opens that (:mod:`.real_files`).

A hard link is a name like any other: rules apply to the name by which a file is reached.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from ..errors import ToolFailedError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from .tool import Context


class Target(NamedTuple):
    """A path in the arguments of a call, and what it leads to."""

    path: str
    """The absolute path as the model wrote it."""
    real: str
    """The real path, resolved once: permissions are asked for it, and no other file is opened."""
    entry: str
    """The real path of the name itself, which is what a deletion removes; another than ``real`` for a link."""


def resolve(ctx: Context, path: str) -> Target:
    """Resolve a path of the arguments."""
    path = absolute(ctx, path)
    parent, name = os.path.split(path)
    try:
        return Target(path, os.path.realpath(path), os.path.join(os.path.realpath(parent), name))
    except OSError as error:  # a folder is being replaced by a link this moment
        raise unreadable(path, error) from error


def absolute(ctx: Context, path: str) -> str:
    """Return ``path`` as an absolute one: relative to the working directory, ``~`` expanded, ``..`` taken literally."""
    if "\0" in path:
        raise ToolFailedError(f"invalid path {path!r}: it contains a NUL character")
    return os.path.normpath(os.path.join(ctx.directory, os.path.expanduser(path)))


def is_inside(ctx: Context, real: str) -> bool:
    """Return whether a real path is in the project. It need not exist."""
    roots = [ctx.directory]
    if ctx.worktree != os.path.dirname(ctx.worktree):  # a worktree of "/" means: not in a repository
        roots.append(ctx.worktree)
    ancestors = [real]
    while (parent := os.path.dirname(ancestors[-1])) != ancestors[-1]:
        ancestors.append(parent)
    return any(
        _is_prefix(root, real) or any(_is_same(ancestor, root) for ancestor in ancestors)
        for root in map(os.path.realpath, roots)
    )


async def ask_if_outside(
    ctx: Context, target: Target, kind: Literal["file", "directory"] = "file", *, deletes: bool = False
) -> None:
    """Ask for the permission ``external_directory`` if a path leads out of the project, or if what the call
    ``deletes`` lies outside."""
    for real in dict.fromkeys((target.real, target.entry) if deletes else (target.real,)):
        if not is_inside(ctx, real):
            await ask_outside(ctx, [real if kind == "directory" else os.path.dirname(real)], target.path)


async def ask_outside(ctx: Context, directories: list[str], path: str = "") -> None:
    """Ask for the permission to access files in these directories outside the project."""
    patterns = [directory.replace(os.sep, "/").rstrip("/") + "/*" for directory in directories]
    metadata = {"filepath": path, "parentDir": directories[0]} if path else {}
    # The name of a folder may contain wildcards: "always" for /home/* would be for every folder beside it.
    always = [pattern for pattern in patterns if "?" not in pattern and "*" not in pattern[:-1]]
    await ctx.ask("external_directory", patterns, always=always, metadata=metadata)


async def ask_anywhere(ctx: Context, permission: str) -> None:
    """Ask for the permission to access any file, for a call that does not tell which."""
    await ctx.ask(permission, ["*"], metadata={}, possible=("*",))


async def ask_edit(ctx: Context, paths: Sequence[str | Target], metadata: Mapping[str, Any]) -> None:
    """Ask for the permission to change these files, under every name that leads to them."""
    patterns = [relative(ctx, name) for path in paths for name in names(ctx, path)]
    await ctx.ask("edit", list(dict.fromkeys(patterns)), always=["*"], metadata=metadata)


def relative(ctx: Context, path: str) -> str:
    """Return an absolute path as titles and ``edit`` rules have it: relative to the worktree, with ``/``."""
    try:
        return os.path.relpath(path, ctx.worktree).replace(os.sep, "/")
    except ValueError:  # another drive
        return path


def names(ctx: Context, path: str | Target) -> list[str]:
    """Return ``path``, and its real path if that differs: through a symbolic link, or in its spelling.

    A rule about a file must apply to it under every name.
    """
    root = ctx.worktree if ctx.worktree != os.path.dirname(ctx.worktree) else ctx.directory
    path, real = path[:2] if isinstance(path, Target) else (path, os.path.realpath(path))
    real, real_root = _as_listed(real), _as_listed(os.path.realpath(root))
    if _is_prefix(real_root, real):
        real = os.path.normpath(os.path.join(root, os.path.relpath(real, real_root)))
    expected = os.path.normpath(path)
    return [expected] if real == expected else [expected, real]


def readable_check(ctx: Context, directory: Target) -> Callable[[str], bool]:
    """Return a function that tells whether a file below ``directory``, given by its path from there, may be read
    without asking under every name that leads to it. For files reached without following links."""
    allowed = ctx.allow_check("read")
    roots = names(ctx, directory)
    return lambda name: all(allowed(os.path.join(root, name)) for root in roots)


def unreadable(path: str, error: OSError) -> ToolFailedError:
    """Return the error for an existing file that cannot be read."""
    return ToolFailedError(f"{path} cannot be read: {error.strerror or error}", path=path)


def _as_listed(path: str) -> str:
    """Return ``path`` as the directories spell it, on file systems where ``.ENV`` and ``.env`` are the same file."""
    names: list[str] = []
    parent, name = os.path.split(path)
    while name:
        other = name.swapcase()
        if other != name and _is_same(os.path.join(parent, other), os.path.join(parent, name)):
            try:
                entries = os.listdir(parent)
            except OSError:
                entries = []
            alike = [entry for entry in entries if entry.lower() == name.lower()]
            name = min(alike, key=lambda entry: entry == name, default=name)
        names.append(name)
        parent, name = os.path.split(parent)
    return os.path.join(parent, *reversed(names))


def _is_prefix(root: str, path: str) -> bool:
    return path == root or path.startswith(root.rstrip(os.sep) + os.sep)


def _is_same(path: str, other: str) -> bool:
    try:  # not the targets of links: both are resolved, and what has become a link since is another file
        return os.path.samestat(os.lstat(path), os.lstat(other))
    except OSError:
        return False
