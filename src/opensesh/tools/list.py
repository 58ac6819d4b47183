"""Show a directory as a tree."""

from __future__ import annotations

import os
from typing import Annotated

from msgspec import Meta

from ..config import globs
from ..errors import ToolFailedError
from . import paths, search
from .arguments import Arguments
from .tool import BuiltinTool, Context, ToolOutput

MOST = 100
IGNORED = frozenset(
    """.cache .coverage .idea .mypy_cache .next .nuxt .pytest_cache .ruff_cache .svn .tox .turbo .venv .vscode
    .zig-cache __pycache__ bin build cache coverage dist env logs node_modules obj out target temp tmp vendor venv
    zig-out""".split()
)
"""Directories of things that are made, fetched or kept, not written."""


class ListArguments(Arguments, frozen=True):
    """Which directory, and what to leave out."""

    path: Annotated[
        str | None, Meta(description="The absolute path of the directory; leave it out for the working directory")
    ] = None
    ignore: Annotated[tuple[str, ...], Meta(description="More patterns of files to leave out")] = ()


class List(BuiltinTool[ListArguments]):
    """Up to a hundred files below a directory."""

    id = "list"
    parameters = ListArguments

    async def execute(self, args: ListArguments, ctx: Context) -> ToolOutput:
        """Ask, and list."""
        directory = paths.absolute(ctx, args.path or ".")
        await paths.ask_if_outside(ctx, directory, "directory")
        await ctx.ask("list", paths.names(ctx, directory), always=["*"], metadata={"path": directory})
        if not os.path.isdir(directory):
            raise ToolFailedError(f"{directory} is not a directory")
        listed = await search.files(directory)
        wanted = sorted(name for name in listed if not _is_ignored(name, args.ignore))
        shown = wanted[:MOST]
        truncated = len(wanted) > MOST
        lines = [f"{directory}/", *_tree(shown)]
        if truncated:
            lines += ["", f"(The first {MOST} of {len(wanted)} files. List a directory further down to see more.)"]
        title = paths.relative(ctx, directory)
        return ToolOutput(title, "\n".join(lines), {"count": len(shown), "truncated": truncated})


def _is_ignored(name: str, patterns: tuple[str, ...]) -> bool:
    parts = name.split("/")
    if any(part in IGNORED for part in parts[:-1]):
        return True
    paths = ["/".join(parts[: depth + 1]) for depth in range(len(parts))]
    return any(globs.matches(pattern, path) for pattern in patterns for path in paths)


def _tree(names: list[str]) -> list[str]:
    lines: list[str] = []
    above: list[str] = []
    for name in sorted(names, key=_directories_first):
        *directories, file = name.split("/")
        common = 0
        while common < min(len(above), len(directories)) and above[common] == directories[common]:
            common += 1
        lines += [f"{'  ' * (depth + 1)}{directories[depth]}/" for depth in range(common, len(directories))]
        lines.append(f"{'  ' * (len(directories) + 1)}{file}")
        above = directories
    return lines


def _directories_first(name: str) -> list[tuple[bool, str]]:
    parts = name.split("/")
    return [(depth == len(parts) - 1, part) for depth, part in enumerate(parts)]
