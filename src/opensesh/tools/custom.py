"""Custom tools: functions made into tools, and tools that installed packages provide.

A function with type hints becomes a tool::

    import opensesh


    @opensesh.tool
    async def tickets(project: str, open_only: bool = True) -> str:
        '''List the tickets of a project.'''
        return await tracker.list(project, open_only)

The model reads the docstring. The hints make the schema (``Annotated[str, Meta(description=...)]`` describes a
parameter). A parameter named ``ctx`` receives the :class:`~opensesh.tools.tool.Context`.

A package provides tools by the entry point group ``opensesh.tools``::

    [project.entry-points."opensesh.tools"]
    tickets = "my_package.tools:tickets"

The entry point names a tool, a function to make a tool of, a list of these, or a class or function that creates them. A
function counts as one that creates tools if its return annotation mentions ``Tool``.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
import re
from typing import TYPE_CHECKING, Any, NamedTuple, cast, get_type_hints, overload

import msgspec

from ..containment import describe
from ..errors import ToolFailedError
from ..loading import entry_points
from .arguments import decode, schema_of
from .tool import Context, ToolOutput, missing_attributes

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from importlib.metadata import EntryPoint

    from .tool import Tool

    Function = Callable[..., Any]

log = logging.getLogger("opensesh.tools")

ENTRY_POINT_GROUP = "opensesh.tools"
_NAME = r"[A-Za-z0-9_-]{1,64}"


class FunctionTool:
    """A tool made from a function. A plain function runs in a thread, a coroutine function in the event loop."""

    def __init__(
        self,
        function: Function,
        *,
        name: str | None = None,
        description: str | None = None,
        read_only: bool = False,
    ) -> None:
        self._function = function
        self.read_only = read_only
        self.id = name or function.__name__
        self.description = description or inspect.getdoc(function) or ""
        if not re.fullmatch(_NAME, self.id):
            raise ValueError(f"invalid tool name {self.id!r}: use letters, digits, _ and -, at most 64 characters")
        if not self.description:
            raise ValueError(f"the tool {self.id!r} needs a docstring: the model reads it as the description")
        signature = inspect.signature(function)
        self._takes_context = "ctx" in signature.parameters
        hints = get_type_hints(function, localns={"Context": Context}, include_extras=True)
        fields: list[Any] = []
        for parameter in signature.parameters.values():
            if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD, parameter.POSITIONAL_ONLY):
                raise ValueError(f"the tool {self.id!r} cannot take {parameter}: a model passes arguments by name")
            if parameter.name != "ctx":
                default = () if parameter.default is parameter.empty else (parameter.default,)
                fields.append((parameter.name, hints.get(parameter.name, str), *default))
        self.parameters = msgspec.defstruct(f"{self.id}_arguments", fields, kw_only=True)
        try:
            schema_of(self.parameters)  # fail when the tool is defined, not when a model calls it
        except TypeError as error:
            reason = str(error).rpartition("\n")[2]  # the lines before it are advice for programs that use msgspec
            raise ValueError(
                f"the parameters of the tool {self.id!r} have no JSON schema: {reason}; use text, numbers, lists, "
                "dictionaries, Literal, enums, dataclasses or dates"
            ) from error

    @property
    def schema(self) -> dict[str, Any]:
        """The JSON schema of the function's parameters."""
        return schema_of(self.parameters)

    async def run(self, arguments: Mapping[str, Any], ctx: Context) -> ToolOutput:
        """Ask for the permission named like the tool, then call the function."""
        fields = msgspec.structs.asdict(decode(self.id, self.parameters, arguments))
        await ctx.ask(self.id, ["*"], always=["*"], metadata=dict(arguments))
        if self._takes_context:
            fields["ctx"] = ctx
        if inspect.iscoroutinefunction(self._function):
            result = await self._function(**fields)
        else:
            result = await asyncio.to_thread(self._call, fields)
        if isinstance(result, ToolOutput):
            return result
        if isinstance(result, str):
            return ToolOutput("", result)
        if result is None:
            return ToolOutput("", "(no output)")
        try:
            return ToolOutput("", msgspec.json.encode(result).decode())
        except (TypeError, ValueError, msgspec.MsgspecError) as error:
            raise ToolFailedError(f"The result of the tool {self.id!r} cannot be encoded as JSON: {error}") from error

    def _call(self, fields: dict[str, Any]) -> Any:
        try:
            return self._function(**fields)
        except (StopIteration, SystemExit, KeyboardInterrupt, GeneratorExit, asyncio.CancelledError) as error:
            # Not one of these may reach the task that waits for the thread: some would leave it waiting for ever.
            raise ToolFailedError(f"The tool {self.id!r} raised {describe(error)}") from error

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the function itself, from Python."""
        return self._function(*args, **kwargs)


@overload
def tool(function: Function, /) -> FunctionTool: ...
@overload
def tool(
    *, name: str | None = None, description: str | None = None, read_only: bool = False
) -> Callable[[Function], FunctionTool]: ...
def tool(
    function: Function | None = None,
    /,
    *,
    name: str | None = None,
    description: str | None = None,
    read_only: bool = False,
) -> FunctionTool | Callable[[Function], FunctionTool]:
    """Make a tool of a function: ``@tool``, or ``@tool(name="...")``.

    Plan mode refuses custom tools, except those that are declared ``read_only``: it asks the user about them.
    """

    def wrap(wrapped: Function) -> FunctionTool:
        return FunctionTool(wrapped, name=name, description=description, read_only=read_only)

    return wrap if function is None else wrap(function)


class InstalledTool(NamedTuple):
    """A tool and the package that provides it."""

    tool: Tool
    package: str


class UnusableEntryPoint(NamedTuple):
    """An entry point that could not be loaded, and the reason."""

    entry: str
    package: str
    error: str


class InstalledTools(NamedTuple):
    """Tools of installed packages, and entry points that failed."""

    tools: tuple[InstalledTool, ...] = ()
    unusable: tuple[UnusableEntryPoint, ...] = ()


def load_installed_tools() -> InstalledTools:
    """Load the tools of all entry points, in the order of their names.

    An entry point that cannot be loaded affects no other; it is logged and returned in ``unusable``.
    """
    loaded: dict[str, InstalledTool] = {}
    unusable: list[UnusableEntryPoint] = []
    for entry in sorted(entry_points(ENTRY_POINT_GROUP), key=lambda entry: (entry.name, entry.value)):
        package = entry.dist.name if entry.dist is not None else "?"
        try:
            for new in _tools_of(entry.load(), entry):
                _add(loaded, InstalledTool(new, package))
        except (Exception, SystemExit, GeneratorExit, asyncio.CancelledError) as error:
            reason = str(error) if isinstance(error, (ValueError, TypeError)) else describe(error)
            unusable.append(UnusableEntryPoint(entry.name, package, reason))
            log.warning("cannot use the tool %s of the package %s: %s", entry.name, package, reason)
    return InstalledTools(tuple(loaded.values()), tuple(unusable))


def _add(loaded: dict[str, InstalledTool], new: InstalledTool) -> None:
    first = loaded.setdefault(new.tool.id, new)
    if first is not new:
        raise ValueError(f"the tool {new.tool.id!r} is already provided by {first.package}")


def _tools_of(loaded: object, entry: EntryPoint) -> list[Tool]:
    if _is_tool(loaded):
        return [cast("Tool", loaded)]
    if isinstance(loaded, (list, tuple)):
        return [tool for item in cast("Sequence[object]", loaded) for tool in _tools_of(item, entry)]
    # A function that creates tools is recognised by its annotation: calling it to find out would run it.
    returned = getattr(loaded, "__annotations__", {}).get("return") if inspect.isroutine(loaded) else None
    if inspect.isclass(loaded) or re.search(r"Tool\b", returned if isinstance(returned, str) else repr(returned)):
        created: Any = cast("Any", loaded)()
        return _tools_of(created if _is_tool(created) else list(cast("Iterable[object]", created)), entry)
    if inspect.isroutine(loaded):
        return [FunctionTool(loaded)]
    raise TypeError(f"{entry.value} is {type(loaded).__name__}, neither a tool nor a function that creates one")


def _is_tool(loaded: object) -> bool:
    return not inspect.isclass(loaded) and not missing_attributes(loaded)
