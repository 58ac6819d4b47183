"""The tool with which a model gives an answer of a structure that the prompt asks for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..errors import InvalidArgumentsError
from .json_schema import schema_problems
from .tool import Context, ToolOutput

if TYPE_CHECKING:
    from collections.abc import Mapping

_MAX_PROBLEMS = 5
"""How many problems of an answer the model is given at once."""


class StructuredOutput:
    """The tool ``StructuredOutput``, made from a schema, with which a model gives an answer of that structure."""

    id = "StructuredOutput"
    description = "Give your final answer with this tool, in the structure that its parameters describe. Call it once."

    def __init__(self, schema: Mapping[str, Any]) -> None:
        self.schema = {key: value for key, value in schema.items() if key != "$schema"}
        self.was_called = False
        self.value: dict[str, Any] = {}
        self.problem = ""
        """Why the last answer was not taken."""

    async def run(self, arguments: Mapping[str, Any], ctx: Context) -> ToolOutput:
        """Take the answer, if it fits the schema."""
        try:
            problems = schema_problems(dict(arguments), self.schema)
        except ValueError as error:
            problems = [str(error)]
        if problems:
            self.problem = "; ".join(problems[:_MAX_PROBLEMS])
            raise InvalidArgumentsError(
                f"The answer does not fit its schema. {self.problem}. Give it again, corrected."
            )
        self.was_called = True
        self.value = dict(arguments)
        return ToolOutput("Structured Output", "The answer was taken.", {"valid": True})
