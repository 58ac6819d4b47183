"""Tools of one's own: a function with type hints is a tool.

::

    import opensesh


    @opensesh.tool
    async def tickets(project: str, open_only: bool = True) -> str:
        '''List the tickets of a project.'''
        return await tracker.list(project, open_only)

The docstring is what the model reads, the hints are the schema (``Annotated[str, Meta(description=...)]`` describes a
parameter), and a parameter named ``ctx`` is given the :class:`~opensesh.tools.tool.Context`.
"""

from __future__ import annotations

import asyncio
import inspect
import re
from typing import TYPE_CHECKING, Any, get_type_hints, overload

import msgspec

from ..errors import ToolFailedError
from .arguments import decode, schema_of
from .tool import Context, ToolOutput

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    Function = Callable[..., Any]

_NAME = r"[A-Za-z0-9_-]{1,64}"


class FunctionTool:
    """A tool made from a function. A plain function runs in a thread; a coroutine function in the event loop."""

    def __init__(self, function: Function, *, name: str | None = None, description: str | None = None) -> None:
        self._function = function
        self.id = name or function.__name__
        self.description = description or inspect.getdoc(function) or ""
        if not re.fullmatch(_NAME, self.id):
            raise ValueError(f"{self.id!r} cannot be the name of a tool: letters, digits, _ and -, at most 64")
        if not self.description:
            raise ValueError(f"the tool {self.id!r} needs a docstring: it is what the model goes by")
        signature = inspect.signature(function)
        self._wants_context = "ctx" in signature.parameters
        self.parameters = _struct(self.id, function, signature)

    @property
    def schema(self) -> dict[str, Any]:
        """The JSON schema of the function's parameters."""
        return schema_of(self.parameters)

    async def run(self, arguments: Mapping[str, Any], ctx: Context) -> ToolOutput:
        """Ask for the permission of the tool's own name, and call the function."""
        fields = msgspec.structs.asdict(decode(self.id, self.parameters, arguments))
        await ctx.ask(self.id, ["*"], always=["*"], metadata=dict(arguments))
        if self._wants_context:
            fields["ctx"] = ctx
        if inspect.iscoroutinefunction(self._function):
            answer = await self._function(**fields)
        else:
            answer = await asyncio.to_thread(self._function, **fields)
        return answer if isinstance(answer, ToolOutput) else ToolOutput("", _text(self.id, answer))

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """The function itself, for those who call it from Python."""
        return self._function(*args, **kwargs)


@overload
def tool(function: Function, /) -> FunctionTool: ...
@overload
def tool(*, name: str | None = None, description: str | None = None) -> Callable[[Function], FunctionTool]: ...
def tool(
    function: Function | None = None, /, *, name: str | None = None, description: str | None = None
) -> FunctionTool | Callable[[Function], FunctionTool]:
    """Make a tool of a function: ``@tool``, or ``@tool(name="...")``."""

    def wrap(wrapped: Function) -> FunctionTool:
        return FunctionTool(wrapped, name=name, description=description)

    return wrap if function is None else wrap(function)


def _struct(name: str, function: Function, signature: inspect.Signature) -> type[msgspec.Struct]:
    hints = get_type_hints(function, localns={"Context": Context}, include_extras=True)
    fields: list[Any] = []
    for parameter in signature.parameters.values():
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD, parameter.POSITIONAL_ONLY):
            raise ValueError(f"the tool {name!r} cannot take {parameter}: a model gives arguments by name")
        if parameter.name == "ctx":
            continue
        hint = hints.get(parameter.name, str)
        default = parameter.default
        fields.append((parameter.name, hint) if default is parameter.empty else (parameter.name, hint, default))
    kind = msgspec.defstruct(f"{name}_arguments", fields, kw_only=True)
    try:
        schema_of(kind)  # better found out now than when a model calls
    except TypeError as error:
        raise ValueError(f"the parameters of the tool {name!r} cannot be described in JSON: {error}") from error
    return kind


def _text(name: str, answer: object) -> str:
    if isinstance(answer, str):
        return answer
    if answer is None:
        return "(no output)"
    try:
        return msgspec.json.encode(answer).decode()
    except (TypeError, ValueError, msgspec.MsgspecError) as error:
        raise ToolFailedError(f"The tool {name!r} answered something that cannot be shown: {error}") from error
