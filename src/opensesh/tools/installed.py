"""Tools that other packages bring along, by the entry point ``opensesh.tools``.

::

    [project.entry-points."opensesh.tools"]
    tickets = "my_package.tools:tickets"

What it names is a tool, a function to make one of (:mod:`.custom`), several of them in a list, or a class or a function
that makes such; a function counts as one that makes tools if its annotation says that it returns them.
"""

from __future__ import annotations

import inspect
import logging
import re
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from ..loading import entry_points
from .tool import lacking

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from importlib.metadata import EntryPoint

    from .tool import Tool

log = logging.getLogger("opensesh.tools")

GROUP = "opensesh.tools"
_MAKES_TOOLS = re.compile(r"Tool\b")


class Brought(NamedTuple):
    """A tool, and the package it came with."""

    tool: Tool
    package: str


class Unusable(NamedTuple):
    """An entry point that brought nothing, and why."""

    entry: str
    package: str
    error: str


class Installed(NamedTuple):
    """What there is."""

    tools: tuple[Brought, ...] = ()
    unusable: tuple[Unusable, ...] = ()


def installed() -> Installed:
    """Load what packages bring along, in the order of its names. What cannot be loaded costs itself alone, and is named
    in a warning."""
    found: dict[str, Brought] = {}
    unusable: list[Unusable] = []
    for entry in sorted(entry_points(GROUP), key=lambda each: (each.name, each.value)):
        package = entry.dist.name if entry.dist is not None else "?"
        try:
            for tool in _tools(entry.load(), entry):
                _add(found, Brought(tool, package))
        except (Exception, SystemExit) as error:
            why = f"{type(error).__name__}: {error}" if not isinstance(error, (ValueError, TypeError)) else str(error)
            unusable.append(Unusable(entry.name, package, why))
            log.warning("the tool %s of the package %s cannot be used: %s", entry.name, package, why)
    return Installed(tuple(found.values()), tuple(unusable))


def _add(found: dict[str, Brought], new: Brought) -> None:
    first = found.setdefault(new.tool.id, new)
    if first is not new:
        raise ValueError(f"there is a tool {new.tool.id!r} already, from {first.package}")


def _tools(loaded: object, entry: EntryPoint) -> list[Tool]:
    if _is_tool(loaded):
        return [cast("Tool", loaded)]
    if isinstance(loaded, (list, tuple)):
        several = cast("Sequence[object]", loaded)
        return [tool for each in several for tool in _tools(each, entry)]
    if inspect.isclass(loaded) or _makes_tools(loaded):
        made: Any = cast("Any", loaded)()
        return _tools(made if _is_tool(made) else list(cast("Iterable[object]", made)), entry)
    if inspect.isroutine(loaded):
        from .custom import FunctionTool

        return [FunctionTool(loaded)]
    raise TypeError(f"{entry.value} is {type(loaded).__name__}, which is no tool and makes none")


def _is_tool(loaded: object) -> bool:
    return not inspect.isclass(loaded) and not lacking(loaded)


def _makes_tools(loaded: object) -> bool:
    """By what it says it returns; calling a function to find out would run it."""
    if not inspect.isroutine(loaded):
        return False
    returned = getattr(loaded, "__annotations__", {}).get("return")
    return bool(_MAKES_TOOLS.search(returned if isinstance(returned, str) else repr(returned)))
