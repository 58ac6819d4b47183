"""An answer in a given structure: the model gives it by calling a tool made from the schema."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..tools.tool import ToolOutput

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ..tools.tool import Context


class StructuredOutput:
    """The tool ``StructuredOutput``, for one answer."""

    id = "StructuredOutput"
    description = "Give your final answer with this tool, in the structure that its parameters describe. Call it once."

    def __init__(self, schema: Mapping[str, Any]) -> None:
        self.schema = {key: value for key, value in schema.items() if key != "$schema"}
        self.given = False
        self.value: dict[str, Any] = {}

    async def run(self, arguments: Mapping[str, Any], ctx: Context) -> ToolOutput:
        """Take the answer."""
        self.given = True
        self.value = dict(arguments)
        return ToolOutput("Structured Output", "The answer was taken.", {"valid": True, "truncated": False})
